"""Many clients of one namespace, and what they do at once.

Functions that take `sources` run in the clients' namespace; they speak to the lab's echo server.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from egressd.lab.spec import WEB_SERVERS
from egressd.netd.kernel import sysctl
from egressd.planner import sysctls

ECHO: Final = (WEB_SERVERS[0], 7)


class Held(NamedTuple):
    """What became of a connection."""

    seen: str
    """The client's address as the server sees it; empty if it never said."""
    has_lasted: bool


def make_room() -> None:
    """Raise the machine's limits, as netd does where it is not in a namespace.

    All namespaces share them: by default the kernel knows 1,024 neighbours.
    """
    sysctl.make_room(sysctls.room(os.sysconf("SC_PHYS_PAGES")))


def hold(sources: Sequence[str], lasts_s: float, *, period_s: float, answer_s: float) -> list[Held]:
    """A connection for each source, all at once: a line is given back every `period_s`, within
    `answer_s`.
    """

    async def one(source: str) -> Held:
        seen = ""
        try:
            reader, writer = await connected(source, answer_s)
            try:
                seen = await greeting(reader, answer_s)
                while time.monotonic() < until:
                    writer.write(b"still there\n")
                    async with asyncio.timeout(answer_s):
                        if await reader.readline() != b"still there\n":
                            return Held(seen, has_lasted=False)
                    await asyncio.sleep(period_s)
            finally:
                writer.close()
        except OSError:
            return Held(seen, has_lasted=False)
        return Held(seen, has_lasted=True)

    async def everybody() -> list[Held]:
        return await asyncio.gather(*map(one, sources))

    until = time.monotonic() + lasts_s
    return asyncio.run(everybody())


async def connected(
    source: str, answer_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the echo server. Raises OSError."""
    async with asyncio.timeout(answer_s):
        return await asyncio.open_connection(*ECHO, local_addr=(source, 0))


async def greeting(reader: asyncio.StreamReader, answer_s: float) -> str:
    """Whom the server says it sees, empty if it says nothing."""
    async with asyncio.timeout(answer_s):
        line = await reader.readline()
    return str(json.loads(line)["ip"]) if line else ""
