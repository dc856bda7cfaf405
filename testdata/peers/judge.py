"""Says what the official Python SDK's models of the protocol make of recorded messages.

Run: venv-modern/bin/python judge.py <messages

Each line on stdin is one JSON object: revision, sender ("client" or "server"), and message, which is what was sent. For
each, one line goes to stdout: "valid", or "refused: " and the reason. Messages of one revision are one conversation: what a
result has to be depends on the request with its id.

The models take no notice of members that they do not know, and take null for absent. Neither is in the protocol, so a
message must come out of its model with every member that it went in with.

SPDX-License-Identifier: 0BSD
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

from mcp_types import methods
from mcp_types.jsonrpc import JSONRPCError, JSONRPCResponse
from pydantic import TypeAdapter, ValidationError

asked: dict[tuple[str, str, str], str] = {}  # the method of each request, by revision, sender and id as JSON

OTHER = {"client": "server", "server": "client"}
REQUESTS = {"client": methods.CLIENT_REQUESTS, "server": methods.SERVER_REQUESTS}
NOTIFICATIONS = {"client": methods.CLIENT_NOTIFICATIONS, "server": methods.SERVER_NOTIFICATIONS}
RESULTS = {"client": methods.CLIENT_RESULTS, "server": methods.SERVER_RESULTS}


def lost(sent: Any, kept: Any, where: str) -> Iterator[str]:
    """The members that are in sent but not in kept."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            if name not in kept:
                yield f"{where}.{name}"
            else:
                yield from lost(value, kept[name], f"{where}.{name}")
    elif isinstance(sent, list) and isinstance(kept, list):
        for i, (one, other) in enumerate(zip(sent, kept)):
            yield from lost(one, other, f"{where}[{i}]")


def check(model: Any, value: Any, where: str) -> None:
    adapter = TypeAdapter(model)
    parsed = adapter.validate_python(value, by_name=False)
    kept = adapter.dump_python(parsed, mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    if names := list(lost(value, kept, where)):
        raise ValueError("not in the protocol, or null: " + ", ".join(names))


def unknown(revision: str, method: str) -> bool:
    """Whether this SDK has left a method out: it never had the tasks of 2025-11-25. judge.mjs has them."""
    return revision == "2025-11-25" and method.startswith("tasks/")


def judge(revision: str, sender: str, message: dict[str, Any]) -> None:
    if "method" in message:
        table = REQUESTS if "id" in message else NOTIFICATIONS
        method = message["method"]
        if "id" in message:
            asked[revision, sender, json.dumps(message["id"])] = method
        if unknown(revision, method):
            return
        if (method, revision) not in table[sender]:
            raise ValueError(f"a {sender} of {revision} sends no {method}")
        check(table[sender][method, revision], message, "message")
        return
    method = asked.pop((revision, OTHER[sender], json.dumps(message.get("id"))), None)
    if method is None:
        raise ValueError("it answers no request")
    if "error" in message:
        check(JSONRPCError, message, "message")
        return
    check(JSONRPCResponse, message, "message")
    if unknown(revision, method):
        return
    check(RESULTS[sender][method, revision], message["result"], "result")


for line in sys.stdin:
    record = json.loads(line)
    try:
        judge(record["revision"], record["sender"], record["message"])
    except ValidationError as e:
        print("refused:", "; ".join(f"{'.'.join(map(str, error['loc']))}: {error['msg']}" for error in e.errors()))
    except ValueError as e:
        print("refused:", e)
    else:
        print("valid")
