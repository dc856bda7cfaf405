# fastmcp_server.py - the MCP server of the first page of FastMCP's manual, on the SDK of requirements-old.txt.
# Run: python fastmcp_server.py    (MCP on stdin and stdout)
# SPDX-License-Identifier: 0BSD

from mcp.server.fastmcp import FastMCP

mcp = FastMCP("first page")


@mcp.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


mcp.run()
