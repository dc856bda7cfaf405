"""A small MCP server in the shape of Library RAG, made with the official Python SDK (FastMCP).

Library RAG searches a library of philosophy for passages that fit a question, and takes PDF files into it. This server
has the same two tools with the same arguments and the same forms of answer, but its library is the handful of passages
below and its parse_pdf only takes the time that the real one needs. A third tool, environment, says which variables
reached this process.

Run: venv/bin/python library_rag.py    (MCP on stdin and stdout, one JSON object per log line on stderr)
     venv/bin/python library_rag.py http [stateless] [json]
         (MCP at the address it says on stderr, the port being PORT or any; without sessions; answers as JSON, not as SSE)

LIBRARY_RAG_SECONDS is the time that parse_pdf takes, 2 by default.

SPDX-License-Identifier: 0BSD
"""

import json
import logging
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.fastmcp import Context, FastMCP

PARSE_SECONDS = float(os.environ.get("LIBRARY_RAG_SECONDS", "2"))
PARSE_STEPS = ["OCR", "metadata", "table of contents", "chunks", "ingestion"]

PEIRCE, SCOTUS, OCKHAM, ABELARD = "Charles Sanders Peirce", "John Duns Scotus", "William of Ockham", "Pierre Abélard"

# Author, work, and a summary of what that author holds there, written for this file. None of it is a quotation.
PASSAGES = [
    (PEIRCE, "Review of Fraser's Works of Berkeley",
     "Peirce puts the dispute between nominalism and realism as a question about the real: is it only the cause of our"
     " sensations, or that on which inquiry would agree in the end? The realism he defends takes the second side, and so"
     " can count general things among the real ones."),
    (PEIRCE, "How to Make Our Ideas Clear",
     "Peirce holds that what a concept means is exhausted by the practical effects that its object could have. The real"
     " is what an investigation carried far enough would settle on, whatever any one person thinks of it."),
    (PEIRCE, "Harvard Lectures on Pragmatism",
     "Peirce holds up a stone and predicts that it will fall. That everyone trusts the prediction shows, he argues, that a"
     " general law is at work in nature and not merely in our words: nominalism cannot say why predictions come true."),
    (PEIRCE, "Issues of Pragmaticism",
     "Peirce takes back a concession to nominalism that he had made earlier. A diamond that nobody ever pressed was hard"
     " all the same, because possibilities are real: it would have resisted."),
    (SCOTUS, "Ordinatio",
     "Scotus teaches a moderate realism: a common nature belongs to many things, is neither universal nor singular of"
     " itself, and is made this one thing by an individual difference."),
    (OCKHAM, "Summa Logicae",
     "Ockham, the classical source of nominalism, holds that whatever exists outside the mind is singular. A universal is"
     " a sign, a term of thought that stands for many things at once."),
    (ABELARD, "Logica Ingredientibus",
     "Abélard answers realism that no thing is said of many, only words are. What makes a common name fit is the state"
     " that things share, such as being a man, and a state is not a thing."),
]


class JSONLines(logging.Formatter):
    """Formats each record as one JSON object on one line, as Library RAG logs."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps({
            "timestamp": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        })


# Before FastMCP is made: it leaves the logging alone where a handler is set.
handler = logging.StreamHandler()
handler.setFormatter(JSONLines())
logging.basicConfig(level=logging.INFO, handlers=[handler])
log = logging.getLogger("library_rag")

mcp = FastMCP("library-rag")


def words(text: str) -> set[str]:
    """The words of text that are long enough to mean something."""
    return set(re.findall(r"\w{5,}", text.lower()))


@mcp.tool()
def search_chunks(
    query: str,
    limit: int = 10,
    min_similarity: float = 0.0,
    author_filter: str | None = None,
    work_filter: str | None = None,
) -> dict[str, Any]:
    """Search the library for passages that fit a question, best first.

    Args:
        query: What to look for, in plain words.
        limit: The most results to return, 1 to 500.
        min_similarity: Leave out passages less similar than this, 0 to 1.
        author_filter: Only passages of this author.
        work_filter: Only passages of this work.
    """
    if not 1 <= limit <= 500:
        raise ValueError(f"limit must be from 1 to 500, not {limit}")
    wanted = words(query)
    results = []
    for author, work, text in PASSAGES:
        if author_filter not in (None, author) or work_filter not in (None, work):
            continue
        # The share of the question's words that the passage has.
        similarity = round(len(wanted & words(text)) / max(len(wanted), 1), 3)
        if similarity > 0 and similarity >= min_similarity:
            results.append({"text": text, "similarity": similarity, "author": author, "work": work})
    results.sort(key=lambda result: -result["similarity"])
    results = results[:limit]
    return {"results": results, "total_count": len(results), "query": query}


@mcp.tool()
async def parse_pdf(pdf_path: str, ctx: Context) -> dict[str, Any]:
    """Take a PDF file into the library. This takes time, and progress is reported.

    Args:
        pdf_path: Where the file is on the server's machine.
    """
    path = Path(pdf_path)
    if path.suffix.lower() != ".pdf":
        return {"success": False, "error": f"not a PDF file: {pdf_path}"}
    if not path.is_file():
        return {"success": False, "error": f"file not found: {pdf_path}"}
    log.info("parse_pdf started: %s", path.name)
    try:
        for done, step in enumerate(PARSE_STEPS):
            await ctx.report_progress(done, len(PARSE_STEPS), step)
            await anyio.sleep(PARSE_SECONDS / len(PARSE_STEPS))
        await ctx.report_progress(len(PARSE_STEPS), len(PARSE_STEPS), "done")
    except anyio.get_cancelled_exc_class():
        log.warning("parse_pdf cancelled: %s", path.name)
        raise
    log.info("parse_pdf finished: %s", path.name)
    return {"success": True, "document_name": path.stem, "steps": len(PARSE_STEPS), "error": None}


@mcp.tool()
def environment() -> dict[str, list[str]]:
    """The names of the environment variables that this server sees, without their values."""
    return {"names": sorted(os.environ)}


def serve_http(stateless: bool, json_response: bool) -> None:
    mcp.settings.stateless_http = stateless
    mcp.settings.json_response = json_response
    # With its protocol named, asyncio sends without delay.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    sock.listen()
    app = mcp.streamable_http_app()
    log.info("listening on http://127.0.0.1:%d/mcp", sock.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="warning")).run(sockets=[sock])


if __name__ == "__main__":
    if "http" in sys.argv:
        serve_http("stateless" in sys.argv, "json" in sys.argv)
    else:
        mcp.run()
