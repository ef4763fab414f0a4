"""Failing nodes: the times of their checks, and the reports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest

from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.model.plan import Plan
from egressd.model.wording import Sentence, as_sentence
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.health.node_failures import PATIENCE_MAX_S, PATIENCE_S, PERIOD_S, NodeFailures
from tests.netd.clockless import CLOCKLESS, until
from tests.support.loops import Backend
from tests.support.nodes.instances import node_instance, service_instance

URL = "http://site.test/"


class Network:
    """Nodes 1 to 200, some of which are dead; and a record of the checks."""

    def __init__(self) -> None:
        instances = [*map(node_instance, range(1, 201)), service_instance(1080)]
        self.plan = Plan(delay_url=URL, instances={each.key: each for each in instances})
        self.dead: set[str] = set()
        self.failure: Exception | None = None
        self.takes_s = 0.0
        self.asked: list[tuple[float, tuple[str, ...]]] = []
        self.told: list[dict[str, Sentence]] = []
        self.failures = NodeFailures(self, lambda: self.plan, self._changed)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        assert url == URL
        self.asked.append((self.now, tuple(probe.name for probe in probes)))
        await asyncio.sleep(self.takes_s)
        if self.failure is not None:
            raise self.failure
        failed = Delay(delay=-1, error=as_sentence("connection refused"))
        return {p.name: failed if p.name in self.dead else Delay(delay=9) for p in probes}

    def _changed(self) -> None:
        self.told.append(self.failures.reasons)


@pytest.fixture
def anyio_backend() -> Backend:
    """Return an event loop whose time passes at once."""
    return CLOCKLESS


@asynccontextmanager
async def checked() -> AsyncIterator[tuple[Network, NodeFailures]]:
    """Yield a network whose nodes are checked."""
    network = Network()
    network.failures.start()
    try:
        yield network, network.failures
    finally:
        await network.failures.close()


async def test_no_node_is_checked_while_none_fails() -> None:
    async with checked() as (network, failures):
        await asyncio.sleep(10 * PERIOD_S)
        assert network.asked == []
        assert failures.reasons == {}


async def test_a_failing_node_is_reported_until_it_answers_again() -> None:
    async with checked() as (network, failures):
        network.dead = {"node:1"}
        failures.suspect(["node:1"])
        await until(lambda: bool(failures.reasons), 1)
        assert failures.reasons == {"node:1": "connection refused"}
        await asyncio.sleep(2.5 * PERIOD_S)
        assert [names for _, names in network.asked] == [("node:1",)] * 3
        network.dead = set()
        await until(lambda: not failures.reasons, PERIOD_S)
        await asyncio.sleep(5 * PERIOD_S)
        assert len(network.asked) == 4
        assert network.told == [{"node:1": "connection refused"}, {}]


async def test_an_answering_suspect_is_checked_at_growing_intervals() -> None:
    async with checked() as (network, failures):
        for _ in range(10 * int(PATIENCE_MAX_S)):
            failures.suspect(["node:1", "service:1", "node:999", "direct"])
            await asyncio.sleep(0.5)
        assert {names for _, names in network.asked} == {("node:1",)}
        times = [round(time) for time, _ in network.asked]
        assert times == [0, 5, 15, 35, 75, 135, 195, 255]
        assert network.told == []


async def test_a_node_that_dies_right_after_a_check_is_detected() -> None:
    async with checked() as (network, failures):
        failures.suspect(["node:1"])
        await until(lambda: len(network.asked) == 1, 1)
        await asyncio.sleep(0.1)
        network.dead = {"node:1"}
        failures.suspect(["node:1"])  # and never again: its client has given up
        await until(lambda: "node:1" in failures.reasons, PATIENCE_S)


async def test_a_suspect_does_not_wait_for_checks_of_dead_nodes() -> None:
    async with checked() as (network, failures):
        network.takes_s = 5.0
        network.dead = {f"node:{number}" for number in range(1, 200)}
        failures.suspect(sorted(network.dead))
        await until(lambda: len(failures.reasons) == 199, 30)
        assert max(len(names) for _, names in network.asked) == 64
        rounds = len(network.asked)
        await until(lambda: len(network.asked) > rounds, PERIOD_S)
        network.dead.add("node:200")
        failures.suspect(["node:200"])
        await until(lambda: "node:200" in failures.reasons, 2 * network.takes_s + 1)


async def test_an_edited_or_deleted_node_is_no_longer_failing() -> None:
    async with checked() as (network, failures):
        network.dead = {"node:1", "node:2"}
        failures.suspect(["node:1", "node:2"])
        await until(lambda: len(failures.reasons) == 2, 1)
        edited = node_instance(1, "192.0.2.9")
        rest = {k: each for k, each in network.plan.instances.items() if k != "node:2"}
        network.plan = msgspec.structs.replace(network.plan, instances=rest | {"node:1": edited})
        assert failures.reasons == {}
        network.asked.clear()
        await asyncio.sleep(2 * PERIOD_S)
        assert network.asked == []
        failures.suspect(["node:1"])  # at once, independent of the last check of the node before
        await until(lambda: "node:1" in failures.reasons, 1)


async def test_a_result_about_a_node_edited_meanwhile_is_ignored() -> None:
    async with checked() as (network, failures):
        network.dead = {"node:1"}
        network.takes_s = 1.0
        failures.suspect(["node:1"])
        await until(lambda: bool(network.asked), 1)
        network.plan.instances["node:1"] = node_instance(1, "192.0.2.9")
        await asyncio.sleep(2)
        assert failures.reasons == {}
        assert network.told == []


@pytest.mark.parametrize("failure", [Failed("start it", "it is away"), RuntimeError("no thread")])
async def test_a_missing_engine_makes_no_node_dead_or_alive(failure: Exception) -> None:
    async with checked() as (network, failures):
        network.dead = {"node:1"}
        failures.suspect(["node:1"])
        await until(lambda: bool(failures.reasons), 1)
        network.failure = failure
        failures.suspect(["node:2"])
        await asyncio.sleep(3 * PERIOD_S)
        assert failures.reasons == {"node:1": "connection refused"}
        network.failure = None
        network.dead = set()
        await until(lambda: not failures.reasons, PERIOD_S + 1)
