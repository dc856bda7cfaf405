"""Logs in at a protected MCP server with FastMCP's own client, and calls its tool list_notes.

It is the judge beside this program: a login that fails here and not there is a fault of this program. All of OAuth is
FastMCP's client: discovery, registration, PKCE, the listener for the code, the token request. Written here is the person
with the browser, who fills in each form, agrees, and never looks.

Run: venv-fastmcp/bin/python authorization/judge_login.py URL    (prints what the tool says; exit status 0 only then)

SPDX-License-Identifier: 0BSD
"""

import asyncio
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx2
from fastmcp import Client
from fastmcp.client.auth import OAuth
from key_value.aio.stores.memory import MemoryStore

refusals = ("deny", "cancel", "abort", "reject", "decline")


class Forms(HTMLParser):
    """The forms of a page, filled in."""

    def __init__(self, page: str):
        super().__init__()
        self.forms = []  # of action, method, fields and buttons
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "form":
            action, method = given.get("action") or "", given.get("method") or "get"
            self.forms.append({"action": action, "method": method, "fields": {}, "buttons": []})
        if not self.forms or not given.get("name"):
            return
        name, value, kind = given["name"], given.get("value") or "", given.get("type") or ""
        if tag == "button" or (tag == "input" and kind == "submit"):
            self.forms[-1]["buttons"].append((name, value))
        elif tag == "input":
            self.forms[-1]["fields"][name] = value or ("" if kind == "hidden" else "heron")

    def first(self) -> dict | None:
        """Returns the first form, with the first button that does not refuse."""
        if not self.forms:
            return None
        form = self.forms[0]
        for name, value in form["buttons"]:
            if not any(word in f"{name} {value}".lower() for word in refusals):
                form["fields"][name] = value
                break
        return form


class Person(OAuth):
    """FastMCP's OAuth client, whose browser is played here."""

    browser = None  # the task that plays it

    async def redirect_handler(self, authorization_url: str) -> None:
        self.browser = asyncio.create_task(self.browse(authorization_url))

    async def callback_handler(self):
        coming = asyncio.create_task(super().callback_handler())
        try:
            await asyncio.wait([coming, self.browser], return_when=asyncio.FIRST_COMPLETED)
            if self.browser.done():
                self.browser.result()  # raises what went wrong there
            return await coming
        finally:
            coming.cancel()
            self.browser.cancel()

    async def browse(self, address: str) -> None:
        """Follows redirects and sends forms until the code is at FastMCP's listener."""
        async with httpx2.AsyncClient(timeout=20) as http:
            answer = await http.get(address)
            for _ in range(30):
                here = str(answer.url)
                if answer.is_redirect:
                    there = urljoin(here, answer.headers["location"])
                    if there.startswith(str(self.context.client_metadata.redirect_uris[0])):
                        return await deliver(http, there)
                    answer = await http.get(there)
                    continue
                form = Forms(answer.text).first()
                if form is None or not answer.is_success:
                    raise RuntimeError(f"no form: {answer.status_code}: {answer.text[:500]}")
                to = urljoin(here, form["action"])
                if form["method"].lower() == "post":
                    kind = {"content-type": "application/x-www-form-urlencoded"}  # of a form without fields, too
                    answer = await http.post(to, data=form["fields"], headers=kind)
                else:
                    answer = await http.get(to, params=form["fields"])
            raise RuntimeError("the forms do not end: user or password may be wrong")


async def deliver(http: httpx2.AsyncClient, address: str) -> None:
    """Brings the code to FastMCP's listener, which may not have started yet."""
    for _ in range(100):
        try:
            await http.get(address)
            return
        except httpx2.ConnectError:
            await asyncio.sleep(0.1)
    raise RuntimeError("FastMCP does not listen")


async def main() -> None:
    # The listener is at an address, not at localhost, which may have two. The memory is this process's.
    person = Person(callback_host="127.0.0.1", callback_timeout=30, token_storage=MemoryStore(), client_name="judge")
    async with asyncio.timeout(60), Client(sys.argv[1], auth=person, timeout=30) as client:
        result = await client.call_tool("list_notes")
        if person.browser is None:
            sys.exit("the server asked for no login")
        print("\n".join(block.text for block in result.content))


asyncio.run(main())
