"""A whole device without a kernel: real use cases, planner and database; a double of netd."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from egressd.model.delays import Delay
from egressd.model.messages import (
    InterfaceStatus,
    LineNews,
    LineStatus,
    RuleCount,
    Status,
    StatusNews,
)
from egressd.model.plan import Change, Plan
from egressd.model.wording import Sentence, as_sentence
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.ipc.client import NetdClient
from egressd.netd.ipc.server import Server
from egressd.service.ports import Netd
from tests.support.drafts import Make
from tests.support.netd_double import NetdDouble
from tests.support.stand_ins import UnexpectedReconciler
from tests.support.use_cases import Bench, OpenBench, Settle, opened_bench


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory, if possible: no test here is about the disk's own speed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture
def open_bench() -> OpenBench:
    """``async with open_bench(directory)``: a device that was not started yet."""
    return opened_bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A running device, with nothing configured."""
    async with opened_bench(tmp_path / "data") as bench:
        await bench.start()
        yield bench


class _Machine(UnexpectedReconciler):
    """The interface that netd's server calls, answered by the double."""

    def __init__(self, double: NetdDouble) -> None:
        self._double = double

    async def set_plan(self, plan: Plan) -> int:
        return await self._double.set_plan(plan)

    async def apply(self, change: Change, *, is_strict: bool = True) -> None:
        await self._double.apply(change, is_strict=is_strict)

    async def counters(self) -> dict[int, RuleCount]:
        return await self._double.counters()

    @property
    def line_news(self) -> LineNews:
        return LineNews(self._double.shown.lines)

    @property
    def status_news(self) -> StatusNews:
        return StatusNews(self._double.shown)

    async def status(self) -> Status:
        return await self._double.status()

    async def try_configs(self, configs: Sequence[str]) -> list[Sentence]:
        self._double.reach()
        return [as_sentence(why) for why in self._double.verdicts(configs)]

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        self._double.reach()
        return {probe.name: self._double.delay_of(probe) for probe in probes}


@asynccontextmanager
async def over_a_socket(double: NetdDouble, directory: Path) -> AsyncIterator[Netd]:
    """netd's real client, socket and server, with the double in place of the machine."""
    path = directory / "netd.sock"
    server = Server(path, os.getuid(), _Machine(double), lambda: double.lacking)
    await server.open()
    connected = asyncio.Event()

    async def on_connect() -> None:
        connected.set()

    client = NetdClient(path, on_connect=on_connect, on_event=lambda _: None)
    running = asyncio.create_task(client.run())
    try:
        await asyncio.wait_for(connected.wait(), 10)
        yield client
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await server.close()


@pytest.fixture(params=["double", "socket"])
async def any_netd(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[Netd, NetdDouble]]:
    """A netd, real or double, and the double that decides its outcomes."""
    double = NetdDouble()
    if request.param == "double":
        yield double, double
        return
    async with over_a_socket(double, tmp_path) as client:
        yield client, double


@pytest.fixture
def interfaces() -> Callable[..., Status]:
    """A function that returns a status with interfaces (name to address) and lines (name to
    address).
    """

    def status(names: dict[str, str], lines: dict[str, str]) -> Status:
        return Status(
            state="running",
            revision=0,
            interfaces=tuple(
                InterfaceStatus(name=name, ip=ip, is_up=bool(ip), role="")
                for name, ip in names.items()
            ),
            lines={name: LineStatus(is_online=bool(ip), ip=ip) for name, ip in lines.items()},
            connections=7,
            memory=5000,
        )

    return status


@pytest.fixture
def settle() -> Settle:
    """A function that lets every ready task run."""

    async def run() -> None:
        for _ in range(50):
            await asyncio.sleep(0.001)

    return run
