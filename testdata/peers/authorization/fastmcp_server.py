"""A protected MCP server on FastMCP, with one of the authorization servers that FastMCP brings.

Alone it has FastMCP's provider in memory, which asks nobody: whoever comes to /authorize is logged in. With UPSTREAM, the
issuer of server.mjs, it has FastMCP's OAuthProxy, which registers clients itself and sends the person there. What the proxy
knows of clients and tokens is in memory, too.

Variables: PORT (0: any), TOKEN_SECONDS (the life of an access token), SCOPES (all of which a token needs),
DEFAULT_SCOPES=no (a client gets no scope that its registration does not name), UPSTREAM.

Run: venv-fastmcp/bin/python fastmcp_server.py    (MCP at the address it says on stderr)

SPDX-License-Identifier: 0BSD
"""

import clock  # isort: skip

import logging
import os
import socket
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import OAuthProxy
from fastmcp.server.auth.auth import ClientRegistrationOptions, RevocationOptions
from fastmcp.server.auth.providers import in_memory
from fastmcp.server.auth.providers.introspection import IntrospectionTokenVerifier
from key_value.aio.stores.memory import MemoryStore

# With its protocol named, asyncio sends without delay.
sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
sock.listen()
origin = f"http://127.0.0.1:{sock.getsockname()[1]}"

scopes = os.environ.get("SCOPES", "notes:read").split()
upstream = os.environ.get("UPSTREAM")


def provider():
    if upstream:
        verifier = IntrospectionTokenVerifier(
            introspection_url=f"{upstream}/token/introspection",
            client_id="protected-server",
            client_secret="protected-server-secret",
            required_scopes=scopes,
        )
        return OAuthProxy(
            upstream_authorization_endpoint=f"{upstream}/auth",
            upstream_token_endpoint=f"{upstream}/token",
            upstream_revocation_endpoint=f"{upstream}/token/revocation",
            upstream_client_id="registered",
            upstream_client_secret="registered-secret-0123456789",
            # The access tokens of server.mjs are for one resource, and its refresh tokens for who asks for them.
            extra_authorize_params={"prompt": "consent", "scope": " ".join([*scopes, "offline_access"])},
            extra_token_params={"resource": f"{origin}/mcp"},
            redirect_path="/callback",
            token_verifier=verifier,
            base_url=origin,
            client_storage=MemoryStore(),
        )
    # The provider has no setting for this.
    in_memory.DEFAULT_ACCESS_TOKEN_EXPIRY_SECONDS = int(os.environ.get("TOKEN_SECONDS", "3600"))
    defaults = None if os.environ.get("DEFAULT_SCOPES") == "no" else scopes
    return in_memory.InMemoryOAuthProvider(
        base_url=origin,
        required_scopes=scopes,
        client_registration_options=ClientRegistrationOptions(
            enabled=True, valid_scopes=scopes, default_scopes=defaults
        ),
        revocation_options=RevocationOptions(enabled=True),
    )


logging.disable(logging.INFO)
server = FastMCP("fastmcp", auth=provider())


@server.tool
def list_notes() -> str:
    """Lists the notes."""
    return "A heron stands in shallow water."


print(f"fastmcp is listening on {origin}/mcp", file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(server.http_app(path="/mcp"), log_level="warning")).run(sockets=[sock])
