"""A protected MCP server and its authorization server in one process: Authlib's, with Flask and SQLAlchemy.

Authlib does the OAuth: the authorization code grant with PKCE, the refresh grant, the registration of clients (RFC 7591),
their authentication, what scopes a client may have, revocation (RFC 7009), and the check of a token. Its models say what
a client and a token are; they give the scope "" to a client that registered without scopes, and that is kept. The official
Python SDK, 2.x, does the MCP, the protected-resource metadata, and the refusals at /mcp.

Written here, since Authlib leaves it to the application: the form, the routes, the text of the metadata (RFC 8414), which
Authlib validates, that a refresh gives a new refresh token and ends the old one, and that anybody may register a client.
Authlib sends iss only where it is told to (RFC 9207), and knows no resource indicators (RFC 8707); so here.

Run: PORT=0 TOKEN_SECONDS=3600 REFRESH=yes SCOPES=notes:read venv-authlib/bin/python authorization/authlib_server.py
(MCP at the address it says on stderr). The person is heron, with the password heron.

SPDX-License-Identifier: 0BSD
"""

import clock  # isort: skip

import asyncio
import html
import os
import socket
import sys
import time

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "yes"  # plain HTTP, on loopback

import uvicorn
from a2wsgi import WSGIMiddleware
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.integrations.sqla_oauth2 import (
    OAuth2AuthorizationCodeMixin,
    OAuth2ClientMixin,
    OAuth2TokenMixin,
    create_bearer_token_validator,
    create_query_client_func,
    create_revocation_endpoint,
    create_save_token_func,
)
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from flask import Flask, jsonify, request
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from sqlalchemy import Column, Integer, String, create_engine
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import StaticPool
from starlette.routing import Mount

scopes = os.environ.get("SCOPES", "notes:read").split()
seconds = int(os.environ.get("TOKEN_SECONDS", "3600"))  # that an access token lives

# With its protocol named, asyncio sends without delay.
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
sock.listen()
origin = f"http://127.0.0.1:{sock.getsockname()[1]}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# What is remembered, as Authlib's models have it, in memory. One thread alone uses it.


class Base(DeclarativeBase):
    pass


class Client(Base, OAuth2ClientMixin):
    __tablename__ = "clients"
    id = Column(Integer, primary_key=True)


class Code(Base, OAuth2AuthorizationCodeMixin):
    __tablename__ = "codes"
    id = Column(Integer, primary_key=True)
    user_id = Column(String)


class Token(Base, OAuth2TokenMixin):
    __tablename__ = "tokens"
    id = Column(Integer, primary_key=True)
    user_id = Column(String)


class Person:
    """The one who logs in."""

    def get_user_id(self) -> str:
        return "heron"


engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
Base.metadata.create_all(engine)
session = Session(engine)
person = Person()


# The grants and the endpoints: Authlib's, with the methods that it asks an application for.

auth_methods = ["client_secret_basic", "client_secret_post", "none"]


class AuthorizationCodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = auth_methods

    def save_authorization_code(self, code, request):
        session.add(
            Code(
                code=code,
                client_id=request.client.client_id,
                redirect_uri=request.payload.redirect_uri,
                scope=request.scope,
                user_id=request.user.get_user_id(),
                code_challenge=request.payload.data.get("code_challenge"),
                code_challenge_method=request.payload.data.get("code_challenge_method"),
            )
        )
        session.commit()

    def query_authorization_code(self, code, client):
        found = session.query(Code).filter_by(code=code, client_id=client.client_id).first()
        return found if found and not found.is_expired() else None

    def delete_authorization_code(self, authorization_code):
        session.delete(authorization_code)
        session.commit()

    def authenticate_user(self, authorization_code):
        return person


class RefreshTokenGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = auth_methods
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token):
        found = session.query(Token).filter_by(refresh_token=refresh_token).first()
        return found if found and not found.is_revoked() else None

    def authenticate_user(self, refresh_token):
        return person

    def revoke_old_credential(self, refresh_token):
        refresh_token.refresh_token_revoked_at = int(time.time())  # and Authlib refuses the access token, too
        session.commit()


class Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request):
        return "anybody"

    def get_server_metadata(self):
        return metadata

    def save_client(self, client_info, client_metadata, request):
        client = Client(**client_info)
        client.set_client_metadata(client_metadata)
        session.add(client)
        session.commit()
        say("registered a client")
        return client


class Revocation(create_revocation_endpoint(session, Token)):
    CLIENT_AUTH_METHODS = auth_methods

    def revoke_token(self, token, request):
        super().revoke_token(token, request)
        say(f"revoked {request.form.get('token_type_hint', 'a token')}")


metadata = AuthorizationServerMetadata(
    issuer=origin,
    authorization_endpoint=f"{origin}/authorize",
    token_endpoint=f"{origin}/token",
    registration_endpoint=f"{origin}/register",
    revocation_endpoint=f"{origin}/revoke",
    scopes_supported=scopes,
    response_types_supported=["code"],
    grant_types_supported=["authorization_code", "refresh_token"],
    token_endpoint_auth_methods_supported=auth_methods,
    revocation_endpoint_auth_methods_supported=auth_methods,
    code_challenge_methods_supported=["S256"],
)
metadata.validate()

web = Flask("authorization")
web.config["OAUTH2_SCOPES_SUPPORTED"] = scopes
web.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = os.environ.get("REFRESH") != "no"
web.config["OAUTH2_TOKEN_EXPIRES_IN"] = {"authorization_code": seconds, "refresh_token": seconds}
server = AuthorizationServer(web, create_query_client_func(session, Client), create_save_token_func(session, Token))
server.register_grant(AuthorizationCodeGrant, [CodeChallenge(required=True)])
server.register_grant(RefreshTokenGrant)
server.register_endpoint(Registration)
server.register_endpoint(Revocation)


@web.get("/.well-known/oauth-authorization-server")
def well_known():
    return jsonify(metadata)


@web.post("/register")
def register():
    return server.create_endpoint_response("client_registration")


@web.route("/authorize", methods=["GET", "POST"])
def authorize():
    try:
        grant = server.get_consent_grant(end_user=person)
    except OAuth2Error as error:
        return server.handle_error_response(request, error)
    if request.method == "POST" and "deny" in request.form:
        return server.create_authorization_response(grant_user=None, grant=grant)
    if request.form.get("user") == "heron" and request.form.get("password") == "heron":
        return server.create_authorization_response(grant_user=person, grant=grant)
    return f"""<!doctype html><title>Log in</title>
<h1>{"Wrong user or password" if request.method == "POST" else "Log in"}</h1>
<p>{html.escape(grant.client.client_name or "A program")} asks for: {html.escape(grant.request.scope or "no scope")}</p>
<form method="post" action="{html.escape(request.full_path)}">
<input name="user"> <input name="password" type="password">
<button>Approve</button> <button name="deny" value="yes">Deny</button>
</form>
"""


@web.post("/token")
def token():
    response = server.create_token_response()
    what, error = request.form.get("grant_type"), response.get_json().get("error")
    say(f"refused {what}: {error}" if error else f"granted {what}")
    return response


@web.post("/revoke")
def revoke():
    return server.create_endpoint_response("revocation")


# The MCP server. It asks Authlib what a token is good for.

authorization = WSGIMiddleware(web, workers=1)  # in one thread, whose session the tokens lie in
validator = create_bearer_token_validator(session, Token)()


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        return await asyncio.get_running_loop().run_in_executor(authorization.executor, self.verify, token)

    def verify(self, text: str) -> AccessToken | None:
        found = validator.authenticate_token(text)
        try:
            validator.validate_token(found, None, None)
        except OAuth2Error:
            return None
        return AccessToken(
            token=text,
            client_id=found.client_id,
            scopes=found.get_scope().split(),
            expires_at=found.issued_at + found.expires_in,
            subject=found.user_id,
        )


mcp = MCPServer(
    "notes",
    version="1.2.3",
    log_level="ERROR",
    token_verifier=Verifier(),
    auth=AuthSettings(
        issuer_url=origin,
        resource_server_url=f"{origin}/mcp",
        required_scopes=scopes,
        validate_token_resource=False,
    ),
)


@mcp.tool()
def list_notes() -> str:
    """Lists the notes."""
    return "A heron stands in shallow water."


app = mcp.streamable_http_app()
app.router.routes.append(Mount("/", authorization))
say(f"listening on {origin}/mcp")
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
