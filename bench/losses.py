"""The loss of an engine worker: the time until its clients' new connections work again, and the
effect on the other clients.

Each client has a target of its own. The worker with the most targets is killed, while some clients
connect again and again, and each of these also holds a connection.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from bench.arguments import Arguments
from bench.figures import keep, show
from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.nodes import PASSWORD, USER
from egressd_lab.spec import OWN_NAMESPACE, LabSpec
from tests.support.crowd import ECHO, make_room
from tests.support.netns import JoinedNamespace

TARGETS: Final = (200, 1_000)
ROUNDS: Final = 3
SECONDS: Final = 16.0
PROBED: Final = 50
"""Clients that connect, spread evenly over all."""
_BEGUN_S: Final = 3.0
"""Seconds for which the clients connect before the worker is killed."""
_PAUSE_S: Final = 0.25
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 5.0


class Try(NamedTuple):
    """One attempt to connect: the seconds when it began and when its outcome was known."""

    begun: float
    ended: float
    is_through: bool


class Story(NamedTuple):
    """The experience of one client."""

    tries: tuple[Try, ...]
    slowest_s: float
    """Seconds of the longest exchange on the held connection."""
    is_cut: bool
    """True if the held connection ended."""


def knock(sources: Sequence[str], seconds: float) -> list[Story]:
    """Make each source connect, and hold a connection, for `seconds`. Runs in the sources'
    namespace.
    """

    async def connect(source: str) -> tuple[Try, ...]:
        tries = []
        while (begun := time.monotonic()) < until:
            is_through = False
            with suppress(OSError):  # TimeoutError is an OSError
                async with asyncio.timeout(_CONNECT_S):
                    reader, writer = await asyncio.open_connection(*ECHO, local_addr=(source, 0))
                    is_through = bool(await reader.readline())
                    writer.close()
            tries.append(Try(begun, time.monotonic(), is_through))
            await asyncio.sleep(_PAUSE_S)
        return tuple(tries)

    async def hold(source: str) -> tuple[float, bool]:
        slowest = 0.0
        try:
            reader, writer = await asyncio.open_connection(*ECHO, local_addr=(source, 0))
            await reader.readline()
            while (begun := time.monotonic()) < until:
                writer.write(b"x\n")
                async with asyncio.timeout(_ANSWER_S):
                    if await reader.readline() != b"x\n":
                        return slowest, True
                slowest = max(slowest, time.monotonic() - begun)
                await asyncio.sleep(_PAUSE_S)
            writer.close()
        except OSError:
            return slowest, True
        return slowest, False

    async def both(source: str) -> Story:
        tries, held = await asyncio.gather(connect(source), hold(source))
        return Story(tries, *held)

    async def every() -> list[Story]:
        return await asyncio.gather(*map(both, sources))

    until = time.monotonic() + seconds
    return asyncio.run(every())


def largest_worker(lab: Lab) -> int:
    """Return the worker with the most open files, which is the one with the most targets."""
    pids = lab.device.pids("egressd.netd.engine.worker")
    return max(pids, key=lambda pid: len([*Path(f"/proc/{pid}/fd").iterdir()]))


def back_after(story: Story, killed: float) -> float:
    """Return the seconds from the loss to the first connection after the last that failed."""
    failed = max((each.begun for each in story.tries if not each.is_through), default=killed)
    through = (t.ended for t in story.tries if t.is_through and t.begun > max(failed, killed))
    return next(through, killed + SECONDS) - killed


def lose(lab: Lab, clients: Sequence[str]) -> dict[str, float]:
    """Kill the worker with the most targets, and return the figures of this loss."""
    with JoinedNamespace(netns.namespace(lab.name, "crowd")) as crowd:
        running = crowd.start(knock, clients, SECONDS)
        time.sleep(_BEGUN_S)
        killed = time.monotonic()
        os.kill(largest_worker(lab), signal.SIGKILL)
        stories = running.result(SECONDS * 4)
    own = [story for story in stories if story.is_cut]
    others = [story for story in stories if not story.is_cut]
    assert own, "the worker had none of the clients"
    assert others, "the worker had all of the clients"
    back = sorted(back_after(story, killed) for story in own)
    return {
        "clients": len(own),
        "back p50 (s)": back[len(back) // 2],
        "back max (s)": back[-1],
        "others": len(others),
        "others failed": sum(not each.is_through for story in others for each in story.tries),
        "others slowest (s)": max(
            *(story.slowest_s for story in others),
            *(t.ended - t.begun for story in others for t in story.tries),
        ),
    }


def measure(targets: int) -> dict[str, float]:
    """Return the worst figures of some losses with `targets` targets in use."""
    with Lab(LabSpec(nodes=(), clients=OWN_NAMESPACE + targets)) as lab:
        lab.start_egressd()
        clients = [place.address for place in lab.clients[OWN_NAMESPACE:]]
        users = [{"username": USER, "password": PASSWORD}]
        inbound = {"type": "socks", "listen_port": 1080, "users": users}
        exits = lab.add_engine_node("many", [inbound] * targets)
        nodes = "\n".join(
            f"name: n{number}, type: socks5, server: {address}, port: 1080,"
            f" username: {USER}, password: {PASSWORD}, udp: true"
            for number, address in enumerate(exits)
        )
        lab.api.post("/nodes/import", {"type": "others", "text": nodes})
        rules = "\n".join(f"{client},n{number}," for number, client in enumerate(clients))
        lab.api.post("/rules/import", {"text": rules, "replace": True})
        rounds = [lose(lab, clients[:: max(targets // PROBED, 1)]) for _ in range(ROUNDS)]
    return {name: max(each[name] for each in rounds) for name in rounds[0]}


def main() -> None:
    """Measure with 200 and 1,000 targets."""
    given = Arguments("losses", __doc__).read()
    make_room()
    rows = {f"{targets:,} targets": measure(targets) for targets in TARGETS}
    show("a lost engine worker (the worst of three)", rows)
    keep("losses", rows, given.json)


if __name__ == "__main__":
    main()
