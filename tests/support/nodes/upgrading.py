"""HTTP Upgrade in front of nodes' servers: ``python -m tests.support.nodes.upgrading CONFIG``.

The engine's own server for this transport loses the client's first byte when it arrives right after
the upgrade: net/http has read it ahead by then, and the server drops the bytes that ``Hijack``
returns with the connection (sing-box, transport/v2rayhttpupgrade/server.go). So this program
answers the upgrade, and forwards the rest to an inbound without a transport.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

BEHIND = 1
"""The number that is added to a front's port for the server behind it, on the same address."""


@dataclass(frozen=True)
class Front:
    """An address and port that takes upgrades of one path; with TLS if there is a certificate."""

    address: str
    port: int
    path: str
    certificate: str = ""
    key: str = ""

    async def listen(self) -> asyncio.Server:
        """Start to serve, and return the server."""
        context = None
        if self.certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.certificate, self.key)
            context.set_alpn_protocols(["h2", "http/1.1"])
        return await asyncio.start_server(self._serve, self.address, self.port, ssl=context)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The front's end cancels this. asyncio's server would report it as an unexpected end.
        with suppress(OSError, EOFError, asyncio.CancelledError), closing(writer):
            if await self._upgrade(reader, writer):
                behind = await asyncio.open_connection(self.address, self.port + BEHIND)
                await asyncio.gather(_pass(reader, behind[1]), _pass(behind[0], writer))

    async def _upgrade(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the request for an upgrade. True if it was one. A client that accepts HTTP/2 is
        disconnected, since an upgrade does not begin with it.
        """
        tls: ssl.SSLObject | None = writer.get_extra_info("ssl_object")
        if tls and tls.selected_alpn_protocol() == "h2":
            return False
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        if line != f"get {self.path} http/1.1" or "upgrade: websocket" not in fields:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return False
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        return True


async def _pass(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Forward data until it ends, then close the target."""
    with suppress(OSError), closing(target):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()


def command(fronts: Sequence[Front], config: Path) -> list[str]:
    """Return the command that serves them, and write its `config` file."""
    config.write_text(json.dumps([asdict(front) for front in fronts]))
    return [sys.executable, "-m", __name__, str(config)]


async def _main(config: Path) -> None:
    fronts = [await Front(**front).listen() for front in json.loads(config.read_text())]
    await asyncio.gather(*(front.serve_forever() for front in fronts))


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
