"""Many clients of one namespace that act at the same time.

Functions that take `sources` run in the clients' namespace; they connect to the lab's echo server.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from egressd.netd.kernel import sysctl
from egressd.planner import sysctls
from egressd_lab.spec import WEB_SERVERS

ECHO: Final = (WEB_SERVERS[0], 7)

Seen = dict[str, str]
"""A client's address -> the address that the server saw."""


class Held(NamedTuple):
    """The result of a connection."""

    seen: str
    """The client's address as the server sees it; empty if the server never named it."""
    has_lasted: bool


def make_room() -> None:
    """Raise the machine's limits, as netd does outside of a namespace.

    All namespaces share them: by default the kernel knows 1,024 neighbours.
    """
    sysctl.make_room(sysctls.room(os.sysconf("SC_PHYS_PAGES")))


def hold(sources: Sequence[str], lasts_s: float, *, period_s: float, answer_s: float) -> list[Held]:
    """Hold a connection for each source, all at once. The server must echo a line every `period_s`,
    within `answer_s`.
    """
    until = time.monotonic() + lasts_s
    return _hold(sources, lambda: time.monotonic() < until, period_s=period_s, answer_s=answer_s)


def hold_until_told(
    sources: Sequence[str], folder: Path, *, period_s: float, answer_s: float
) -> list[Held]:
    """Hold connections as `hold` does, until the file ``end`` is in `folder`; make the file
    ``begun`` there when the server has greeted all of them.
    """

    def has_begun() -> None:
        (folder / "begun").touch()

    return _hold(
        sources,
        lambda: not (folder / "end").exists(),
        has_begun,
        period_s=period_s,
        answer_s=answer_s,
    )


def _hold(
    sources: Sequence[str],
    goes_on: Callable[[], bool],
    has_begun: Callable[[], None] = lambda: None,
    *,
    period_s: float,
    answer_s: float,
) -> list[Held]:
    greeted = 0

    async def one(source: str) -> Held:
        nonlocal greeted
        seen = ""
        try:
            reader, writer = await connected(source, answer_s)
            try:
                seen = await greeting(reader, answer_s)
                greeted += 1
                if greeted == len(sources):
                    has_begun()
                is_last = False
                while not is_last:
                    is_last = not goes_on()  # before the exchange that would notice its end
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

    async def all_of_them() -> list[Held]:
        return await asyncio.gather(*map(one, sources))

    return asyncio.run(all_of_them())


async def connected(
    source: str, answer_s: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection to the echo server. Raises OSError."""
    async with asyncio.timeout(answer_s):
        return await asyncio.open_connection(*ECHO, local_addr=(source, 0))


async def greeting(reader: asyncio.StreamReader, answer_s: float) -> str:
    """Return the address that the server sees, or an empty text if it sends nothing."""
    async with asyncio.timeout(answer_s):
        line = await reader.readline()
    return str(json.loads(line)["ip"]) if line else ""


async def seen_by_tcp(sources: Sequence[str], answer_s: float) -> Seen:
    """Connect from all sources at once, and return the addresses that the server saw."""

    async def one(source: str) -> str:
        reader, writer = await connected(source, answer_s)
        try:
            return await greeting(reader, answer_s)
        finally:
            writer.close()

    return dict(zip(sources, await asyncio.gather(*map(one, sources)), strict=True))
