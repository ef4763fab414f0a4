"""Ways of errands: what they connect to, and what they refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from egressd.netd.engine.fetch import FetchFailure, Proxy, socks_connect
from egressd.netd.engine.protocol import ProbeDocument, Way
from tests.support.engine import MARK, document, opened
from tests.support.netns import Namespace

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

PORT: Final = 8787
OUTSIDE: Final = "198.51.100.7"
NAMES: Final = {
    "outside.test": OUTSIDE,
    "loopback.test": "127.0.0.1",
    "private.test": "10.9.8.7",
    "loopback6.test": "::1",
    "mapped.test": "::ffff:127.0.0.1",
    "global6.test": "2001:db8::7",
    "both.test": [OUTSIDE, "::1"],
}


async def reached(way: Way, name: str) -> bool:
    """Return whether a name is connected to by a way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
    try:
        await socks_connect(reader, writer, Proxy(way.port, way.user, way.password), name, PORT)
    except (FetchFailure, OSError, asyncio.IncompleteReadError):
        return False
    finally:
        writer.transport.abort()
    return True


async def test_no_name_leads_a_way_to_this_machine(run_dir: Path, namespace: Namespace) -> None:
    for address in (f"{OUTSIDE}/32", "10.9.8.7/32", "2001:db8::7/128"):
        namespace.shell(f"ip address add {address} dev lo")
    config = document(
        {"type": "direct", "routing_mark": MARK},
        dns={"servers": [{"type": "hosts", "tag": "h", "predefined": NAMES}]},
        route={"final": "node", "default_domain_resolver": "h"},
    )
    seen: list[str] = []

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer.get_extra_info("sockname")[0])
        writer.close()

    servers = [await asyncio.start_server(note, host, PORT) for host in ("0.0.0.0", "::")]
    try:
        async with (
            opened(run_dir) as pool,
            pool.ways([ProbeDocument(name="it", config=config)]) as ways,
        ):
            (way,) = ways.ways
            found = [name for name in NAMES if await reached(way, name)]
    finally:
        for server in servers:
            server.close()
    assert found == ["outside.test", "both.test"]
    assert {*seen} == {OUTSIDE}
