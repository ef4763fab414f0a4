"""A whole device without a kernel: real use cases, planner and database; a double of netd."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.drafts import LineDraft, NodeDraft, ProxyServiceDraft, RuleDraft
from egressd.model.errors import Failed
from egressd.model.instances import NodePath
from egressd.model.messages import (
    Delay,
    InterfaceStatus,
    LineNews,
    LineStatus,
    Located,
    Probe,
    RuleCount,
    Status,
    StatusNews,
)
from egressd.model.nouns import Node
from egressd.model.plan import Change, Plan, difference
from egressd.model.wording import Sentence, as_sentence
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.ipc.client import NetdClient
from egressd.netd.ipc.server import Server
from egressd.planner.change import plan_change
from egressd.planner.compile import compile_plan
from egressd.planner.probes import node_path
from egressd.service.backups import Backups
from egressd.service.ledger import Ledger
from egressd.service.lines import Lines
from egressd.service.nodes import Nodes
from egressd.service.ports import Archive, Netd, Store
from egressd.service.proxy_services import ProxyServices
from egressd.service.restored import RestoreChecks
from egressd.service.rules import Rules
from egressd.service.servers import ServerSurroundings
from egressd.service.settings import DeviceSettings
from egressd.service.system import System
from egressd.service.whitelist import DeviceWhitelist
from egressd.store.database import Database
from tests.netd.stand_ins import UnexpectedReconciler

RESOLVERS = Resolvers(
    device=("192.0.2.53",),
    domestic=("192.0.2.54",),
    outbound=("192.0.2.55", "192.0.2.57"),
    home=("192.0.2.56",),
)
OWN_PORTS = {8787: "the API", 8788: "the console"}


class NetdDouble:
    """netd without a machine: it keeps the plan that would be in force.

    `behaviour` lists the outcomes of the next plans or changes, one word a call; without one, all
    succeed. ``refuse``: it refuses. ``lose``: it carries out the call, but the connection breaks
    before the answer. ``break``: the connection breaks before it receives the call. After the last
    two it is away until `return_after_restart`.
    """

    def __init__(self) -> None:
        self.plan = Plan()
        self.asked: list[Plan | Change] = []
        self.behaviour: list[str] = []
        self.is_away = False
        self.hold: asyncio.Event | None = None
        self.shown = Status(state="running", revision=0)
        self.engine_refuses: dict[str, str] = {}
        self.delay_of: Callable[[Any], Delay] = lambda _: Delay(delay=42)
        self.tried: list[NodePath] = []
        self.members: dict[str, str] = {}
        self.counted: dict[int, RuleCount] = {}

    async def set_plan(self, plan: Plan) -> None:
        await self._meet(plan)

    async def apply(self, change: Change) -> None:
        await self._meet(change)

    async def status(self) -> Status:
        self.reach()
        return msgspec.structs.replace(self.shown, revision=self.plan.revision)

    def lines(self) -> Mapping[str, LineStatus]:
        return {} if self.is_away else self.shown.lines

    async def try_paths(self, paths: Sequence[NodePath]) -> Sequence[str]:
        self.reach()
        self.tried += paths
        return self.verdicts([msgspec.json.encode(path).decode() for path in paths])

    def verdicts(self, texts: Sequence[str]) -> list[str]:
        return [
            next((why for part, why in self.engine_refuses.items() if part in text), "")
            for text in texts
        ]

    async def delays(self, probes: Sequence[Probe], url: str, timeout_ms: int) -> dict[str, Delay]:
        self.reach()
        return {probe.name: self.delay_of(probe) for probe in probes}

    async def counters(self) -> dict[int, RuleCount]:
        self.reach()
        return self.counted

    async def locate(self, client: str) -> Located:
        self.reach()
        return Located(self.plan.hosts.get(client, 0), self.members)

    def return_after_restart(self) -> None:
        self.is_away = False

    def reach(self) -> None:
        if self.is_away:
            raise Failed("talk to netd", "it is not running")

    async def _meet(self, wanted: Plan | Change) -> None:
        self.reach()
        self.asked.append(wanted)
        if self.hold is not None:
            await self.hold.wait()
        behaviour = self.behaviour.pop(0) if self.behaviour else "obey"
        if behaviour == "refuse":
            raise Failed("load the rules", "the kernel would not")
        if behaviour != "break":
            self._obey(wanted)
        if behaviour in ("break", "lose"):
            self.is_away = True
            raise Failed("talk to netd", "it went away before it answered")

    def _obey(self, wanted: Plan | Change) -> None:
        if isinstance(wanted, Plan):
            self.plan = difference_applied(wanted)
            return
        try:
            self.plan.apply(wanted)
        except ValueError as conflict:
            raise Failed("apply a change", str(conflict)) from conflict


def difference_applied(plan: Plan) -> Plan:
    """Return a copy of `plan`, so that changes to one do not affect the other."""
    copy = Plan()
    copy.apply(difference(copy, plan))
    return copy


class Storage(Store, Archive, Protocol):
    """A store, on disk or in memory."""


class StoreDouble:
    """The real store, but a call of it fails if `failing` names it, once for each entry."""

    def __init__(self, real: Storage) -> None:
        self.real = real
        self.failing: list[str] = []

    async def load(self) -> DesiredState:
        return await self.real.load()

    async def begin(self, edits: Sequence[Edit], revision: int) -> None:
        self._meet("begin")
        await self.real.begin(edits, revision)

    async def commit(self) -> None:
        if "commit" in self.failing:
            await self.real.rollback()
        self._meet("commit")
        await self.real.commit()

    async def rollback(self) -> None:
        await self.real.rollback()

    async def backup(self, path: Path) -> None:
        self._meet("backup")
        await self.real.backup(path)

    async def read_backup(self, path: Path) -> DesiredState:
        return await self.real.read_backup(path)

    def _meet(self, call: str) -> None:
        if call in self.failing:
            self.failing.remove(call)
            raise Failed(f"{call} to the database", "database or disk is full")


class Ticks:
    """A clock that advances by a second each time that `tick` is called."""

    def __init__(self) -> None:
        self.seconds = 0

    def tick(self) -> None:
        self.seconds += 1

    def __call__(self) -> str:
        return f"2026-11-20T22:{self.seconds // 60:02}:{self.seconds % 60:02}Z"


def dialled_by(state: DesiredState, node: Node) -> NodePath | None:
    return node_path(state, node, RESOLVERS)


class Bench:
    """A device: the use cases, and their dependencies."""

    def __init__(self, database: Storage, netd: NetdDouble, folder: Path) -> None:
        self.netd = netd
        self.store = StoreDouble(database)
        self.clock = Ticks()
        self.quota = 10
        self.ledger = Ledger(
            self.store,
            netd,
            compile_plan=partial(compile_plan, resolvers=RESOLVERS),
            plan_change=partial(plan_change, resolvers=RESOLVERS),
        )
        ledger, clock = self.ledger, self.clock
        self.rules = Rules(ledger, clock)
        self.around = ServerSurroundings(
            own=frozenset({IPv4Address("10.0.0.1"), IPv4Address("203.0.113.2")}),
            networks=(IPv4Network("10.0.0.0/24"), IPv4Network("198.18.7.0/24")),
            domains=("home.test",),
        )
        self.nodes = Nodes(ledger, netd, clock, node_path=dialled_by, around=lambda: self.around)
        self.has_line_dns = True
        self.lines = Lines(ledger, netd, has_line_dns=lambda: self.has_line_dns, clock=clock)
        self.foreign_ports: set[int] = set()
        self.services = ProxyServices(
            ledger,
            clock,
            quota=lambda: self.quota,
            own_ports=OWN_PORTS,
            listening=self.listening,
        )
        self.whitelist = DeviceWhitelist(ledger)
        self.settings = DeviceSettings(ledger)
        self.backups = Backups(
            ledger,
            self.store,
            folder,
            lambda: self.quota,
            RestoreChecks(OWN_PORTS, listening=self.listening, around=lambda: self.around),
        )
        self.system = System(
            ledger,
            netd,
            uptime_s=lambda: 93.7,
            own_memory=lambda: 1000,
            has_api_access=lambda: True,
        )

    @property
    def state(self) -> DesiredState:
        return self.ledger.state

    def listening(self) -> set[int]:
        """Return other programs' ports, and those of the services that are switched on."""
        ours = {s.port for s in self.state.services.values() if s.is_enabled}
        return ours | self.foreign_ports

    async def start(self) -> None:
        await self.ledger.load()
        await self.ledger.resync()

    async def agree(self) -> None:
        """Check that memory, database and netd agree."""
        assert await self.store.load() == self.state
        wanted = compile_plan(self.state, RESOLVERS)
        assert self.netd.plan.revision == wanted.revision
        assert difference(self.netd.plan, wanted).is_empty

    async def add_node(self, name: str = "tokyo", **fields: Any) -> Node:
        return (await self.nodes.create(node(name, **fields))).value


def node(name: str = "tokyo", *, group: str = "", **config: Any) -> NodeDraft:
    """Return a socks5 node's draft; `config` are further keys of its configuration."""
    import json

    given = {"server": "198.51.100.7", "port": 1080} | config
    return NodeDraft(name=name, protocol="socks5", config_json=json.dumps(given), group=group)


def rule(ip: str = "10.0.0.5", target: str = "DIRECT", **fields: Any) -> RuleDraft:
    return RuleDraft(ip=ip, target_node=target, **fields)


def line(name: str = "l2tp_1", **fields: Any) -> LineDraft:
    given = {
        "type": name.partition("_")[0],
        "name": name,
        "server": "vpn.example.net",
        "username": "u",
        "password": "p",
    }
    return LineDraft(**(given | fields))


def service(name: str = "office", **fields: Any) -> ProxyServiceDraft:
    given: dict[str, Any] = {"name": name, "outbound_interface": "wan1", "port": 8080}
    return ProxyServiceDraft(**(given | fields))


class Make:
    """Constructors of drafts."""

    node = staticmethod(node)
    rule = staticmethod(rule)
    line = staticmethod(line)
    service = staticmethod(service)


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory, if possible: no test here is about the disk's own speed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@asynccontextmanager
async def opened_bench(directory: Path, netd: NetdDouble | None = None) -> AsyncIterator[Bench]:
    database = Database(directory)
    await database.open()
    bench = Bench(database, NetdDouble() if netd is None else netd, directory)
    try:
        yield bench
    finally:
        await bench.ledger.close()
        await database.close()


OpenBench = Callable[..., Any]


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

    async def set_plan(self, plan: Plan) -> None:
        await self._double.set_plan(plan)

    async def apply(self, change: Change) -> None:
        await self._double.apply(change)

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
    server = Server(path, os.getuid(), _Machine(double))
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


Settle = Callable[[], Awaitable[None]]


@pytest.fixture
def settle() -> Settle:
    """A function that lets every ready task run."""

    async def run() -> None:
        for _ in range(50):
            await asyncio.sleep(0.001)

    return run
