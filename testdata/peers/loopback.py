"""What the servers here listen on.

SPDX-License-Identifier: 0BSD
"""

import os
import socket


def listen() -> socket.socket:
    """A socket of this machine alone, at the port PORT or any."""
    # With its protocol named, asyncio sends without delay.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    sock.listen()
    return sock
