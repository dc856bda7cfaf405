"""A small MCP server of the stateless era, made with the official Python SDK, 2.x (MCPServer).

It speaks the handshake revisions, too. modern_server.mjs is the same server on the TypeScript SDK: the tests run one
battery against both.

Run: venv-modern/bin/python modern_server.py         (MCP on stdin and stdout, logs on stderr)
     venv-modern/bin/python modern_server.py http    (MCP at the address it says on stderr, the port being PORT or any)

SPDX-License-Identifier: 0BSD
"""

import sys
import warnings
from typing import Annotated, Literal

import anyio
import uvicorn
from mcp.server.caching import CacheHint
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.shared.exceptions import MCPDeprecationWarning
from mcp_types import (
    Completion,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequiredResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

import loopback

warnings.simplefilter("ignore", MCPDeprecationWarning)  # logging is deprecated, and tested

server = MCPServer(
    "modern-python",
    title="Modern",
    version="1.2.3",
    instructions="Ask for anything.",
    cache_hints={"tools/list": CacheHint(ttl_ms=600_000)},
    log_level="WARNING",
)


# Tools.


@server.tool(title="Echo", annotations=ToolAnnotations(read_only_hint=True))
def echo(message: str) -> str:
    """Says what it is told."""
    return message


class Sum(BaseModel):
    sum: float


@server.tool()
def add(a: float, b: float) -> Sum:
    """Adds two numbers."""
    return Sum(sum=a + b)


@server.tool()
def route(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
    urgent: Annotated[bool, Field(json_schema_extra={"x-mcp-header": "Urgent"})] = False,
) -> str:
    """Says where a parcel goes. Over HTTP in the stateless era, the SDK checks that the headers say the same."""
    return f"{region}, {urgent}"


@server.tool()
async def count(steps: int, ctx: Context) -> str:
    """Counts, and reports each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"counted to {steps}"


@server.tool()
async def wait(ctx: Context) -> str:
    """Waits until it is cancelled, and then says so on stderr."""
    await ctx.report_progress(1, 2, "waiting")
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        print("wait was cancelled", file=sys.stderr, flush=True)
        raise


@server.tool()
async def log(ctx: Context) -> str:
    """Logs on three levels."""
    await ctx.log("debug", "of little interest", logger_name="modern")
    await ctx.log("info", {"of": ["some", "interest"]}, logger_name="modern")
    await ctx.log("error", "of much interest")
    return "logged"


@server.tool()
async def fail() -> str:
    """Fails."""
    raise ToolError("this tool always fails")


# Questions of the server, in the two ways that the two eras have; the SDK chooses.


class Person(BaseModel):
    name: str = Field(title="Name", description="What to call you", min_length=1)
    age: int = Field(default=30, ge=0)
    color: Literal["red", "green", "blue"] = "green"
    member: bool = True


async def ask_person() -> Elicit[Person]:
    return Elicit("Who are you?", Person)


@server.tool()
async def ask(person: Annotated[ElicitationResult[Person], Resolve(ask_person)]) -> str:
    """Asks the user who they are."""
    if person.action != "accept":
        return f"the user answered {person.action}"
    data = person.data
    return f"{data.name}, {data.age}, {data.color}, {data.member}"


async def ask_model() -> Sample:
    return Sample(
        [SamplingMessage(role="user", content=TextContent(type="text", text="What is the capital of France?"))],
        system_prompt="Answer in one word.",
        max_tokens=100,
        temperature=0.5,
        stop_sequences=["."],
    )


@server.tool()
async def sample(answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Asks the client's model."""
    return f"{answer.model} as {answer.role} says {answer.content.text} ({answer.stop_reason})"


async def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def roots(listed: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    """Asks for the client's roots."""
    return " ".join(f"{root.uri} ({root.name})" for root in listed.roots)


class Confirmation(BaseModel):
    confirmed: bool


async def confirm(person: Annotated[Person, Resolve(ask_person)]) -> Elicit[Confirmation]:
    return Elicit(f"Are you sure, {person.name}?", Confirmation)


@server.tool()
async def interview(
    person: Annotated[Person, Resolve(ask_person)],
    answer: Annotated[CreateMessageResult, Resolve(ask_model)],
    listed: Annotated[ListRootsResult, Resolve(ask_roots)],
    confirmation: Annotated[Confirmation, Resolve(confirm)],
) -> str:
    """Asks three questions at once, and then a fourth that depends on the first."""
    return f"{person.name}, {answer.content.text}, {len(listed.roots)}, {confirmation.confirmed}"


@server.tool()
async def pester(ctx: Context) -> InputRequiredResult:
    """Asks again and again, and only in the stateless era."""
    rounds = int(ctx.request_state or "0") + 1
    question = ElicitRequestFormParams(
        message=f"Question {rounds}?", requested_schema={"type": "object", "properties": {}}
    )
    return InputRequiredResult(input_requests={"again": ElicitRequest(params=question)}, request_state=str(rounds))


# Changes.


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool, a prompt and a resource, and tells of it."""

    def grown() -> str:
        """Is new."""
        return "grown"

    server.tool()(grown)
    server.prompt()(grown)
    server.resource("note://grown")(grown)
    if ctx.protocol_version == "2026-07-28":
        await ctx.notify_tools_changed()
        await ctx.notify_prompts_changed()
        await ctx.notify_resources_changed()
    else:
        await ctx.session.send_tool_list_changed()
        await ctx.session.send_prompt_list_changed()
        await ctx.session.send_resource_list_changed()
    return "grown"


@server.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Tells that a resource is not what it was."""
    await ctx.notify_resource_updated(uri)
    return "touched"


# Resources.


@server.resource("note://text", title="A note", mime_type="text/plain")
def text_note() -> str:
    return "a note, é"


@server.resource("note://blob", mime_type="application/octet-stream")
def blob_note() -> bytes:
    return bytes(range(256))


@server.resource("note://numbered/{number}", name="numbered", mime_type="text/plain")
def numbered_note(number: str) -> str:
    return f"note number {number}"


@server.resource("note://signed/{name}")
async def signed_note(name: str, ctx: Context) -> str | InputRequiredResult:
    """A note that the user has to sign first."""
    if not ctx.input_responses:
        question = ElicitRequestFormParams(
            message="Sign?",
            requested_schema={"type": "object", "properties": {"signature": {"type": "string"}}},
        )
        return InputRequiredResult(input_requests={"sign": ElicitRequest(params=question)}, request_state="unsigned")
    return f"{name}, signed by {ctx.input_responses['sign'].content['signature']}, was {ctx.request_state}"


# Prompts.


@server.prompt(title="Greeting")
def greet(name: str, style: str = "plain") -> str:
    """Asks for a greeting."""
    return f"Greet {name} in a {style} style."


@server.prompt()
def hello() -> str:
    """Says hello."""
    return "Hello!"


@server.completion()
async def complete(ref, argument, context):
    if argument.name == "number":
        return Completion(values=[str(n) for n in range(1, 4)])
    known = (context.arguments or {}).get("name", "") if context else ""
    values = [style for style in ("plain", "pirate", "formal") if style.startswith(argument.value)]
    return Completion(values=[f"{value} {known}".strip() for value in values], total=3, has_more=False)


def serve_http() -> None:
    sock = loopback.listen()
    app = server.streamable_http_app()
    print(f"listening on http://127.0.0.1:{sock.getsockname()[1]}/mcp", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        serve_http()
    else:
        server.run()
