"""A small protected MCP server, made with the official Python SDK, 2.x (MCPServer).

The SDK serves the protected-resource metadata, and refuses requests without a good token. This file asks the
authorization server what a token is good for (RFC 7662), and demands two things that the SDK leaves open: the scope
notes:write for the tool add_note, and, with dpop, a proof of possession with each request, with a nonce (RFC 9449).

Run: venv-modern/bin/python protected_server.py ISSUER [dpop]    (MCP at the address it says on stderr)

SPDX-License-Identifier: 0BSD
"""

import base64
import hashlib
import json
import secrets
import sys
import time

import httpx2
import jwt
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse

import loopback

issuer, with_dpop = sys.argv[1], sys.argv[2:] == ["dpop"]

sock = loopback.listen()
origin = f"http://127.0.0.1:{sock.getsockname()[1]}"


class Introspection:
    """Asks the authorization server about each token, as its client protected-server."""

    client = httpx2.AsyncClient(auth=("protected-server", "protected-server-secret"))

    async def verify_token(self, token: str) -> AccessToken | None:
        answer = await self.client.post(f"{issuer}/token/introspection", data={"token": token})
        claims = answer.raise_for_status().json()
        if not claims["active"]:
            return None
        return AccessToken(
            token=token,
            client_id=claims["client_id"],
            scopes=claims.get("scope", "").split(),
            expires_at=claims["exp"],
            resource=claims.get("aud"),
            subject=claims.get("sub"),
            claims=claims,
        )


server = MCPServer(
    "protected",
    version="1.2.3",
    log_level="ERROR",
    token_verifier=Introspection(),
    auth=AuthSettings(
        issuer_url=issuer,
        resource_server_url=f"{origin}/mcp",
        required_scopes=["notes:read"],
        validate_token_resource=True,
    ),
)
notes = ["A heron stands in shallow water."]


@server.tool()
def list_notes() -> str:
    """Lists the notes."""
    return "\n".join(notes)


@server.tool()
def add_note(text: str) -> str:
    """Adds a note, which needs the scope notes:write."""
    notes.append(text)
    return f"{len(notes)} notes"


@server.tool()
def who() -> str:
    """Says who calls: the subject of the token, or its client, its scopes, and how it was presented."""
    token = get_access_token()
    return f"{token.subject or token.client_id}: {' '.join(token.scopes)} ({token.claims['token_type']})"


def refusal(status: int, scheme: str, headers: dict | None = None, **parameters: str) -> JSONResponse:
    parameters["resource_metadata"] = f"{origin}/.well-known/oauth-protected-resource/mcp"
    challenge = ", ".join(f'{name}="{value}"' for name, value in parameters.items())
    return JSONResponse(parameters, status, {"www-authenticate": f"{scheme} {challenge}", **(headers or {})})


class StepUp:
    """Stands behind the SDK's check of tokens."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        user = scope.get("user")
        if isinstance(user, AuthenticatedUser):
            key = user.access_token.claims.get("cnf", {}).get("jkt")
            if key != scope.get("proven_key"):
                return await refusal(401, "DPoP", error="invalid_token")(scope, receive, send)
            writes = Headers(scope=scope).get("mcp-name") == "add_note"
            if writes and "notes:write" not in user.scopes:
                response = refusal(403, "Bearer", error="insufficient_scope", scope="notes:write")
                return await response(scope, receive, send)
        await self.app(scope, receive, send)


class Proofs:
    """Stands before the SDK, which takes bearer tokens only: checks the proof of a token, and hands it on as one."""

    def __init__(self, app):
        self.app = app
        self.nonce = secrets.token_urlsafe()
        self.seen = set()

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["path"] != "/mcp":
            return await self.app(scope, receive, send)
        headers = MutableHeaders(scope=scope)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        response = refusal(401, "DPoP", algs="ES256")
        if scheme.lower() == "dpop":
            try:
                scope["proven_key"] = self.prove(scope["method"], headers["dpop"], token)
                headers["authorization"] = f"Bearer {token}"
                return await self.app(scope, receive, send)
            except ValueError as error:
                response = refusal(401, "DPoP", {"dpop-nonce": self.nonce}, error=str(error), algs="ES256")
            except (KeyError, jwt.PyJWTError) as error:
                print(f"proof: {error!r}", file=sys.stderr, flush=True)
                response = refusal(401, "DPoP", error="invalid_dpop_proof", algs="ES256")
        await response(scope, receive, send)

    def prove(self, method: str, proof: str, token: str) -> str:
        """Returns the thumbprint of the key that has signed a proof (RFC 7638)."""
        header = jwt.get_unverified_header(proof)
        key = {name: header["jwk"][name] for name in ("crv", "kty", "x", "y")}
        if header["typ"] != "dpop+jwt" or set(header["jwk"]) != set(key):
            raise jwt.InvalidTokenError("typ or jwk")
        claims = jwt.decode(proof, jwt.PyJWK(key, "ES256"), ["ES256"], options={"verify_iat": False})
        if claims.get("nonce") != self.nonce:
            raise ValueError("use_dpop_nonce")
        want = {"htm": method, "htu": f"{origin}/mcp", "ath": encode(hashlib.sha256(token.encode()))}
        given = {name: claims[name] for name in want}
        if given != want or abs(claims["iat"] - time.time()) > 60 or claims["jti"] in self.seen:
            raise jwt.InvalidTokenError(f"{claims}")
        self.seen.add(claims["jti"])
        return encode(hashlib.sha256(json.dumps(key, separators=(",", ":"), sort_keys=True).encode()))


def encode(digest) -> str:
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


app = server.streamable_http_app()
app.user_middleware.append(Middleware(StepUp))  # the last one is the innermost
if with_dpop:
    app = Proofs(app)
print(f"listening on {origin}/mcp", file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])
