"""The valid settings of groups: each field, the members together, and the users of a group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal

import msgspec

from egressd.model.desired import DesiredState
from egressd.model.faults import Fault, Step, fault
from egressd.model.names import GROUP_PREFIX, node_name_problem, parse_target
from egressd.model.nouns import GROUP_STRATEGIES, NEVER, ON_SWITCH, GroupStrategy, OnSwitch
from egressd.model.wording import Sentence, say
from egressd.planner.name_filters import FILTER_MAX
from egressd.service import checks
from egressd.service.group_members import routed_member

GROUPS_MAX: Final = 1000
"""Groups with settings of their own."""
MEMBERS_MAX: Final = 1000
"""Targets that a group lists, those that its groups list included."""
DEPTH_MAX: Final = 4
"""Groups of which each is a member of the one before."""
WEIGHT: Final = (1, 100)
CHECK_INTERVAL_S: Final = (5, 86_400)
"""Seconds between checks of a member: the fewest and the most."""
ROTATE_EVERY_S: Final = (60, 30 * 86_400)
"""Seconds between rotations by the clock, if there are any."""
TOLERANCE_MAX_MS: Final = 10_000
FAILBACK_MAX_MIN: Final = 1440
PATTERN_MAX: Final = FILTER_MAX
"""Characters of a filter."""


class GroupDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a group, as `TargetGroup` has them."""

    strategy: GroupStrategy | Literal[""] = ""
    members: tuple[str, ...] = ()
    weights: dict[str, int] = {}
    filter: str = ""
    check_url: str = ""
    check_interval_s: int = 10
    tolerance_ms: int = 50
    failback_min: int = 0
    on_switch: OnSwitch = "keep"
    rotate_every_s: int = 0


def name_problems(name: str, state: DesiredState) -> Iterator[Fault]:
    """Yield every fault of the name of a group, which may be a new one."""
    if not name:
        yield fault("name", "empty")
        return
    yield from checks.group("name", name)
    yield from checks.new_group("name", name, state)


def stored_name_problems(name: str) -> Iterator[Fault]:
    """Yield every fault of a group's name that can be found without the state."""
    if not name:
        yield fault("name", "empty")
    yield from checks.group("name", name)


def field_problems(group: GroupDraft) -> Iterator[Fault]:
    """Yield every fault of a group's fields that can be found without the state."""
    yield from checks.one_of("strategy", group.strategy, ("", *GROUP_STRATEGIES))
    yield from _list_problems(group.members)
    yield from _weight_problems(group)
    yield from checks.name_filter("filter", group.filter)
    if group.check_url:
        yield from checks.url("check_url", group.check_url)
    yield from checks.whole("check_interval_s", group.check_interval_s, *CHECK_INTERVAL_S)
    yield from checks.whole("tolerance_ms", group.tolerance_ms, 0, TOLERANCE_MAX_MS)
    if group.failback_min != NEVER and not 0 <= group.failback_min <= FAILBACK_MAX_MIN:
        yield fault("failback", "failback-form", least=1, most=FAILBACK_MAX_MIN)
    yield from checks.one_of("on_switch", group.on_switch, ON_SWITCH)
    if group.rotate_every_s:
        yield from checks.whole("rotate_every_s", group.rotate_every_s, *ROTATE_EVERY_S)
        if group.strategy != "sticky":
            yield fault("rotate_every_s", "rotation-without-sticky")


def _list_problems(members: tuple[str, ...]) -> Iterator[Fault]:
    if len(members) > MEMBERS_MAX:
        yield fault("members", "group-members-many", most=MEMBERS_MAX)
        return
    seen: set[str] = set()
    for place, member in enumerate(members):
        if member in seen:
            yield _of("members", place, "group-member-twice", name=member[:100])
        seen.add(member)
        for each in _form_problems(member):
            yield each.inside("members", place)


def _form_problems(member: str) -> Iterator[Fault]:
    parsed = parse_target(member)
    match parsed.kind:
        case "interface":
            yield from checks.interface("", parsed.name)
        case "group" if [*stored_name_problems(parsed.name)]:
            yield fault("", "group-member")
        case "node" if node_name_problem(parsed.name):
            yield fault("", "group-member")
        case "reject":
            yield fault("", "group-member")


def _weight_problems(group: GroupDraft) -> Iterator[Fault]:
    if group.weights and group.strategy != "spread":
        yield fault("weights", "weights-without-spread")
        return
    for member, weight in group.weights.items():
        if member not in group.members:
            yield _of("weights", member[:100], "weight-of-no-member")
        elif not WEIGHT[0] <= weight <= WEIGHT[1]:
            yield _of("weights", member, "whole-number", least=WEIGHT[0], most=WEIGHT[1])


def _of(field: str, step: Step, code: str, **values: str | int) -> Fault:
    return fault("", code, **values).inside(field, step)


def missing_problems(
    members: tuple[str, ...], known: Iterable[str], state: DesiredState
) -> Iterator[Fault]:
    """Yield members that do not exist in `state`, except for those that the group has already: a
    member stays when the node or the group that it names is deleted.
    """
    before = {*known}
    for place, member in enumerate(members):
        parsed = parse_target(member)
        if member in before or [*_form_problems(member)]:
            continue
        if not state.target_exists(parsed):
            name = parsed.name[:100]
            yield _of("members", place, "group-member-missing", kind=parsed.kind, name=name)


# --- Groups in groups. ----------------------------------------------------------------------


def structure_problems(state: DesiredState, changed: str = "") -> Iterator[Fault]:
    """Yield circles of groups, groups in too many others, and those with too many members: all of
    the state's, or those that the settings of the group `changed` are a part of.
    """
    below = {group.name: _groups_in(group.members) for group in state.groups.values()}
    names = [changed, *_above(below, changed)] if changed else sorted(below)
    if circle := _circle(below, names):
        yield fault("members", "relay-circle", circle=" -> ".join(circle))
        return
    nested = _Nested(state, below)
    if any(nested.depth(name) > DEPTH_MAX for name in names):
        yield fault("members", "group-depth", most=DEPTH_MAX)
    elif any(len(nested.listed(name)) > MEMBERS_MAX for name in names):
        yield fault("members", "group-members-many", most=MEMBERS_MAX)


def _groups_in(members: Iterable[str]) -> tuple[str, ...]:
    return tuple(m.removeprefix(GROUP_PREFIX) for m in members if m.startswith(GROUP_PREFIX))


def _circle(below: Mapping[str, tuple[str, ...]], names: Iterable[str]) -> tuple[str, ...]:
    """Return the first chain that leads from a group to itself, of those and of the groups in them;
    empty without one.
    """
    done: set[str] = set()
    for name in names:
        chain = [name]
        waiting = [iter(below.get(name, ()))]
        while chain:
            lower = next(waiting[-1], None)
            if lower is None:
                done.add(chain.pop())
                waiting.pop()
            elif lower in chain:
                return (*chain[chain.index(lower) :], lower)
            elif lower not in done:
                chain.append(lower)
                waiting.append(iter(below.get(lower, ())))
    return ()


def _above(below: Mapping[str, tuple[str, ...]], name: str) -> list[str]:
    """Return the groups that have a group among their members, also by others."""
    above: dict[str, list[str]] = {}
    for upper, names in below.items():
        for each in names:
            above.setdefault(each, []).append(upper)
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for upper in above.get(waiting.pop(), ()):
            if upper not in found:
                found[upper] = None
                waiting.append(upper)
    return [*found]


class _Nested:
    """Depths and listed members of the groups of a state without circles."""

    def __init__(self, state: DesiredState, below: Mapping[str, tuple[str, ...]]) -> None:
        self._state = state
        self._below = below
        self._depths: dict[str, int] = {}
        self._listed: dict[str, frozenset[str]] = {}

    def depth(self, name: str) -> int:
        """Return the number of groups in the longest chain that begins with this one."""
        for each in self._bottom_up(name, self._depths):
            inner = (self._depths[lower] for lower in self._below.get(each, ()))
            self._depths[each] = 1 + max(inner, default=0)
        return self._depths[name]

    def listed(self, name: str) -> frozenset[str]:
        """Return the targets that a group and those in it list, without groups."""
        for each in self._bottom_up(name, self._listed):
            settings = self._state.group_named(each)
            members = () if settings is None else settings.members
            own = (member for member in members if not member.startswith(GROUP_PREFIX))
            inner = (self._listed[lower] for lower in self._below.get(each, ()))
            self._listed[each] = frozenset(own).union(*inner)
        return self._listed[name]

    def _bottom_up(self, name: str, known: Mapping[str, object]) -> Iterator[str]:
        """Yield a group and those in it that are not known, each after those in it."""
        waiting = [name]
        while waiting:
            unknown = [each for each in self._below.get(waiting[-1], ()) if each not in known]
            if unknown:
                waiting += unknown
                continue
            each = waiting.pop()
            if each not in known:
                yield each


# --- Users of groups. -----------------------------------------------------------------------


def of_nodes(field: str, target: str, state: DesiredState) -> Iterator[Fault]:
    """Yield the fault of a target that is a group with members that are no nodes."""
    parsed = parse_target(target)
    if parsed.kind == "group" and (member := routed_member(state, parsed.name)):
        yield fault(field, "group-not-of-nodes", name=parsed.name, member=member)


def use_problems(state: DesiredState) -> Iterator[Fault]:
    """Yield groups with members that are no nodes, where only nodes are of use."""
    for target, user in _uses(state):
        parsed = parse_target(target)
        if parsed.kind == "group" and (member := routed_member(state, parsed.name)):
            yield fault("members", "group-in-use", name=parsed.name, member=member, user=user)


def _uses(state: DesiredState) -> Iterator[tuple[str, Sentence]]:
    yield state.settings.unmanaged, say("clients-without-a-rule")
    yield state.whitelist.node, say("the-whitelist")
