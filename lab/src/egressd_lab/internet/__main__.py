"""Start the servers that a configuration names, and answer queries about their clients."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from egressd_lab import spec, wire
from egressd_lab.internet.config import Config
from egressd_lab.internet.echo import TcpEcho, UdpEcho, discard
from egressd_lab.internet.register import Register
from egressd_lab.internet.resolver import Resolver, Zone
from egressd_lab.internet.web import Web


async def serve(config: Config) -> None:
    """Serve until the process is ended. The control socket appears when all servers are up."""
    register = Register()
    zone = Zone(config.zone)
    web = Web(register)
    tcp_echo = TcpEcho(register)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(config.certificate, config.key)
    for host in ("0.0.0.0", "::"):  # noqa: S104 - every address of a namespace of our own
        for port in spec.HTTP_PORTS:
            await web.listen(host, port)
        for port in spec.HTTPS_PORTS:
            await web.listen(host, port, context)
        for port in spec.TCP_ECHO_PORTS:
            await tcp_echo.listen(host, port)
    for host in config.servers:
        for port in spec.UDP_ECHO_PORTS:
            await UdpEcho(register, host, port).listen()
    sinks = [discard(host, spec.DISCARD_PORT) for host in config.servers]
    for host in (*config.resolvers, *(h for h in config.servers if ":" in h)):
        await Resolver(register, zone, host).listen()
    table: dict[str, Callable[..., Any]] = {
        "mark": register.mark,
        "seen": register.since,
        "put_name": zone.put,
        "put_page": web.put_page,
    }
    control = await asyncio.start_unix_server(
        lambda reader, writer: answer(reader, writer, table), config.control
    )
    try:
        await control.serve_forever()
    finally:
        for sink in sinks:
            sink.close()


async def answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    table: dict[str, Callable[..., Any]],
) -> None:
    """Answer one caller of the control socket (see `egressd_lab.wire`)."""
    try:
        while True:
            size = wire.LENGTH.unpack(await reader.readexactly(wire.LENGTH.size))[0]
            operation, arguments = msgspec.msgpack.decode(await reader.readexactly(size))
            body = msgspec.msgpack.encode(["", table[operation](**arguments)])
            writer.write(wire.LENGTH.pack(len(body)) + body)
            await writer.drain()
    except (OSError, EOFError):
        pass  # the caller is done
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(serve(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Config)))
