"""Check the values of a change before anything is done with it; decoding has checked its types.

netd runs as root and the api does not. So a value from the api becomes part of an nft script, a
route, a file or an engine document only if it has one of the forms of `egressd.model.forms`, which
decoding a request checks, and the keys and marks that the planner gives, which this module checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv4Network
from itertools import chain, islice
from socket import AF_INET, inet_pton
from typing import Any, Final

from egressd.model.errors import Invalid
from egressd.model.instances import (
    Asker,
    Dialer,
    Instance,
    KernelPath,
    NodePath,
    ProxyListener,
    Sniffer,
    Work,
)
from egressd.model.names import DIRECT, INTERFACE_PREFIX, is_interface_name
from egressd.model.nouns import Line
from egressd.model.plan import PLAN_VERSION, TABLES, Change, Egress, Group, Plan, WhitelistPlan
from egressd.planner.lines.dial import malformed
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_EGRESS,
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_LINE,
    MARK_REJECT,
    MARK_UNMANAGED,
    PLANNED_EGRESS_MAX,
    asker_mark,
    group_mark,
    node_mark,
    sniffer_mark,
)
from egressd.planner.rule_set import RULE_SETS_MAX, name_of, sound_size
from egressd.planner.service_ports import reason_reserved

_KEY: Final = re.compile(r"([a-z]+):(0|[1-9][0-9]{0,9})\Z")
_RANGE: Final = re.compile(r"([0-9.]{7,15})-([0-9.]{7,15})\Z")
_TOLD_MAX: Final = 20
_SHOWN: Final = 60
"""Characters of a key that a message repeats."""


def check(change: Change, plan: Plan) -> None:
    """Raise Invalid, with the first `_TOLD_MAX` faults, unless the change is well-formed and `plan`
    is complete and not too large after it.
    """
    _refuse(chain(_sizes(change, plan), problems(change), _missing(change, plan)))


def check_paths(paths: Iterable[tuple[str, NodePath | KernelPath]]) -> None:
    """Raise Invalid unless each of `paths`, by the name of its field, may be tried or measured.

    The mark decides what the kernel lets the engine reach: with another mark, requests could reach
    programs that listen on this machine's loopback.
    """
    _refuse(f"{field}.{fault}" for field, path in paths for fault in _path(path))


def _refuse(faults: Iterable[str]) -> None:
    if told := [*islice(faults, _TOLD_MAX)]:
        raise Invalid(*told)


def _sizes(change: Change, plan: Plan) -> Iterator[str]:
    for name, most in TABLES.items():
        table, patch = getattr(plan, name), getattr(change, name)
        more = sum(key not in table for key in patch.put)
        more -= sum(key in table and key not in patch.put for key in {*patch.drop})
        if more > 0 and len(table) + more > most:
            yield f"{name} must not have more than {most} entries"


def _missing(change: Change, plan: Plan) -> Iterator[str]:
    if not (change.groups or change.instances.drop or change.egresses.drop):
        return
    there = {DIRECT, *(key for key, _ in change.instances.applied(plan.instances))}
    there |= {INTERFACE_PREFIX + name for name, _ in change.egresses.applied(plan.egresses)}
    for key, group in change.groups.applied(plan.groups):
        if gone := next((member for member in group.members if member not in there), ""):
            forms = "instances or egresses of the plan"
            yield f"groups.{key}: members must be {forms}, and {gone} is none"


def problems(change: Change) -> Iterator[str]:
    """Yield each fault of `change`, as a sentence that names the field."""
    if change.version != PLAN_VERSION:
        yield f"the plan is of version {change.version}, this netd takes {PLAN_VERSION}"
    for name, key_ok, faults in _TABLES:
        patch = getattr(change, name)
        for key in patch.drop:
            if not key_ok(key):
                yield f"{name}: {key[:_SHOWN]!r} is no key of this table"
        for key, value in patch.put.items():
            if key_ok(key):
                for fault in faults(key, value):
                    yield f"{name}.{key}: {fault}"
            else:
                yield f"{name}: {key[:_SHOWN]!r} is no key of this table"
    if change.policy is not None and not _is_mark_or_zero(change.policy.unmanaged):
        yield "policy.unmanaged must be the mark of a target, or 0"
    if change.whitelist is not None:
        yield from (f"whitelist.{fault}" for fault in _whitelist(change.whitelist))


# --- Keys. ----------------------------------------------------------------------------------


def _is_address(text: str) -> bool:
    # As strict as `IPv4Address`, and ten times as fast: a plan has 10,000 addresses.
    try:
        inet_pton(AF_INET, text)
    except (OSError, ValueError):
        return False
    return True


def _is_range(text: str) -> bool:
    match = _RANGE.match(text)
    if match is None or not all(map(_is_address, match.groups())):
        return False
    first, last = (inet_pton(AF_INET, address) for address in match.groups())
    return first <= last


def _is_network(text: str) -> bool:
    try:
        IPv4Network(text)
    except ValueError:
        return False
    return True


def _is_instance_key(key: str) -> bool:
    found = _KEY.match(key)
    return found is not None and found[1] in _INSTANCES


def _is_node_key(key: str) -> bool:
    found = _KEY.match(key)
    return found is not None and found[1] == "node"


def _is_group_key(key: str) -> bool:
    found = _KEY.match(key)
    return found is not None and found[1] == "group"


def _is_egress_name(name: str) -> bool:
    return is_interface_name(name) and name != "lo"


def _numbered(key: str) -> tuple[str, int]:
    kind, _, number = key.partition(":")
    return kind, int(number)


# --- Marks. ---------------------------------------------------------------------------------


def _is_mark(mark: int) -> bool:
    return mark & MARK_KIND_MASK == MARK_ENGINE or mark == MARK_REJECT or _leaves(mark)


def _is_mark_or_zero(mark: int) -> bool:
    return mark == 0 or _is_mark(mark)


def _leaves(mark: int) -> bool:
    """True if the kernel routes packets with the mark: directly, or by a numbered interface."""
    number = mark & ~(MARK_KIND_MASK | MARK_LINE)
    is_egress = mark & MARK_KIND_MASK == MARK_EGRESS and 0 < number <= PLANNED_EGRESS_MAX
    return mark == MARK_DIRECT or is_egress


def _asks(mark: int) -> bool:
    return mark == MARK_ASKED_DIRECTLY or _leaves(mark)


# --- Entries. -------------------------------------------------------------------------------


def _mark(_key: str, mark: int) -> Iterable[str]:
    return () if _is_mark(mark) else ("must be the mark of a target",)


def _instance(key: str, instance: Instance) -> Iterator[str]:
    kind, number = _numbered(key)
    work, mark_of = _INSTANCES[kind]
    if instance.key != key:
        yield f"key must be {key}"
    try:
        is_own_mark = instance.mark == mark_of(number)
    except ValueError:  # such a number has no mark
        is_own_mark = False
    if not is_own_mark:
        yield f"mark must be that of {key}"
    if isinstance(instance.work, work):
        yield from (f"work.{fault}" for fault in _work(instance.work))
    else:
        yield f"work must be that of a {kind}"


def _work(work: Work) -> Iterator[str]:
    match work:
        case Dialer():
            if len(work.paths) > 1 and work.policy is None:
                yield "policy must be given for several paths"
            for place, path in enumerate(work.paths):
                yield from (f"paths[{place}].{fault}" for fault in _path(path))
        case Sniffer():
            if work.mark != MARK_REJECT and not _leaves(work.mark):
                yield "mark must be DIRECT's, REJECT's or an interface's"
        case Asker():
            if not _asks(work.mark):
                yield "mark must be DIRECT's or an interface's"
        case ProxyListener():
            if not _leaves(work.mark):
                yield "mark must be an interface's"
            if not _asks(work.dns_mark):
                yield "dns_mark must be DIRECT's or an interface's"
            if use := reason_reserved(work.port):
                yield f"port must not be one that the system reserves: {work.port} is for {use}"


def _path(path: NodePath | KernelPath) -> Iterator[str]:
    if not _leaves(path.mark):
        yield "mark must be DIRECT's or an interface's"


def _group(key: str, group: Group) -> Iterator[str]:
    try:
        is_own_mark = group.mark == group_mark(_numbered(key)[1])
    except ValueError:
        is_own_mark = False
    if not is_own_mark:
        yield f"mark must be that of {key}"
    if others := group.weights.keys() - set(group.members):
        yield f"weights must be those of members, and {min(others)} is none"


def _egress(_key: str, egress: Egress) -> Iterator[str]:
    if not 0 < egress.number <= PLANNED_EGRESS_MAX:
        yield f"number must be a whole number from 1 to {PLANNED_EGRESS_MAX}"


def _line(key: str, line: Line) -> Iterator[str]:
    if line.name != key:
        yield f"name must be {key}"
    yield from malformed(line)


def _whitelist(listed: WhitelistPlan) -> Iterator[str]:
    if not _is_mark_or_zero(listed.mark):
        yield "mark must be the mark of a target, or 0"
    if not all(map(_is_range, listed.ranges)):
        yield "ranges must be ranges of IPv4 addresses"
    if not all(_is_mark(k) and _is_mark(v) for k, v in listed.sniffers.items()):
        yield "sniffers must be marks of targets"
    left = RULE_SETS_MAX
    for name, content in listed.rule_sets.items():
        size = sound_size(content, left)
        if name != name_of(content) or not size:
            yield f"rule_sets.{name} must hold the domains that it is named by, and nothing else"
            return  # each further rule set may take as long to read
        left -= size


def _default_mark(number: int) -> int:
    if number:
        raise ValueError("there is one")
    return MARK_UNMANAGED


_INSTANCES: Final[dict[str, tuple[type[Work], Callable[[int], int]]]] = {
    "node": (Dialer, node_mark),
    "default": (Dialer, _default_mark),
    "sniff": (Sniffer, sniffer_mark),
    "dns": (Asker, asker_mark),
    "service": (ProxyListener, lambda _: 0),
}
"""Kind of an instance's key -> the type of its work, and a function from its number to its mark."""

_Table = tuple[str, Callable[[str], bool], Callable[[str, Any], Iterable[str]]]
_TABLES: Final[tuple[_Table, ...]] = (
    ("hosts", _is_address, _mark),
    ("nets", _is_range, _mark),
    ("instances", _is_instance_key, _instance),
    ("groups", _is_group_key, _group),
    ("egresses", _is_egress_name, _egress),
    ("limits", _is_network, lambda *_: ()),
    ("lines", is_interface_name, _line),
    ("bindings", _is_address, lambda *_: ()),
    ("neighbours", _is_node_key, lambda *_: ()),
)
