"""A protected MCP server that is its own authorization server: the routes of the official Python SDK, 2.x.

Run: venv-modern/bin/python sdk2_server.py    (MCP at the address it says on stderr; sdk_provider.py has the variables)

SPDX-License-Identifier: 0BSD
"""

from sdk_provider import Provider, origin, serve, settings  # isort: skip

from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer

provider = Provider()
server = MCPServer(
    "sdk2",
    log_level="ERROR",
    auth_server_provider=provider,
    auth=AuthSettings(
        issuer_url=origin, resource_server_url=f"{origin}/mcp", validate_token_resource=True, **settings()
    ),
)
server.custom_route("/login", ["GET", "POST"])(provider.login)


@server.tool()
def list_notes() -> str:
    """Lists the notes."""
    return "A heron stands in shallow water."


serve(server.streamable_http_app(), "sdk2")
