"""A whole device without a kernel: real use cases, planner and database; a double of netd."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final, Protocol

from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.devices import DhcpLease, LanDevice
from egressd.model.errors import Failed
from egressd.model.exits import KnownExit
from egressd.model.instances import NodePath
from egressd.model.nouns import Node
from egressd.model.plan import difference
from egressd.model.rotations import KeptRotation
from egressd.model.site import LogEntry
from egressd.model.subscriptions import FetchRecord
from egressd.model.times import utc_seconds, utc_text
from egressd.model.tokens import ScopedToken
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, PastChange, Reversal
from egressd.planner.change import plan_change
from egressd.planner.compile import compile_plan
from egressd.planner.probes import node_path
from egressd.service.alert_book import Kept
from egressd.service.backups import Backups
from egressd.service.groups import TargetGroups
from egressd.service.journal import Journal
from egressd.service.ledger import Ledger
from egressd.service.lines import Lines
from egressd.service.nodes import Nodes
from egressd.service.ports import Archive, ChangeLog, Store, TrialStore
from egressd.service.proxy_services import ProxyServices
from egressd.service.restored import RestoreChecks
from egressd.service.rules import Rules
from egressd.service.servers import ServerSurroundings
from egressd.service.settings import DeviceSettings
from egressd.service.system import System
from egressd.service.trials import ChangeTrials
from egressd.service.undo import Undo
from egressd.service.whitelist import DeviceWhitelist
from egressd.store.database import Database
from tests.support.drafts import node
from tests.support.netd_double import NetdDouble

RESOLVERS = Resolvers(
    device=("192.0.2.53",),
    domestic=("192.0.2.54",),
    outbound=("192.0.2.55", "192.0.2.57"),
    home=("192.0.2.56",),
)
OWN_PORTS = {8787: "the API", 8788: "the console"}


class Storage(Store, Archive, ChangeLog, TrialStore, Protocol):
    """A store, on disk or in memory."""


class StoreDouble:
    """The real store, but a call of it fails if `failing` names it, once for each entry."""

    def __init__(self, real: Storage) -> None:
        self.real = real
        self.failing: list[str] = []

    async def load(self) -> DesiredState:
        return await self.real.load()

    async def begin(
        self, edits: Sequence[Edit], revision: int, logged: LoggedChange | None = None
    ) -> None:
        self._meet("begin")
        await self.real.begin(edits, revision, logged)

    async def commit(self) -> None:
        if "commit" in self.failing:
            await self.real.rollback()
        self._meet("commit")
        await self.real.commit()

    async def rollback(self) -> None:
        await self.real.rollback()

    async def entries_after(self, revision: int) -> Sequence[LogEntry] | None:
        return await self.real.entries_after(revision)

    async def past_changes(self, number: int) -> Sequence[PastChange]:
        return await self.real.past_changes(number)

    async def changes_about(self, revision: int) -> Sequence[PastChange]:
        return await self.real.changes_about(revision)

    async def inverse(self, revision: int) -> Sequence[Reversal] | None:
        return await self.real.inverse(revision)

    async def trial(self) -> ChangeTrial | None:
        return await self.real.trial()

    async def trial_state(self) -> DesiredState | None:
        return await self.real.trial_state()

    async def begin_trial(self, begun: ChangeTrial, state: DesiredState) -> bool:
        return await self.real.begin_trial(begun, state)

    async def end_trial(self) -> bool:
        return await self.real.end_trial()

    async def backup(self, path: Path) -> None:
        self._meet("backup")
        await self.real.backup(path)

    async def read_backup(self, path: Path) -> DesiredState:
        return await self.real.read_backup(path)

    def _meet(self, call: str) -> None:
        if call in self.failing:
            self.failing.remove(call)
            raise Failed(f"{call} to the database", "database or disk is full")


_FIRST_TICK: Final = utc_seconds("2026-11-20T22:00:00Z")


class Ticks:
    """A clock that advances by a second each time that `tick` is called."""

    def __init__(self) -> None:
        self.seconds = 0

    def tick(self) -> None:
        self.seconds += 1

    def __call__(self) -> str:
        return utc_text(_FIRST_TICK + self.seconds)


def dialled_by(state: DesiredState, node: Node) -> NodePath | None:
    return node_path(state, node, RESOLVERS)


class MemoryChanges:
    """A record of changes in memory."""

    def __init__(self) -> None:
        self.records: list[ChangeRecord] = []

    async def add_changes(self, records: Sequence[ChangeRecord]) -> None:
        self.records += records

    async def changes(self, limit: int) -> list[ChangeRecord]:
        return self.records[::-1][:limit]


class MemoryAlerts:
    """A record of alerts in memory."""

    def __init__(self) -> None:
        self.kept = Kept()
        self.saved = 0

    async def load(self) -> Kept:
        return self.kept

    async def save(self, kept: Kept) -> None:
        self.kept = kept
        self.saved += 1


class MemoryFetches:
    """Records of subscriptions' lists, in memory."""

    def __init__(self) -> None:
        self.known: Mapping[int, FetchRecord] = {}

    async def load(self) -> Mapping[int, FetchRecord]:
        return self.known

    async def save(self, known: Mapping[int, FetchRecord]) -> None:
        self.known = dict(known)


class MemoryRotations:
    """Rotations of nodes, in memory."""

    def __init__(self) -> None:
        self.kept: Sequence[KeptRotation] = ()
        self.is_full = False

    async def load(self) -> Sequence[KeptRotation]:
        return self.kept

    async def store(self, kept: Sequence[KeptRotation]) -> bool:
        if not self.is_full:
            self.kept = tuple(kept)
        return not self.is_full


class MemoryExits:
    """A record of exits in memory."""

    def __init__(self) -> None:
        self.known: Mapping[str, KnownExit] = {}
        self.saved = 0

    async def load(self) -> Mapping[str, KnownExit]:
        return self.known

    async def save(self, known: Mapping[str, KnownExit]) -> None:
        self.known = dict(known)
        self.saved += 1


class MemoryTokens:
    """Tokens in memory. A call fails while `is_full`."""

    def __init__(self) -> None:
        self.stored: dict[str, ScopedToken] = {}
        self.writes = 0
        self.is_full = False

    async def tokens(self) -> Sequence[ScopedToken]:
        return [*self.stored.values()]

    async def put_tokens(self, tokens: Sequence[ScopedToken]) -> None:
        self._meet("store a token")
        self.stored |= {token.id: token for token in tokens}

    async def drop_tokens(self, ids: Collection[str]) -> None:
        self._meet("delete a token")
        for id_ in ids:
            self.stored.pop(id_, None)

    def _meet(self, action: str) -> None:
        self.writes += 1
        if self.is_full:
            raise Failed(action, "disk full")


class MemoryDevices:
    """A record of devices in memory. A call fails while `is_full`."""

    def __init__(self) -> None:
        self.stored: dict[str, LanDevice] = {}
        self.writes: list[tuple[set[str], set[str]]] = []
        self.is_full = False

    async def load(self) -> Sequence[LanDevice]:
        self._meet()
        return [*self.stored.values()]

    async def write(self, devices: Sequence[LanDevice], gone: Sequence[str]) -> None:
        self._meet()
        self.writes.append(({device.mac for device in devices}, {*gone}))
        self.stored |= {device.mac: device for device in devices}
        for mac in gone:
            self.stored.pop(mac, None)

    def _meet(self) -> None:
        if self.is_full:
            raise Failed("use the file of devices", "disk full")


class KnownVendors:
    """Makers of network cards, by the first three bytes of the address."""

    def __init__(self) -> None:
        self.makers = {"00:00:5e": "ICANN, IANA Department"}
        self.asked: list[str] = []

    async def names(self, macs: Collection[str]) -> Mapping[str, str]:
        self.asked += sorted(macs)
        return {mac: self.makers[mac[:8]] for mac in macs if mac[:8] in self.makers}


class KnownLeases:
    """Leases that a test sets."""

    def __init__(self) -> None:
        self.leases: list[DhcpLease] = []

    async def read(self) -> Sequence[DhcpLease]:
        return self.leases


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
        self.groups = TargetGroups(ledger, netd, clock)
        self.restore_checks = RestoreChecks(
            OWN_PORTS, listening=self.listening, around=lambda: self.around
        )
        self.backups = Backups(
            ledger,
            self.store,
            folder,
            lambda: self.quota,
            self.restore_checks,
        )
        self.now = 1_763_679_520.0
        """Unix time in seconds, of trials."""
        self.journal = Journal(MemoryChanges(), lambda _: None)
        self.trials = ChangeTrials(
            ledger, self.store, self.journal, now=lambda: self.now, is_shared=False
        )
        self.undo = Undo(
            ledger,
            self.store,
            self.journal,
            quota=lambda: self.quota,
            checks=self.restore_checks,
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

Settle = Callable[[], Awaitable[None]]
