"""The demands on a line to a server of another make."""

from __future__ import annotations

import asyncio
import time
from ipaddress import IPv4Address, IPv4Network

from egressd.model.nouns import Line
from tests.vm.inside.netns import sh
from tests.vm.inside.probes import Client
from tests.vm.inside.suite import ONLINE_S, Suite


async def serves(suite: Suite, line: Line, pool: str, resolver: str) -> None:
    """Have the line go online beside the others without an effect on them, then remove it.

    Its client is seen with the values that the server hands out: an address of `pool`, and that
    resolver.
    """
    others = suite.bystanders()
    client = suite.clients[line.name] = Client(f"10.77.0.{line.id - 70}")
    client.start()
    dialled = time.monotonic()
    await suite.apply(**{line.name: line})
    status = await suite.until(line.name, lambda status: status.is_online, ONLINE_S)
    suite.figures[f"{line.name} online"] = time.monotonic() - dialled
    await client.answered(10)
    since = time.monotonic()
    await asyncio.sleep(2)
    assert client.seen_since(since) == {status.ip}, status
    assert IPv4Address(status.ip) in IPv4Network(pool), status
    assert (await suite.ask("status"))["resolvers"][line.name] == [resolver]
    suite.figures[f"longest silence beside {line.name}"] = others.check()
    await suite.apply(**{line.name: None})
    suite.clients.pop(line.name).close()


def wait(command: str, timeout_s: float = 60) -> None:
    """Wait until `command` has output."""
    deadline = time.monotonic() + timeout_s
    while not sh(command):
        assert time.monotonic() < deadline, f"{command}: nothing after {timeout_s} s"
        time.sleep(0.2)
