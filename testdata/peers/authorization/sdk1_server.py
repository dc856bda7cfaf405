"""A protected MCP server that is its own authorization server: the routes of the official Python SDK, 1.x.

With LEGACY=1 it is what servers of revision 2025-03-26 are: nothing says which authorization server protects it, and a
client has to look for the metadata at the server's own origin.

Run: venv/bin/python sdk1_server.py    (MCP at the address it says on stderr; sdk_provider.py has the other variables)

SPDX-License-Identifier: 0BSD
"""

from sdk_provider import Provider, origin, serve, settings  # isort: skip

import os

from mcp.server.auth.settings import AuthSettings
from mcp.server.fastmcp import FastMCP

is_legacy = os.environ.get("LEGACY") == "1"
provider = Provider()
server = FastMCP(
    "sdk1",
    log_level="ERROR",
    auth_server_provider=provider,
    auth=AuthSettings(
        issuer_url=origin,
        resource_server_url=None if is_legacy else f"{origin}/mcp",
        validate_token_resource=not is_legacy,
        **settings(),
    ),
)
server.custom_route("/login", ["GET", "POST"])(provider.login)


@server.tool()
def list_notes() -> str:
    """Lists the notes."""
    return "A heron stands in shallow water."


serve(server.streamable_http_app(), "sdk1")
