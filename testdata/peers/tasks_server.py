"""A server whose tools run as tasks by the extension io.modelcontextprotocol/tasks, on FastMCP and its package fastmcp-tasks.

With REPLICA it is one of several behind a proxy: the ids of its tasks begin with that name, by which the proxy routes. Each
process has its tasks in its own memory, and no replica knows those of another.

Run: venv-fastmcp/bin/python tasks_server.py         (MCP on stdin and stdout, logs on stderr)
     venv-fastmcp/bin/python tasks_server.py http    (MCP at the address it says on stderr, the port being PORT or any)

SPDX-License-Identifier: 0BSD
"""

import asyncio
import logging
import os
import secrets
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import fastmcp_tasks.creation
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.dependencies import Progress
from fastmcp.exceptions import ToolError
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

import loopback

replica = os.environ.get("REPLICA")
if replica:
    # The package draws its ids with this function, and has no setting for them.
    fastmcp_tasks.creation.secrets = SimpleNamespace(
        token_urlsafe=lambda size: f"{replica}.{secrets.token_urlsafe(size)}"
    )

logging.disable(logging.INFO)
server = FastMCP("tasks", version="1.0.0")
server.add_extension(TasksExtension())

POLL = timedelta(milliseconds=100)
required = TaskConfig(mode="required", poll_interval=POLL)


@server.tool
def echo(message: str) -> str:
    """Says what it is told, and never as a task."""
    return message


@server.tool(task=TaskConfig(mode="optional", poll_interval=POLL))
async def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool(task=required)
async def read(path: str, progress: Progress = Progress()) -> str:
    """Reads a file when it is there, and waits for it until then."""
    await progress.set_message(f"waiting for {Path(path).name}")
    try:
        while not Path(path).exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        print("read was cancelled", file=sys.stderr, flush=True)
        raise
    return f"{Path(path).read_text()} ({replica})"


@server.tool(task=required)
async def fail() -> str:
    """Fails."""
    raise ToolError("this tool always fails")


def ask(name: str, message: str, kind: str, state: str) -> InputRequiredResult:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    question = ElicitRequestFormParams(message=message, requested_schema=schema)
    return InputRequiredResult(input_requests={name: ElicitRequest(params=question)}, request_state=state)


@server.tool(task=required)
async def greet(ctx: Context) -> str | InputRequiredResult:
    """Asks for a name, and then whether it is right."""
    answers = ctx.input_responses or {}
    if "confirmed" in answers:
        return f"Hello, {ctx.request_state}! ({answers['confirmed'].content['confirmed']}, {replica})"
    if "name" not in answers:
        return ask("name", "What is your name?", "string", "unnamed")
    if answers["name"].action != "accept":
        return f"nobody, who answered {answers['name'].action}"
    name = answers["name"].content["name"]
    return ask("confirmed", f"Are you {name}?", "boolean", name)


def serve_http() -> None:
    sock = loopback.listen()
    app = server.http_app(path="/mcp")
    print(f"listening on http://127.0.0.1:{sock.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve_http()
    else:
        server.run(show_banner=False)
