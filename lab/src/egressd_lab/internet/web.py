"""The web server: reports each client's address, and sends or takes any amount of bytes.

| request | answer |
|---|---|
| any path | 200, JSON with the ``ip`` and ``port`` that were seen, ``server``, ``host``, ``path`` |
| ``/generate_204`` | 204 |
| ``/bytes/N`` | N bytes of `egressd_lab.pattern` |
| ``/drip/N`` | N lines of 10 bytes, 20 a second |
| ``/status/N`` | an empty answer with that status |
| ``/page`` | the text of `Web.put_page`, with ``{ip}`` for the client's address |
| POST or PUT, any path | the JSON above, with ``received`` and ``intact`` (it was the pattern) |

Every answer has an ``X-Seen`` header with the client's address.
"""

from __future__ import annotations

import asyncio
import http
import json
import os
import ssl
from typing import Any, Final

from egressd_lab.internet.register import Register
from egressd_lab.pattern import PATTERN, piece, pieces

HEAD_MAX: Final = 64 * 1024
DRIP_SECONDS: Final = 0.05
_BODY_COPIES: Final = 64


class Web:
    """The parts of HTTP/1.1 that probes, browsers' tests and load generators need."""

    def __init__(self, register: Register) -> None:
        self._register = register
        # A file in memory lets the kernel send a body without a copy in Python.
        self._body = os.fdopen(os.memfd_create("body"), "r+b")
        for _ in range(_BODY_COPIES):
            self._body.write(PATTERN)
        self._body.flush()
        self._page = "ip={ip}\n"
        self._has_end = True

    def put_page(self, text: str, has_end: bool) -> None:
        """Set the text of ``/page``. Without an end, its length is not said, and it stays open."""
        self._page, self._has_end = text, has_end

    async def listen(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        """Serve on an address and port, with TLS if there is a `context`."""
        await asyncio.start_server(
            self._serve, host, port, ssl=context, limit=HEAD_MAX, backlog=4096
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one_request(reader, writer):
                pass
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError):
            pass  # the client went away, or does not use HTTP
        finally:
            writer.close()

    async def _one_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request. Return True if another may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip("\r\n").split("\r\n")
        method, target, version = line.split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (field.partition(":") for field in fields)
        }
        is_tls = writer.get_extra_info("sslcontext") is not None
        server = writer.get_extra_info("sockname")
        peer = writer.get_extra_info("peername")
        host = headers.get("host", "")
        self._register.note(
            "https" if is_tls else "http", server, peer, f"{method} {host} {target}"
        )
        told = {
            "ip": peer[0],
            "port": peer[1],
            "server": server[0],
            "host": host,
            "path": target,
            "method": method,
        }
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if size := int(headers.get("content-length", "0")):
            told |= {"received": size, "intact": await _take(reader, size)}
        keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        await self._answer(writer, told, keep)
        return keep

    async def _answer(self, writer: asyncio.StreamWriter, told: dict[str, Any], keep: bool) -> None:
        match told["path"].partition("?")[0].strip("/").split("/"):
            case ["generate_204"]:
                _head(writer, told, 204, keep, 0)
            case ["bytes", count] if count.isdigit():
                _head(writer, told, 200, keep, int(count))
                await self._send_body(writer, int(count))
            case ["drip", count] if count.isdigit():
                _head(writer, told, 200, keep, 10 * int(count))
                for n in range(int(count)):
                    writer.write(f"{n:09d}\n".encode())
                    await writer.drain()
                    await asyncio.sleep(DRIP_SECONDS)
            case ["page"]:
                body = self._page.replace("{ip}", told["ip"]).encode()
                _head(writer, told, 200, keep, len(body) if self._has_end else len(body) + 1)
                writer.write(body)
                if not self._has_end:
                    await writer.drain()
                    await asyncio.Event().wait()
            case ["status", code] if code.isdigit():
                _head(writer, told, int(code), keep, 0)
            case _:
                body = json.dumps(told).encode()
                _head(writer, told, 200, keep, len(body))
                if told["method"] != "HEAD":
                    writer.write(body)
        await writer.drain()

    async def _send_body(self, writer: asyncio.StreamWriter, size: int) -> None:
        if writer.get_extra_info("sslcontext") is not None:
            for part in pieces(size):
                writer.write(part)
                await writer.drain()
            return
        await writer.drain()
        loop = asyncio.get_running_loop()
        most = _BODY_COPIES * len(PATTERN)
        for offset in range(0, size, most):
            await loop.sendfile(writer.transport, self._body, 0, min(most, size - offset))


async def _take(reader: asyncio.StreamReader, size: int) -> bool:
    """Read a body. Return True if it was the pattern."""
    received, intact = 0, True
    while received < size:
        chunk = await reader.read(min(len(PATTERN), size - received))
        if not chunk:
            raise EOFError
        intact = intact and chunk == piece(received, len(chunk))
        received += len(chunk)
    return intact


def _head(
    writer: asyncio.StreamWriter, told: dict[str, Any], status: int, keep: bool, size: int
) -> None:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    is_json = not told["path"].startswith(("/bytes/", "/drip/"))
    writer.write(
        f"HTTP/1.1 {status} {phrase}\r\n"
        f"Content-Length: {size}\r\n"
        f"Content-Type: application/{'json' if is_json else 'octet-stream'}\r\n"
        f"X-Seen: {told['ip']}\r\n"
        f"Connection: {'keep-alive' if keep else 'close'}\r\n\r\n".encode("latin-1")
    )
