"""The overview of the device, in one document."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from egressd import __version__
from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.model.messages import InterfaceStatus, LineStatus, Reached, Status
from egressd.model.names import DIRECT, REJECT, parse_target
from egressd.model.wording import Coded, Coding, Sentence, no_sentence, say
from egressd.planner.compile import service_key
from egressd.planner.exits import node_key
from egressd.planner.nodes import lost_by_engine
from egressd.planner.targets import used_targets
from egressd.service.judge import Judge, Picture
from egressd.service.judgement import Blocked, Verdict
from egressd.service.ledger import Ledger
from egressd.service.lines import status_of
from egressd.service.ports import Clock, Netd
from egressd.service.system import System, seen_by
from egressd.service.target_rates import READ_EVERY_S, TargetRates

FLOWS_MAX: Final = 200


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of each kind of object."""

    rules: int
    enabled_rules: int
    nodes: int
    lines: int
    online_lines: int
    proxy_services: int
    targets: int
    failing_targets: int
    """The targets that have clients, and a problem."""


class TargetFlow(Coding, frozen=True, kw_only=True):
    """Clients that share a target, and the interfaces that their traffic leaves by."""

    target: str
    kind: str
    clients: int
    """The number of enabled rules that name it."""
    egresses: tuple[str, ...] = ()
    """Interfaces; ``DIRECT`` stands for the device's own routes."""
    upload_bps: int = 0
    download_bps: int = 0
    """Bits per second of its rules' clients, averaged over some ten seconds of overviews;
    `upload_bps` likewise."""
    problem: Sentence = msgspec.field(default_factory=no_sentence)
    """The reason why its clients are blocked at the moment; else empty."""
    problem_coded: Coded | None = None
    """The same for programs; null for none."""
    cause: str = ""
    """A word for the kind of problem: see `service.judgement`."""
    since: str = ""
    """The time of its start, if it has clients and a problem."""


class Unruled(Coding, frozen=True, kw_only=True):
    """The outcome for clients without a rule."""

    target: str
    is_blocked: bool
    reason: Sentence
    """The reason why they are blocked, unless their target is REJECT."""
    reason_coded: Coded | None = None
    seen: int
    """LAN neighbours that no rule covers."""


class LineSeen(Coding, frozen=True, kw_only=True):
    """The state of a line."""

    is_online: bool
    ip: str
    encryption: Sentence
    encryption_coded: Coded | None = None
    state: str
    """``online``, or the line's current step or wait (``docs/lines.md`` has the list)."""
    reason: Sentence
    """The reason why it is not online."""
    reason_coded: Coded | None = None
    next_attempt: str


class TimedBackups(Coding, frozen=True, kw_only=True):
    """The schedule of timed backups, and the outcome of the last one."""

    folder: str
    every_h: int
    """Hours from one to the next."""
    keep: int
    last_success: str
    """The time of the last one that was made; empty if none was."""
    next_run: str
    problem: Sentence
    """The reason why the last one failed; else empty."""
    problem_coded: Coded | None = None


class Overview(Coding, frozen=True, kw_only=True):
    """The device at one moment."""

    at: str
    """The time to the millisecond, so that rates can be computed from the counters of two
    overviews."""
    status: str
    """The phase: ``restoring``, ``running`` or ``stopped``."""
    is_open: bool
    """True if an operator has opened the device: no rule applies, every client goes out
    directly."""
    uptime_s: int
    version: str
    revision: int
    connections: int
    tracked: int
    """All entries of the kernel's connection table; `connections` are those of LAN clients."""
    tracked_max: int
    """The most entries that it may have; 0 if unknown."""
    workers: int
    """Engine workers that run."""
    instances: int
    """Instances of the engine: one for each node, group, and proxy service that is in use."""
    memory: int
    lease_ms: int | None
    """Milliseconds for which clients are still let through, 0 once they are blocked, on a member of
    a site; null if they need no lease."""
    counts: Counts
    interfaces: tuple[InterfaceStatus, ...]
    lines: dict[str, LineSeen]
    flows: tuple[TargetFlow, ...]
    """At most `FLOWS_MAX` flows: those that block clients first, then those with the most
    clients."""
    unruled: Unruled
    blocked: tuple[Blocked, ...]
    """Blocked clients, by cause; not those of REJECT."""
    reached: tuple[Reached, ...]
    """Bounds that clients, also of proxy services, have reached within the last seconds."""
    refused: dict[str, int]
    """Kind of such a bound -> packets beyond it since the data plane started, and ``handshakes``
    with proxy services that were ended."""
    timed_backups: TimedBackups | None
    """Null if none are set up."""
    problems: tuple[Sentence, ...]
    """All problems, the sentences of `blocked` first."""
    problems_coded: tuple[Coded, ...] = ()
    """The same for programs."""


class Overviews:
    """Makes overviews. Parts that depend only on the configuration are cached by revision."""

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        system: System,
        judge: Judge,
        clock: Clock,
        *,
        own_problems: Callable[[], Iterable[Sentence]] = lambda: (),
        timed_backups: Callable[[], TimedBackups | None] = lambda: None,
    ) -> None:
        """`clock` returns the time in milliseconds. `own_problems` are those of the API, the
        console and the backups.
        """
        self._timed_backups = timed_backups
        self._own_problems = own_problems
        self._judge = judge
        self._clock = clock
        self._ledger = ledger
        self._netd = netd
        self._system = system
        self._revision = -1
        self._planned: list[TargetFlow] = []
        self._rates = TargetRates()
        self._read_next_at = 0.0

    async def now(self) -> Overview:
        """Return the current overview. Never fails: without netd the status is ``restoring``."""
        return await self._of(await seen_by(self._netd))

    async def now_with_delays(self) -> tuple[Overview, dict[str, float]]:
        """Return the current overview, and the seconds that the last check of each group's node
        took, by the node's name, from one request to netd. Nodes that fail, and those that serve no
        group, have none. Never fails.
        """
        seen = await seen_by(self._netd)
        overview = await self._of(seen)
        delays = {
            node.name: seen.delays[key] / 1000
            for node in self._ledger.state.nodes.values()
            if (key := node_key(node.id)) in seen.delays
        }
        return overview, delays

    async def _of(self, seen: Status) -> Overview:
        state = self._ledger.state
        if state.revision != self._revision:
            self._planned = [self._plan(state, target) for target in used_targets(state)]
            self._revision = state.revision
        system = self._system.as_seen(seen)
        await self._read_rates(state)
        lines = {line.name: status_of(line, seen.lines) for line in state.lines.values()}
        picture = self._judge.take(seen)
        flows = [self._live(flow, picture) for flow in self._planned]
        flows.sort(key=lambda flow: (not _is_failing(flow), -flow.clients, flow.target))
        return Overview(
            at=self._clock(),
            status=system.state,
            is_open=state.settings.opened,
            uptime_s=system.uptime_s,
            version=__version__,
            revision=state.revision,
            connections=system.connections,
            tracked=seen.tracked,
            tracked_max=seen.tracked_max,
            workers=seen.workers,
            instances=len(seen.instances),
            memory=system.memory,
            lease_ms=seen.lease_ms,
            counts=Counts(
                rules=len(state.rules),
                enabled_rules=sum(flow.clients for flow in flows),
                nodes=len(state.nodes),
                lines=len(state.lines),
                online_lines=sum(line.is_online for line in lines.values()),
                proxy_services=len(state.services),
                targets=len(flows),
                failing_targets=sum(_is_failing(flow) for flow in flows),
            ),
            interfaces=seen.interfaces,
            lines={name: _line_seen(status) for name, status in lines.items()},
            flows=tuple(flows[:FLOWS_MAX]),
            unruled=_unruled(state, picture, seen),
            blocked=picture.blocked,
            reached=seen.reached,
            refused=seen.refused,
            timed_backups=self._timed_backups(),
            problems=(
                *picture.problems,
                *_services_problems(state, seen),
                *_engine_problems(state),
                *self._own_problems(),
            ),
        )

    def _plan(self, state: DesiredState, target: str) -> TargetFlow:
        parsed = parse_target(target)
        return TargetFlow(target=target, kind=parsed.kind, clients=state.target_uses.get(target, 0))

    def _live(self, flow: TargetFlow, picture: Picture) -> TargetFlow:
        verdict = picture.verdicts.get(flow.target, Verdict())
        rate = self._rates.of(flow.target)
        return msgspec.structs.replace(
            flow,
            egresses=verdict.egresses,
            problem=verdict.reason,
            cause=verdict.cause,
            since=picture.since.get(flow.target, ""),
            upload_bps=round(rate.upload),
            download_bps=round(rate.download),
        )

    async def _read_rates(self, state: DesiredState) -> None:
        time = asyncio.get_running_loop().time
        if time() < self._read_next_at:
            return
        self._read_next_at = time() + READ_EVERY_S
        with suppress(Failed):
            counted = await self._netd.counters()
            self._rates.take(time(), counted, state.rules)


def _line_seen(status: LineStatus) -> LineSeen:
    return LineSeen(
        is_online=status.is_online,
        ip=status.ip,
        encryption=status.encryption,
        state=status.state,
        reason=status.reason,
        next_attempt=status.next_attempt,
    )


def _unruled(state: DesiredState, picture: Picture, seen: Status) -> Unruled:
    target = DIRECT if state.settings.opened else state.settings.unmanaged
    verdict = picture.unruled
    return Unruled(
        target=target,
        is_blocked=verdict.is_blocked or target == REJECT,
        reason=verdict.reason,
        seen=seen.strangers,
    )


def _services_problems(state: DesiredState, seen: Status) -> Iterator[Sentence]:
    """Yield the reasons why enabled proxy services do not run."""
    for service in state.services.values():
        instance = seen.instances.get(service_key(service.id))
        if instance is not None and instance.problem:
            yield say("service-not-running", name=service.name, reason=instance.problem)


def _engine_problems(state: DesiredState) -> Iterator[Sentence]:
    """Yield the limitations of the engine in force, each once for all nodes affected."""
    losses = Counter(filter(None, map(lost_by_engine, state.nodes.values())))
    for loss, number in losses.items():
        yield say("nodes-lose", n=number, loss=loss)


def _is_failing(flow: TargetFlow) -> bool:
    return bool(flow.problem and flow.clients)
