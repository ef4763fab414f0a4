"""Requests for a client's connections: one walk of the kernel's table at a time, and few."""

from __future__ import annotations

import asyncio
import time
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest

from egressd.model.errors import Failed
from egressd.netd.kernel import client_flows
from egressd.netd.kernel.client_flows import EndedFlows, FoundFlows
from egressd.netd.reconciler.client_connections import ClientConnections
from egressd.planner.topology import Topology

TOPOLOGY = Topology(
    lan_networks=(("lan0", IPv4Network("10.1.0.0/16")),),
    local_networks=(("wg0", IPv4Network("10.9.0.0/24")),),
    router_addresses=(IPv4Address("10.1.0.1"),),
)


class Kernel:
    """Walks that take a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, walk_s: float = 0.05) -> None:
        self.walks: list[tuple[float, str, bool]] = []
        self.at_once = 0
        self.walk_s = walk_s
        self.connections = ClientConnections(
            lambda: TOPOLOGY, lambda ip: ip == "10.1.0.9", lambda _: True
        )
        monkeypatch.setattr(client_flows, "listed", self.listed)
        monkeypatch.setattr(client_flows, "close", self.close)

    def listed(self, client: str, lans: Any, most: int, *, is_counted: bool) -> FoundFlows:
        assert IPv4Address("10.9.0.7").packed in lans
        assert most == 200
        self.walks.append((time.monotonic(), client, is_counted))
        self.at_once += 1
        assert self.at_once == 1
        time.sleep(self.walk_s)
        self.at_once -= 1
        return FoundFlows(len(self.walks), [])

    def close(self, client: str, *_: Any, wanted: int | None, **__: Any) -> EndedFlows:
        if wanted == 0:
            raise OSError(1, "refused")
        return EndedFlows(1, 2)


async def test_walks_take_turns_with_a_rest_between(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    await asyncio.gather(*(kernel.connections.list(f"10.1.0.{n}") for n in (8, 9)))
    (first, _, counted), (second, _, carried) = kernel.walks
    assert second - first >= 4 * kernel.walk_s
    assert counted
    assert not carried, "the fast path carries it"


async def test_an_answer_is_kept_until_something_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    for _ in range(3):
        assert (await kernel.connections.list("10.1.0.8")).total == 1
    ended = await kernel.connections.close_some("10.1.0.8", 7)
    assert (ended.closed, ended.left) == (1, 2)
    assert (await kernel.connections.list("10.1.0.8")).total == 2
    with pytest.raises(Failed, match="refused"):
        await kernel.connections.close_some("10.1.0.8", 0)


async def test_the_routers_own_address_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    assert (await kernel.connections.list("10.1.0.1")).total == 0
    assert (await kernel.connections.close_some("10.1.0.1", None)).closed == 0
    assert kernel.walks == []
