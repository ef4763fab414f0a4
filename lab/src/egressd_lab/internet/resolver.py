"""The resolvers: one zone, many addresses, and a record of all queries."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from egressd_lab import dnswire
from egressd_lab.internet.register import Register
from egressd_lab.spec import WHOAMI


class Zone:
    """Names and their addresses. ``*.`` at the front matches every name beneath."""

    def __init__(self, names: Mapping[str, tuple[str, ...]]) -> None:
        self._names = dict(names)

    def put(self, name: str, addresses: list[str]) -> None:
        """Set a name's addresses; without any, the name becomes unknown."""
        self._names[name] = tuple(addresses)

    def find(self, name: str, asker: str) -> tuple[str, ...]:
        """Return the addresses of a name: exact entries before wildcards, longer before shorter."""
        if name == WHOAMI or name.endswith(f".{WHOAMI}"):
            return (asker,)
        labels = name.split(".")
        wildcards = (".".join(["*", *labels[n:]]) for n in range(1, len(labels)))
        for entry in (name, *wildcards):
            if entry in self._names:
                return self._names[entry]
        return ()


class Resolver(asyncio.DatagramProtocol):
    """One resolver address, UDP and TCP."""

    def __init__(self, register: Register, zone: Zone, host: str) -> None:
        self._register = register
        self._zone = zone
        self._host = host
        self._transport: Any = None

    async def listen(self) -> None:
        """Serve on port 53."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=(self._host, 53))
        await asyncio.start_server(self._serve, self._host, 53)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio's callback)."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Answer a query (asyncio's callback)."""
        if reply := self._reply("dns", data, addr):
            self._transport.sendto(reply, addr)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(2))
                reply = self._reply("dns-tcp", await reader.readexactly(size), peer)
                writer.write(len(reply).to_bytes(2) + reply)
                await writer.drain()
        except (OSError, EOFError):
            pass  # the client is done
        finally:
            writer.close()

    def _reply(self, service: str, query: bytes, peer: Any) -> bytes:
        try:
            question = dnswire.decode_query(query)
        except ValueError:
            return b""
        asked = f"{question.name} {question.type_name}"
        self._register.note(service, (self._host, 53), peer, asked)
        addresses = self._zone.find(question.name, peer[0])
        rcode = dnswire.NOERROR if addresses else dnswire.NXDOMAIN
        return dnswire.encode_reply(query, question, addresses, rcode)
