"""The kernel, the engine and the lines, as the rest of netd needs them.

`egressd.app.netd_parts` composes netd of the real ones; tests put stand-ins in their place. The
implementations document each method in full.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from ipaddress import IPv4Address
from typing import Protocol

from egressd.model.delays import Delay
from egressd.model.facts import Facts
from egressd.model.messages import (
    ConnectionsClosed,
    ConnectionsListed,
    FetchPage,
    LineNews,
    LineStatus,
    Located,
    PageFetched,
    RuleCount,
    Status,
    StatusNews,
)
from egressd.model.nouns import Line
from egressd.model.pair import PairRole
from egressd.model.plan import Change, Egress, Limit, Patch, Plan
from egressd.model.wording import Sentence
from egressd.netd.engine.document import Document
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.engine.slot import Running
from egressd.planner.bounds import Bounds
from egressd.planner.groups import Choice, Turn
from egressd.planner.lines.address import Taken
from egressd.planner.nft import Crowd, Greedy, HostUpdate
from egressd.planner.resolvers import Resolver
from egressd.planner.topology import Topology

# --- The kernel: `egressd.netd.dataplane.kernel_state` and `speed_limits`. ----------------------


class ServedTargets(Protocol):
    """The targets that the kernel sends clients to."""

    choices: Mapping[str, Choice]
    peer_dns: Mapping[str, tuple[str, ...]]

    def is_closed(self, member: str) -> bool: ...

    def keep_cut(self, keys: Collection[bytes]) -> bool: ...

    @property
    def topology(self) -> Topology: ...

    def served(self) -> set[int]: ...


class KernelPort(ServedTargets, Protocol):
    """Routes, policy rules, sysctls and the nftables table, converged to a plan."""

    silent: Set[Resolver]
    outdated: Collection[str]
    taken: Taken
    greedy: Collection[Greedy]
    crowd: Crowd

    @property
    def bounds(self) -> Bounds: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def problems(self) -> tuple[Sentence, ...]: ...

    @property
    def firewall_problems(self) -> tuple[Sentence, ...]: ...

    @property
    def ruled_locals(self) -> tuple[str, ...]: ...

    # The machine, and its routing.

    def refresh(self) -> None: ...

    def route(self, plan: Plan, egresses: Mapping[str, Egress]) -> None: ...

    def forward(self) -> None: ...

    # The nftables table and the fast path.

    def has_table(self) -> bool: ...

    def load_previous(self) -> None: ...

    def hold_translation(self) -> None: ...

    async def load(self, plan: Plan, ports: Mapping[str, int]) -> None: ...

    async def update(
        self, plan: Plan, ports: Mapping[str, int], hosts: HostUpdate = ...
    ) -> None: ...

    async def move(self, plan: Plan, ports: Mapping[str, int], hosts: HostUpdate) -> None: ...

    def prepare(self, plan: Plan, clients: Collection[str], *, has_networks: bool) -> None: ...

    def invalidate(self) -> None: ...

    async def restrict_to_lan(self, ports: Iterable[int]) -> None: ...

    async def renew_lease(self, until_ms: int, plan: Plan) -> None: ...

    def lease_ms(self, plan: Plan) -> int | None: ...

    async def is_intact(self) -> bool: ...

    def host_update(self, plan: Plan, change: Change) -> HostUpdate: ...

    def is_about_local_clients(self, change: Change) -> bool: ...

    # Questions.

    def egress_problems(self, plan: Plan) -> dict[str, Sentence]: ...

    def why_unserved(self) -> Sentence: ...

    def is_open(self, egress: str) -> bool: ...

    def why_unreached(self, egress: str) -> Sentence: ...

    def missing_roles(self) -> tuple[Sentence, ...]: ...

    def line_addresses(self) -> set[IPv4Address]: ...

    def beside(self, plan: Plan) -> tuple[Sentence, ...]: ...

    async def locate(self, client: str) -> int: ...

    def members(self, client: str) -> dict[str, str]: ...


class LimitsPort(Protocol):
    """Speed limits, converged to a plan, and the counters of rules."""

    @property
    def problems(self) -> tuple[Sentence, ...]: ...

    async def sync(self, limits: Mapping[str, Limit], topology: Topology) -> bool: ...

    async def refresh(self, limits: Mapping[str, Limit], topology: Topology) -> bool: ...

    async def change(
        self,
        patch: Patch[Limit],
        limits: Mapping[str, Limit],
        topology: Topology,
        *,
        strict: bool,
    ) -> None: ...

    async def counters(self) -> dict[int, RuleCount]: ...

    def close(self) -> None: ...


# --- The engine: `egressd.netd.engine.pool`. ----------------------------------------------------


class DelaySource(Protocol):
    """A source of delay measurements."""

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        """Return the delay of each probe. Raises EgressdError."""
        ...


class RuleSetFiles(Protocol):
    """The files of rule sets that instances read when they start."""

    def put(self, contents: Mapping[str, bytes]) -> None: ...

    def keep(self, names: Collection[str]) -> None: ...


class EnginePort(DelaySource, Protocol):
    """Starts and stops instances."""

    @property
    def uid(self) -> int: ...

    @property
    def rule_sets(self) -> RuleSetFiles: ...

    async def start(self, document: Document) -> Running: ...

    async def stop(self, running: Running) -> None: ...

    def is_running(self, instance: Running) -> bool: ...

    def running(self) -> Mapping[str, Running]: ...

    def superseded(self) -> list[Running]: ...

    def workers(self) -> dict[int, int]: ...

    def pids(self) -> list[int]: ...

    def problems(self) -> tuple[Sentence, ...]: ...

    async def try_configs(self, configs: Sequence[str]) -> list[Sentence]: ...

    async def close(self) -> None: ...

    def release(self) -> None: ...


# --- The lines: `egressd.netd.lines.lines`. -----------------------------------------------------


class LinesPort(Protocol):
    """Dials VPN lines."""

    async def find(self) -> None: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def release(self) -> None: ...

    def want(self, wanted: Mapping[str, Line]) -> None: ...

    async def apply(self, wanted: Mapping[str, Line]) -> None: ...

    def allow(self, *, may_dial: bool) -> None: ...

    async def hang_up(self) -> None: ...

    def outdated(self, wanted: Mapping[str, Line]) -> Mapping[str, Line | None]: ...

    def status(self) -> dict[str, LineStatus]: ...

    def resolvers(self) -> Mapping[str, tuple[str, ...]]: ...

    def servers(self) -> frozenset[IPv4Address]: ...

    def reserve(self, taken: Taken) -> None: ...

    def pids(self) -> set[int]: ...


# --- The other box of a pair: `egressd.netd.cluster.gateway`. ------------------------------------


class PairPort(Protocol):
    """Moves addresses and flows between two boxes."""

    @property
    def role(self) -> PairRole: ...

    def problems(self) -> tuple[Sentence, ...]: ...

    def pids(self) -> list[int]: ...


# --- netd, as requests of the api see it: `egressd.netd.reconciler`. ----------------------------


class ReconcilerPort(Protocol):
    """Carries out the api's requests."""

    async def set_plan(self, plan: Plan) -> int: ...

    async def apply(self, change: Change, *, is_strict: bool = True) -> None: ...

    async def halt(self, reason: str) -> None: ...

    async def renew_lease(self, until_ms: int) -> None: ...

    async def status(self) -> Status: ...

    async def counters(self) -> dict[int, RuleCount]: ...

    async def try_configs(self, configs: Sequence[str]) -> list[Sentence]: ...

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]: ...

    async def locate(self, client: str) -> Located: ...

    async def rotate(self, turns: Mapping[str, Turn]) -> dict[str, dict[str, str]]: ...

    @property
    def line_news(self) -> LineNews: ...

    @property
    def status_news(self) -> StatusNews: ...


class ErrandsPort(Protocol):
    """Messages and pages, each by probes of its own: see `egressd.netd.errands.gates`."""

    async def send(
        self, probes: Sequence[ProbeDocument], url: str, title: str, body: str
    ) -> Sentence: ...

    async def fetch(self, probes: Sequence[ProbeDocument], asked: FetchPage) -> PageFetched: ...


class ConnectionsPort(Protocol):
    """Lists and closes the connections of clients: `egressd.netd.reconciler.client_connections`."""

    async def list(self, client: str) -> ConnectionsListed: ...

    async def close_some(self, client: str, wanted: int | None) -> ConnectionsClosed: ...


class Watcher(Protocol):
    """A check that repeats, or a publisher, between `start` and `close`."""

    def start(self) -> None: ...

    async def close(self) -> None: ...
