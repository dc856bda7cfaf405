"""What an authorization server on the official Python SDK's own routes needs, kept in memory.

The SDK, 1.x as well as 2.x, has the endpoints: it registers clients, checks requests, and answers in the form of OAuth.
This file has what it leaves to a provider: clients, codes, tokens, and a page where a person logs in under any name, and
with any password but "wrong". Codes and refresh tokens work once. Who starts the server again has an empty one.

Variables: PORT (0: any), TOKEN_SECONDS (the life of an access token), REFRESH=no (without refresh tokens), SCOPES (all of
which a token needs), DEFAULT_SCOPES=no (a client gets no scope that its registration does not name).

SPDX-License-Identifier: 0BSD
"""

import clock  # isort: skip

import html
import os
import secrets
import socket
import sys
import time

import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, RefreshToken, TokenError, construct_redirect_uri
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthToken
from starlette.responses import HTMLResponse, RedirectResponse

scopes = os.environ.get("SCOPES", "notes:read").split()
token_seconds = int(os.environ.get("TOKEN_SECONDS", "3600"))
gives_refresh_tokens = os.environ.get("REFRESH") != "no"

# With its protocol named, asyncio sends without delay.
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
sock.listen()
origin = f"http://127.0.0.1:{sock.getsockname()[1]}"

PAGE = """<!doctype html>
<title>Sign-in</title>
<h1>Sign-in</h1>
<p>{message}</p>
<form method="post" action="/login">
<input type="hidden" name="request" value="{request}">
<p><label>Name <input name="user"></label></p>
<p><label>Password <input type="password" name="password"></label></p>
<button name="decision" value="allow">Allow</button>
<button name="decision" value="deny">Deny</button>
</form>
"""


def settings() -> dict:
    """What AuthSettings takes, but for the addresses."""
    defaults = None if os.environ.get("DEFAULT_SCOPES") == "no" else scopes
    return {
        "required_scopes": scopes,
        "client_registration_options": ClientRegistrationOptions(
            enabled=True, valid_scopes=scopes, default_scopes=defaults
        ),
        "revocation_options": RevocationOptions(enabled=True),
    }


def serve(app, name: str) -> None:
    """Serves MCP and the authorization server, and says where."""
    print(f"{name} is listening on {origin}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


class Provider:
    """An OAuthAuthorizationServerProvider of the SDK. A grant is a pair of an access and a refresh token."""

    def __init__(self):
        self.clients, self.requests, self.codes, self.access, self.refresh = {}, {}, {}, {}, {}
        self.grants = {}  # the other token of each, by token

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client, params) -> str:
        request = secrets.token_urlsafe()
        self.requests[request] = client, params
        return f"{origin}/login?request={request}"

    async def login(self, http):
        """The page: it is shown, and then it takes what the person has decided."""
        given = http.query_params if http.method == "GET" else await http.form()
        name, message = given.get("request"), ""
        if name not in self.requests:
            return HTMLResponse("<h1>No such login</h1>", 400)
        if given.get("decision") == "deny":
            _, params = self.requests.pop(name)
            refusal = {"error": "access_denied", "error_description": "the person has denied it"}
            return RedirectResponse(construct_redirect_uri(str(params.redirect_uri), state=params.state, **refusal), 302)
        if given.get("user") and given.get("password"):
            if given["password"] != "wrong":
                return self.allow(name, given["user"])
            message = "That is not the password."
        return HTMLResponse(PAGE.format(request=html.escape(name), message=message))

    def allow(self, name, user):
        client, params = self.requests.pop(name)
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            client_id=client.client_id,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=user,
        )
        self.codes[code.code] = code
        return RedirectResponse(construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state), 302)

    async def load_authorization_code(self, client, authorization_code):
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        if self.codes.pop(authorization_code.code, None) is None:
            raise TokenError("invalid_grant", "the code has been used")
        return self.grant(authorization_code, authorization_code.scopes)

    async def load_refresh_token(self, client, refresh_token):
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        if refresh_token.token not in self.refresh:
            raise TokenError("invalid_grant", "the refresh token has been used")
        await self.revoke_token(refresh_token)
        return self.grant(refresh_token, scopes)

    def grant(self, source, scopes) -> OAuthToken:
        """Issues tokens for a code or a refresh token."""
        common = {"client_id": source.client_id, "scopes": scopes, "resource": source.resource, "subject": source.subject}
        access, refresh = secrets.token_urlsafe(32), None
        expires_at = int(time.time()) + token_seconds
        self.access[access] = AccessToken(token=access, expires_at=expires_at, **common)
        if gives_refresh_tokens:
            refresh = secrets.token_urlsafe(32)
            self.refresh[refresh] = RefreshToken(token=refresh, **common)
            self.grants[access], self.grants[refresh] = refresh, access
        scope = " ".join(scopes)
        return OAuthToken(access_token=access, expires_in=token_seconds, scope=scope, refresh_token=refresh)

    async def load_access_token(self, token):
        return self.access.get(token)

    async def revoke_token(self, token):
        """Ends both tokens of a grant."""
        for each in (token.token, self.grants.pop(token.token, None)):
            self.access.pop(each, None)
            self.refresh.pop(each, None)
