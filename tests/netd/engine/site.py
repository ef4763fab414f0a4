"""A web site on loopback with which delays are measured."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

HTTP_PORT = 8080
HTTPS_PORT = 8443
SLOWNESS_S = 0.05
"""Seconds that the site waits before it answers."""


@asynccontextmanager
async def site(certificate: tuple[Path, Path] | None = None) -> AsyncIterator[list[str]]:
    """Serve ``/<status>``; ``/page`` has 26,013 bytes, ``/mute`` never answers, ``/noise`` answers
    something other than HTTP.

    Yields the request lines and Host fields that came. It serves HTTPS too, given a certificate's
    file and its key's.
    """
    requests: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            requests.append(f"{head[0]} {head[1]}")
            what = head[0].split()[1].strip("/")
            await asyncio.sleep(SLOWNESS_S)
            match what:
                case "mute":
                    await reader.read()
                case "page":
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 26013\r\n\r\n")
                    writer.write(b"ip=192.0.2.1\n" + b"0123456789abc" * 2000)
                case "noise":
                    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
                case _:
                    status = what.split("?")[0] or "204"
                    writer.write(f"HTTP/1.1 {status} Word\r\nLocation: /500\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort() if what == "mute" else writer.close()

    servers = [await asyncio.start_server(answer, "127.0.0.1", HTTP_PORT, backlog=1024)]
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        servers.append(
            await asyncio.start_server(
                answer, "127.0.0.1", HTTPS_PORT, ssl=context, ssl_shutdown_timeout=0.5, backlog=1024
            )
        )
    try:
        yield requests
    finally:
        for server in servers:
            server.close()
