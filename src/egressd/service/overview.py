"""Everything that an operator sees at a glance, in one document."""

from __future__ import annotations

from typing import Final

import msgspec

from egressd import __version__
from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.model.messages import InterfaceStatus, LineStatus, Status
from egressd.model.names import DIRECT, TargetName, parse_target
from egressd.planner.compile import dial_paths, instance_keys, used_targets
from egressd.planner.documents import settings_of
from egressd.service.consequences import why_blocked
from egressd.service.ledger import Ledger
from egressd.service.ports import Clock, Netd
from egressd.service.system import System

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


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Clients that share a target, and the interfaces that their traffic leaves by."""

    target: str
    kind: str
    clients: int
    """Enabled rules that name it."""
    egresses: tuple[str, ...]
    """Interfaces; ``DIRECT`` is whichever the device's own routes name."""
    problem: str = ""
    """Why its clients are blocked at the moment; empty when they are not."""


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

    async def now(self) -> Overview:
        """The device as it is. Never fails: without netd it is ``restoring``."""
        state = self._ledger.state
        if state.revision != self._revision:
            self._planned = [_planned(state, target) for target in used_targets(state)]
            self._revision = state.revision
        system = await self._system.status()
        seen = await seen_by(self._netd)
        lines = {
            line.name: seen.lines.get(line.name, LineStatus(is_online=False))
            for line in state.lines.values()
        }
        flows = [_live(flow, state, seen) for flow in self._planned]
        flows.sort(
            key=lambda flow: (not (flow.problem and flow.clients), -flow.clients, flow.target)
        )
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
            ),
            interfaces=seen.interfaces,
            lines=lines,
            flows=tuple(flows[:FLOWS_MAX]),
            problems=seen.problems,
        )


async def seen_by(netd: Netd) -> Status:
    """What netd sees of the device, its lines included; hardly anything while it is away."""
    try:
        status = await netd.status()
    except Failed as error:
        return Status(state="restoring", revision=0, problems=(str(error),))
    return msgspec.structs.replace(status, lines=dict(netd.lines()))


def egresses_of(state: DesiredState, target: TargetName) -> tuple[str, ...]:
    """The interfaces that a target's traffic may leave by; ``DIRECT``: the device's own choice."""
    match target.kind:
        case "direct":
            return (DIRECT,)
        case "interface":
            return (target.name,)
        case _:
            last_hops = (path.hops[-1] for path in dial_paths(state, target))
            names = (settings_of(hop).interface_name or DIRECT for hop in last_hops)
            return tuple(dict.fromkeys(names))


def blocked_now(
    state: DesiredState, target: TargetName, egresses: tuple[str, ...], seen: Status
) -> str:
    """Why clients of `target`, which leave by `egresses`, are blocked at the moment; else empty.

    REJECT blocks nobody by mistake, so it has no reason.
    """
    if state.settings.stopped:
        return "an operator has stopped the device"
    return (
        (why_blocked(state, str(target)) or "")
        or _instance_problem(state, target, egresses, seen)
        or _egress_problem(egresses, seen)
    )


def _planned(state: DesiredState, target: str) -> Flow:
    parsed = parse_target(target)
    return Flow(
        target=target,
        kind=parsed.kind,
        clients=state.target_uses.get(target, 0),
        egresses=egresses_of(state, parsed),
    )


def _live(flow: Flow, state: DesiredState, seen: Status) -> Flow:
    problem = blocked_now(state, parse_target(flow.target), flow.egresses, seen)
    return msgspec.structs.replace(flow, problem=problem) if problem else flow


def _instance_problem(
    state: DesiredState, target: TargetName, egresses: tuple[str, ...], seen: Status
) -> str:
    """Why the engine instances of a target serve nobody; empty when one does, or none has to."""
    if target.kind not in ("node", "group"):
        return ""
    if not egresses:
        return "none of its nodes has a way out"
    keys = sorted(instance_keys(state, str(target)) & seen.instances.keys())
    problems = [seen.instances[key].problem for key in keys]
    return problems[0] if problems and all(problems) else ""


def _egress_problem(egresses: tuple[str, ...], seen: Status) -> str:
    """Why nothing can leave by any of these interfaces; empty when something can."""
    if not egresses or DIRECT in egresses or not seen.revision:
        return ""
    known = {interface.name: interface for interface in seen.interfaces}
    reasons = []
    for name in egresses:
        interface = known.get(name)
        line = seen.lines.get(name)
        if interface is not None and interface.is_up and interface.ip:
            return ""
        if line is not None and not line.is_online:
            reasons.append(f"the line {name} is offline: {line.reason or line.state}")
        elif interface is None:
            reasons.append(f"there is no interface {name}")
        elif not interface.is_up:
            reasons.append(f"the interface {name} is down")
        else:
            reasons.append(f"the interface {name} has no address")
    return "; ".join(reasons)
