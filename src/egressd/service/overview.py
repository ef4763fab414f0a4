"""Everything that an operator sees at a glance, in one document."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from egressd import __version__
from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.model.messages import InterfaceStatus, LineStatus, Status
from egressd.model.names import GROUP_PREFIX, TargetName, parse_target
from egressd.planner.compile import UNMANAGED_KEY, service_key
from egressd.planner.nodes import lost_by_engine
from egressd.planner.targets import dial_path, used_targets
from egressd.service.blocking import egress_of, routed_by, why_blocked_now, why_failing
from egressd.service.ledger import Ledger
from egressd.service.lines import status_of
from egressd.service.ports import Clock, Netd
from egressd.service.system import System, seen_by
from egressd.service.target_rates import READ_EVERY_S, TargetRates

FLOWS_MAX: Final = 200


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of each."""

    rules: int
    enabled_rules: int
    nodes: int
    lines: int
    online_lines: int
    proxy_services: int
    targets: int
    failing_targets: int
    """Those of them that have clients, and a problem."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that share a target, and the interfaces that their traffic leaves by."""

    target: str
    kind: str
    clients: int
    """Enabled rules that name it."""
    egresses: tuple[str, ...]
    """Interfaces; ``DIRECT`` is whichever the device's own routes name."""
    upload_bps: int = 0
    download_bps: int = 0
    """Bits a second of its rules' clients, averaged over some ten seconds of being looked at."""
    problem: str = ""
    """Why its clients are blocked at the moment, or its nodes fail; empty when all is well."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The device at one moment."""

    at: str
    """To the millisecond, so that rates can be made of the counters of two overviews."""
    status: str
    """``restoring``, ``running`` or ``stopped``."""
    is_open: bool
    """Whether an operator has opened the device: no rule applies, everybody goes out directly."""
    uptime_s: int
    version: str
    revision: int
    connections: int
    memory: int
    counts: Counts
    interfaces: tuple[InterfaceStatus, ...]
    lines: dict[str, LineStatus]
    flows: tuple[Flow, ...]
    """At most `FLOWS_MAX`: those that block clients first, then those with the most clients."""
    problems: tuple[str, ...]


class Overviews:
    """Makes overviews. What only the configuration decides is kept by revision."""

    def __init__(self, ledger: Ledger, netd: Netd, system: System, clock: Clock) -> None:
        """`clock` tells milliseconds."""
        self._clock = clock
        self._ledger = ledger
        self._netd = netd
        self._system = system
        self._revision = -1
        self._planned: list[Flow] = []
        self._ways = _Ways(DesiredState())
        self._rates = TargetRates()
        self._read_next_at = 0.0

    async def now(self) -> Overview:
        """The device as it is. Never fails: without netd it is ``restoring``."""
        state = self._ledger.state
        if state.revision != self._revision:
            if self._ways.nodes is not state.nodes:
                self._ways = _Ways(state)
            self._planned = [self._plan(state, target) for target in used_targets(state)]
            self._revision = state.revision
        seen = await seen_by(self._netd)
        system = self._system.as_seen(seen)
        await self._read_rates(state)
        lines = {line.name: status_of(line, seen.lines) for line in state.lines.values()}
        flows = [self._live(flow, state, seen) for flow in self._planned]
        flows.sort(key=lambda flow: (not _is_failing(flow), -flow.clients, flow.target))
        return Overview(
            at=self._clock(),
            status=system.state,
            is_open=state.settings.opened,
            uptime_s=system.uptime_s,
            version=__version__,
            revision=state.revision,
            connections=system.connections,
            memory=system.memory,
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
            lines=lines,
            flows=tuple(flows[:FLOWS_MAX]),
            problems=(
                *seen.problems,
                *_services_problems(state, seen),
                *_engine_problems(state),
            ),
        )

    def _plan(self, state: DesiredState, target: str) -> Flow:
        parsed = parse_target(target)
        return Flow(
            target=target,
            kind=parsed.kind,
            clients=state.target_uses.get(target, 0),
            egresses=self._ways.egresses_of(parsed),
        )

    def _live(self, flow: Flow, state: DesiredState, seen: Status) -> Flow:
        target = parse_target(flow.target)
        served_by = [self._ways.keys_of(flow.target)]
        if flow.target == state.settings.unmanaged:
            served_by.append({UNMANAGED_KEY})
        problems = [why_blocked_now(state, target, flow.egresses, keys, seen) for keys in served_by]
        problems.append(why_failing(target, served_by[0], seen))
        rate = self._rates.of(flow.target)
        return msgspec.structs.replace(
            flow,
            problem=next(filter(None, problems), ""),
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


def _services_problems(state: DesiredState, seen: Status) -> Iterator[str]:
    """Why proxy services that should run do not."""
    for service in state.services.values():
        instance = seen.instances.get(service_key(service.id))
        if instance is not None and instance.problem:
            yield f"the proxy service {service.name} does not run: {instance.problem}"


def _engine_problems(state: DesiredState) -> Iterator[str]:
    """What the engine in force cannot do, once for all nodes that ask for it."""
    losses = Counter(filter(None, map(lost_by_engine, state.nodes.values())))
    for loss, number in losses.items():
        yield f"{number} node{'s' if number > 1 else ''}: {loss}"


def _is_failing(flow: Flow) -> bool:
    return bool(flow.problem and flow.clients)


class _Ways:
    """What each node is reached by and served by, found once for all: O(nodes)."""

    def __init__(self, state: DesiredState) -> None:
        self.nodes = state.nodes
        self._by_node: dict[str, tuple[str, ...]] = {}
        self._keys: dict[str, set[str]] = {}
        by_group: dict[str, dict[str, None]] = {}
        for node in state.nodes.values():
            way = dial_path(state, node)
            if way is not None:
                for target in (node.name, GROUP_PREFIX + node.group):
                    self._keys.setdefault(target, set()).add(f"node:{node.id}")
                name = egress_of(way)
                self._by_node[node.name] = (name,)
                by_group.setdefault(node.group, {})[name] = None
        self._by_group = {group: tuple(names) for group, names in by_group.items()}

    def keys_of(self, target: str) -> set[str]:
        """The engine instances that may serve a node or a group."""
        return self._keys.get(target, set())

    def egresses_of(self, target: TargetName) -> tuple[str, ...]:
        """What `egresses_of` finds for the state that this was made of."""
        match target.kind:
            case "node":
                return self._by_node.get(target.name, ())
            case "group":
                return self._by_group.get(target.name, ())
            case _:
                return routed_by(target)
