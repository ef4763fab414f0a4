"""The one judgement of clients: the interfaces by which they leave, or why they are blocked.

All reports about clients use it: *Why?*, the overview, `problems`, the log and the events. It
judges a target by the configuration and netd's current status. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from ipaddress import IPv4Address
from typing import Final

import msgspec

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.messages import Status
from egressd.model.names import DIRECT, GROUP_PREFIX, TargetName, parse_target
from egressd.model.wording import NONE, Coded, Coding, Sentence, say, together
from egressd.planner import whitelist_entries
from egressd.planner.compile import UNMANAGED_KEY, instance_keys
from egressd.planner.nodes import DialPath, outbound_of
from egressd.planner.targets import dial_path, dial_paths, members_of, used_targets
from egressd.planner.topology import is_client_space, is_line
from egressd.service.group_members import routed_member
from egressd.service.reachability import egress_of, egresses_of, routed_by, why_blocked

_DIGITS: Final = re.compile(r"\d+")
_NAMED: Final = 3
"""Targets of one cause that a sentence names."""
_TARGETS_MAX: Final = 20
CAUSES_MAX: Final = 20
"""Causes that are reported separately, those of the most clients first."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for a target's clients. REJECT blocks on purpose: it has no reason."""

    egresses: tuple[str, ...] = ()
    """Interfaces that they may leave by; ``DIRECT`` stands for the device's own routes."""
    cause: str = ""
    """A word for the kind of reason; empty if there is none: ``stopped``, ``target``, ``lan``,
    ``lease``, ``table``, ``engine``, ``exit``, ``nodes``, ``nowhere``, ``names``."""
    reason: Sentence = NONE
    """The reason why they are blocked; else empty."""

    @property
    def is_blocked(self) -> bool:
        """True if none of their packets arrives. With cause ``names`` packets to addresses do."""
        return self.cause not in ("", "names")

    @property
    def is_found_out(self) -> bool:
        """True if it was found by probing, so that a new probe shows whether it still holds."""
        return self.cause in ("nodes", "nowhere", "names")


class Blocked(Coding, frozen=True, kw_only=True):
    """Clients that are blocked for one reason, and not by REJECT."""

    cause: str
    reason: Sentence
    reason_coded: Coded | None = None
    clients: int
    """The number of enabled rules."""
    targets: tuple[str, ...]
    """The first of the targets."""
    since: str
    text: Sentence
    """The same as a sentence, which also appears among the problems."""


class EgressIndex:
    """The egress and the instances of each node, computed once for all: O(nodes)."""

    def __init__(self, state: DesiredState, resolvers: Resolvers) -> None:
        self.state = state
        self.resolvers = resolvers
        self._by_node: dict[str, tuple[str, ...]] = {}
        self._keys: dict[str, set[str]] = {}
        by_group: dict[str, dict[str, None]] = {}
        for node in state.nodes.values():
            path = dial_path(state, node)
            if path is not None:
                for target in (node.name, GROUP_PREFIX + node.group):
                    self._keys.setdefault(target, set()).add(f"node:{node.id}")
                name = egress_of(path)
                self._by_node[node.name] = (name,)
                by_group.setdefault(node.group, {})[name] = None
        for group in state.groups.values():
            nodes = [n for n in members_of(state, group.name) if n in self._by_node]
            keys = (self._keys[name] for name in nodes)
            self._keys[GROUP_PREFIX + group.name] = {key for each in keys for key in each}
            by_group[group.name] = dict.fromkeys(e for n in nodes for e in self._by_node[n])
        self._by_group = {group: tuple(names) for group, names in by_group.items()}

    def keys_of(self, target: str) -> set[str]:
        """Return the engine instances that may serve a target's clients."""
        if parse_target(target).kind in ("node", "group"):
            return self._keys.get(target, set())
        return instance_keys(self.state, target, self.resolvers)

    def egresses_of(self, target: TargetName) -> tuple[str, ...]:
        """Return the result of `blocking.egresses_of` for the state that this was made of."""
        match target.kind:
            case "node":
                return self._by_node.get(target.name, ())
            case "group":
                return self._by_group.get(target.name, ())
            case _:
                return routed_by(target)


def judge(state: DesiredState, target: str, resolvers: Resolvers, seen: Status) -> Verdict:
    """Return the verdict on clients that a rule sends to `target`."""
    parsed = parse_target(target)
    if parsed.kind == "group" and routed_member(state, parsed.name):
        return _judge_members(state, parsed, seen, lambda each: judge(state, each, resolvers, seen))
    keys = instance_keys(state, target, resolvers)
    if parsed.kind in ("node", "group"):
        keys = {f"node:{path.hops[0].id}" for path in dial_paths(state, parsed)}
    return _judge(state, parsed, egresses_of(state, parsed), keys, seen)


def judge_unruled(state: DesiredState, seen: Status) -> Verdict:
    """Return the verdict on clients without a rule, which have an engine instance of their own."""
    if state.settings.opened:
        return _judge(state, parse_target(DIRECT), (DIRECT,), set(), seen)
    parsed = parse_target(state.settings.unmanaged)
    return _judge(state, parsed, egresses_of(state, parsed), {UNMANAGED_KEY}, seen)


def judge_all(state: DesiredState, index: EgressIndex, seen: Status) -> dict[str, Verdict]:
    """Return the verdict on each target that traffic can be sent to. O(rules' targets and
    nodes).
    """
    if state.settings.opened:
        return dict.fromkeys(used_targets(state), judge_unruled(state, seen))
    return {
        target: _judge_by_index(state, target, index, seen)
        for target in sorted(used_targets(state))
    }


def _judge_by_index(state: DesiredState, target: str, index: EgressIndex, seen: Status) -> Verdict:
    parsed = parse_target(target)
    if parsed.kind == "group" and routed_member(state, parsed.name):
        return _judge_members(
            state, parsed, seen, lambda each: _judge_by_index(state, each, index, seen)
        )
    return _judge(state, parsed, index.egresses_of(parsed), index.keys_of(target), seen)


def _judge_members(
    state: DesiredState, group: TargetName, seen: Status, judge_one: Callable[[str], Verdict]
) -> Verdict:
    """Return the verdict on the clients of a group that has other members than nodes, which works
    as long as one of them does.
    """
    verdicts = []
    for member in members_of(state, group.name):
        verdict = judge_one(member)
        if not verdict.is_blocked and member in seen.silent_members:
            reason = say("member-silent", target=member)
            verdict = Verdict(egresses=verdict.egresses, cause="nowhere", reason=reason)
        verdicts.append(verdict)
    working = [verdict for verdict in verdicts if not verdict.is_blocked]
    if working:
        best = min(working, key=lambda verdict: verdict.cause)
        egresses = dict.fromkeys(name for verdict in working for name in verdict.egresses)
        return Verdict(egresses=tuple(egresses), cause=best.cause, reason=best.reason)
    first = verdicts[0]
    reasons = tuple(dict.fromkeys(verdict.reason for verdict in verdicts))
    return Verdict(
        cause=first.cause,
        reason=first.reason
        if len(reasons) == 1
        else say("no-member-works", reason=together(reasons[:_NAMED])),
    )


def why_no_client(address: IPv4Address, seen: Status) -> Sentence:
    """Return why an address cannot be that of a client; else empty."""
    if seen.networks is None:
        return NONE
    if not seen.networks:
        return _NO_LAN
    if any(_covers(network, address) for network in seen.networks):
        return NONE
    return say("address-outside", address=str(address), networks=seen.networks)


def blocked(
    state: DesiredState, verdicts: dict[str, Verdict], since: dict[str, str]
) -> tuple[Blocked, ...]:
    """Return the blocked clients, by cause: at most `CAUSES_MAX` entries, the last for the rest."""
    groups: dict[tuple[str, str], list[str]] = {}
    for target, verdict in verdicts.items():
        if verdict.reason and state.target_uses.get(target, 0):
            groups.setdefault((verdict.cause, _general(verdict)), []).append(target)
    found = [_blocked(state, targets, verdicts, since) for targets in groups.values()]
    found.sort(key=lambda each: (-each.clients, each.text))
    if len(found) <= CAUSES_MAX:
        return tuple(found)
    told, rest = found[: CAUSES_MAX - 1], found[CAUSES_MAX - 1 :]
    clients = sum(each.clients for each in rest)
    reason = say("many-reasons", n=len(rest))
    targets = [target for each in rest for target in each.targets]
    return (
        *told,
        Blocked(
            cause="several",
            reason=reason,
            clients=clients,
            targets=tuple(targets[:_TARGETS_MAX]),
            since=min(each.since for each in rest),
            text=sentence(clients, targets, "several", reason),
        ),
    )


def others_blocked(
    state: DesiredState, verdicts: dict[str, Verdict], unruled: Verdict
) -> Iterator[Sentence]:
    """Yield sentences about blocked traffic that belongs to no rule's target."""
    if unruled.is_blocked:
        yield say("unruled-blocked", reason=unruled.reason)
    node = state.whitelist.node
    if (
        whitelist_entries.has_entries(state.whitelist)
        and node in verdicts
        and verdicts[node].is_blocked
    ):
        yield say("whitelist-blocked", reason=verdicts[node].reason)


def sentence(clients: int, targets: Collection[str], cause: str, reason: Sentence) -> Sentence:
    """Return the sentence about clients that are blocked."""
    code = "clients-nameless" if cause == "names" else "clients-blocked"
    return say(code, n=clients, targets=listed(targets), reason=reason)


def listed(names: Collection[str]) -> str:
    """Return the first few names for a sentence."""
    shown = tuple(names)[:_NAMED]
    more = len(names) - _NAMED
    return ", ".join(shown) if more <= 0 else say("and-others", names=shown, n=more)


_NO_LAN: Final = say("no-lan")
_STOPPED: Final = say("device-stopped")
_NO_LEASE: Final = say("site-no-lease")
_SEVERAL: Final = {"target": say("targets-nowhere")}
"""Reasons for several targets that are blocked by one cause, each for a reason of its own."""


def _judge(
    state: DesiredState,
    target: TargetName,
    egresses: tuple[str, ...],
    keys: set[str],
    seen: Status,
) -> Verdict:
    cause, reason = next(
        (
            (cause, reason)
            for cause, reason in _reasons(state, target, egresses, keys, seen)
            if reason
        ),
        ("", NONE),
    )
    return Verdict(egresses=egresses, cause=cause, reason=reason)


def _reasons(
    state: DesiredState,
    target: TargetName,
    egresses: tuple[str, ...],
    keys: set[str],
    seen: Status,
) -> Iterator[tuple[str, Sentence]]:
    """Yield all possible causes, the most certain first; the reason of an absent one is empty."""
    if state.settings.stopped:
        yield "stopped", _STOPPED
    yield "target", why_blocked(state, target)
    if target.kind == "reject":
        return
    if seen.networks == ():
        yield "lan", _NO_LAN
    if seen.lease_ms == 0:
        yield "lease", _NO_LEASE
    yield "table", seen.full
    yield "engine", _instance_problem(target, egresses, keys, seen)
    yield "exit", _exit_problem(state, target, egresses, seen)
    if target.kind in ("node", "group"):
        yield "nodes", why_failing(target, keys, seen)
    else:
        yield "nowhere", _joined(egresses, seen.dead_ends)
        yield "names", _joined(egresses, seen.nameless)


def why_failing(target: TargetName, keys: set[str], seen: Status) -> Sentence:
    """Return why traffic to a node or a group is blocked, as far as known; else empty.

    `keys` are those of the engine instances of its nodes, except for nodes that have no egress.
    """
    reasons = [seen.failing[key] for key in sorted(keys & seen.failing.keys())]
    if not reasons or len(reasons) < len(keys):
        return NONE
    return say("node-fails" if target.kind == "node" else "nodes-fail", reason=reasons[0])


def _instance_problem(
    target: TargetName, egresses: tuple[str, ...], keys: set[str], seen: Status
) -> Sentence:
    """Return why no engine instance of a target serves it; empty if one does, or none is needed."""
    if target.kind in ("node", "group") and not egresses:
        return say("no-node-out")
    if target.kind in ("node", "group") and seen.unserved:
        return seen.unserved
    problems = [seen.instances[key].problem for key in sorted(keys & seen.instances.keys())]
    return problems[0] if problems and all(problems) else NONE


def _exit_problem(
    state: DesiredState, target: TargetName, egresses: tuple[str, ...], seen: Status
) -> Sentence:
    """Return why nothing can leave by any of these interfaces; empty if something can."""
    reasons = {name: why_closed(name, seen) for name in egresses}
    if not all(reasons.values()):
        return NONE
    if target.kind in ("node", "group") and not all(map(_is_far, dial_paths(state, target))):
        return NONE  # a neighbour may be reached without a gateway, or by IPv6
    return together(reasons.values())


def why_closed(name: str, seen: Status) -> Sentence:
    """Return why nothing can leave by an interface or ``DIRECT``, as netd sees it; else empty."""
    if is_line(name):
        line = seen.lines.get(name)
        if line is None or line.is_online:
            return NONE
        return say("line-offline", name=name, reason=line.reason or line.state)
    return seen.egress_problems.get(name, NONE)


def _is_far(path: DialPath) -> bool:
    """True if a node's packets need an IPv4 gateway, judging by its server's address."""
    server = outbound_of(path.hops[-1]).server
    try:
        return not is_client_space(IPv4Address(server))
    except ValueError:
        return ":" not in server


def _joined(egresses: Iterable[str], reasons: dict[str, Sentence]) -> Sentence:
    found = [reasons.get(name, NONE) for name in egresses]
    return together(found) if all(found) else NONE


def _covers(network: str, address: IPv4Address) -> bool:
    base, _, length = network.partition("/")
    shift = 32 - int(length or 32)
    return int(IPv4Address(base)) >> shift == int(address) >> shift


def shape(text: str) -> str:
    """Return a text without its numbers, which may differ each time."""
    return _DIGITS.sub("#", text)


def _general(verdict: Verdict) -> str:
    if verdict.cause in _SEVERAL:
        return ""
    return shape(verdict.reason) if verdict.cause == "nodes" else verdict.reason


def _blocked(
    state: DesiredState,
    targets: list[str],
    verdicts: dict[str, Verdict],
    since: dict[str, str],
) -> Blocked:
    targets = sorted(targets, key=lambda target: (-state.target_uses[target], target))
    first = verdicts[targets[0]]
    reasons = {verdicts[target].reason for target in targets}
    reason = first.reason if len(reasons) == 1 else _SEVERAL.get(first.cause, first.reason)
    clients = sum(state.target_uses[target] for target in targets)
    return Blocked(
        cause=first.cause,
        reason=reason,
        clients=clients,
        targets=tuple(targets[:_TARGETS_MAX]),
        since=min(since.get(target, "") for target in targets),
        text=sentence(clients, targets, first.cause, reason),
    )
