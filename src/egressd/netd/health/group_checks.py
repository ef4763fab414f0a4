"""Check the members of groups regularly, and at once when connections through a node fail.

A member is checked by a request for the group's URL: through a node, or by the route of an
interface or of DIRECT.

Members that serve clients are checked twice in a check interval, so that a silent one is found in
time: half an interval passes until it is checked, and two requests time out after a sixth of the
interval each (`_TIMEOUTS`). With the second one those are checked that its clients may move to: if
none answers, no client moves. All others are checked once in an interval, a few at a time: a
thousand outbounds at once would cost a hundred megabytes. A node that refuses connections is found
by the first client that it refuses: the engine reports the failure (`suspect`). An interface that
goes down is left at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Final, NamedTuple

import structlog

from egressd.model.errors import EgressdError
from egressd.model.instances import Dialer, Instance, KernelPath, NodePath
from egressd.model.names import INTERFACE_PREFIX
from egressd.model.plan import Group, Plan, is_routed_member
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.health.groups import Groups, members, serving
from egressd.netd.ports import DelaySource
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.documents import probe_document
from egressd.planner.groups import DEAD, is_dead, member_mark
from egressd.planner.registry import RESOLVER_IN_USE

log = structlog.get_logger()

_TIMEOUTS: Final = 6
"""The number of request timeouts that fit into the check interval."""
_TIMEOUT_MAX_MS: Final = 5_000
_AT_ONCE: Final = 64
"""Members of a group that a survey checks at the same time."""
_ALL_DEAD_S: Final = 4.0
"""Seconds of the check interval while a group has no living node."""
_LOOK_S: Final = 5.0
"""Seconds at most between looks at the groups: another group may have come, or other intervals."""
_TRUST_S: Final = 1.0
"""Seconds in which a suspect that answered is not suspected again: its clients then request
destinations that cannot be reached."""


class _Check(NamedTuple):
    """A group's way to check its members. Another URL or interval makes another check, which is due
    at once.
    """

    group: str
    url: str
    interval_s: int


_Results = dict[str, tuple[int, NodePath | KernelPath]]


class GroupChecks:
    """Keeps the health of members up to date. `changed` is awaited after each check.

    `peer_dns` returns the resolvers that the peers of VPN lines hand out, by the line's name.
    """

    def __init__(
        self,
        pool: DelaySource,
        groups: Groups,
        plan: Callable[[], Plan],
        changed: Callable[[], Awaitable[None]],
        peer_dns: Callable[[], Mapping[str, tuple[str, ...]]] = dict,
    ) -> None:
        self._pool = pool
        self._groups = groups
        self._plan = plan
        self._changed = changed
        self._peer_dns = peer_dns
        self._checks = PeriodicTask("check the members in use", self._check_serving, _LOOK_S)
        self._survey = PeriodicTask("check all members", self._survey_all, _LOOK_S)
        self._is_whole = False
        """True if the next survey is of all members, those in use too."""
        self._check_at: dict[_Check, float] = {}
        """The time of the next check of a group's members in use, by the loop's clock."""
        self._survey_at: dict[_Check, float] = {}
        self._cleared: dict[str, float] = {}
        """Member -> the time when a suspect was last found alive, by the loop's clock."""
        self._suspected: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start checking the members of the plan's groups."""
        self._checks.start()
        self._survey.start()

    async def close(self) -> None:
        """Stop."""
        await self._checks.close()
        await self._survey.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refresh(self) -> None:
        """Check all members soon, since the groups or their members have changed."""
        self._is_whole = True
        self._survey.wake()

    def look(self) -> None:
        """Make the checks soon that are due, since a group may have another one."""
        self._checks.wake()
        self._survey.wake()

    def suspect(self, keys: Iterable[str]) -> None:
        """Check the members among `keys`: the engine could not connect through them."""
        now = asyncio.get_running_loop().time()
        for key in members(self._plan()).intersection(keys) - self._suspected:
            if now - self._cleared.get(key, -_TRUST_S) >= _TRUST_S:
                self._suspected.add(key)
                self._run(self._clear_up(key))

    async def _clear_up(self, key: str) -> None:
        """Check a suspect. If it is dead, have all members checked, so that the choice of another
        one uses fresh results.
        """
        try:
            groups = self._plan().groups.items()
            concerned = {name: group for name, group in groups if key in group.members}
            # Of a group that is dead, no member is checked alone: all clients would move to it.
            await self._ask(
                [
                    (group, self._parts(name, group, False)[0] if self._is_dead(group) else [key])
                    for name, group in concerned.items()
                ]
            )
            if key in self._groups.dead(self._plan()):
                self.refresh()
            else:
                self._cleared[key] = asyncio.get_running_loop().time()
        finally:
            self._suspected.discard(key)

    async def _check_serving(self) -> float:
        """Check the members that serve clients, twice an interval."""
        due = self._due(self._check_at, 2)
        choices = self._groups.choices
        asked = {key: choices[key].serving() for key in due if key in choices}
        await self._ask([(due[key], sorted(each)) for key, each in asked.items()])
        return self._rest(self._check_at)

    async def _survey_all(self) -> float:
        """Check the other members once an interval; check all members after `refresh`."""
        is_whole, self._is_whole = self._is_whole, False
        if is_whole:
            self._survey_at.clear()
        due = self._due(self._survey_at, 1)
        surveys = [(group, self._parts(key, group, is_whole)) for key, group in due.items()]
        for number in range(max((len(parts) for _, parts in surveys), default=0)):
            part = [(group, parts[number]) for group, parts in surveys if number < len(parts)]
            await self._ask(part)
        return self._rest(self._survey_at)

    def _parts(self, key: str, group: Group, is_whole: bool) -> list[list[str]]:
        """Return the members of a group that a survey checks, those together that it checks at the
        same time.

        If none lives, those that serve clients are checked with the first others: clients of all
        members would move to the one that is found first.
        """
        choice = self._groups.choices.get(key)
        serving = choice.serving() if choice is not None else set()
        others = [each for each in group.members if each not in serving]
        if self._is_dead(group):
            first = max(0, _AT_ONCE - len(serving))
            return [[*sorted(serving), *others[:first]], *_in_parts(others[first:])]
        return _in_parts(group.members if is_whole else others)

    def _due(self, at: dict[_Check, float], times: int) -> dict[str, Group]:
        """Return the groups whose time in `at` has come, and put in the next one: so many `times`
        in an interval.
        """
        now = asyncio.get_running_loop().time()
        checks = {
            _Check(key, group.url, group.interval_s): group
            for key, group in self._plan().groups.items()
        }
        due = {check: group for check, group in checks.items() if at.get(check, now) <= now}
        for check in at.keys() - checks.keys():
            del at[check]
        for check, group in due.items():
            at[check] = now + self._period(group) / times
        return {check.group: group for check, group in due.items()}

    def _rest(self, at: Mapping[_Check, float]) -> float:
        """Return the seconds until the first time in `at`, or until the next look for groups."""
        left = min(at.values(), default=math.inf) - asyncio.get_running_loop().time()
        return max(0.0, min(left, _LOOK_S))

    def _period(self, group: Group) -> float:
        """Return the check interval in seconds; a short one while a group has no living member."""
        return min(group.interval_s, _ALL_DEAD_S) if self._is_dead(group) else group.interval_s

    def _is_dead(self, group: Group) -> bool:
        return is_dead(group, self._groups.delays_of(group))

    async def _ask(self, asked: Iterable[tuple[Group, Collection[str]]]) -> None:
        """Check members of groups; check those a second time that serve clients and fail."""
        of_url: dict[str, list[tuple[Group, Collection[str]]]] = {}
        for group, keys in asked:
            if keys:
                of_url.setdefault(group.url, []).append((group, keys))
        if not of_url:
            return
        try:
            await asyncio.gather(*(self._ask_by(url, each) for url, each in of_url.items()))
        except EgressdError as error:
            log.warning("cannot check the members of groups", error=str(error))
            return
        except Exception:
            log.exception("cannot check the members of groups")
            return
        try:
            await self._changed()
        except EgressdError as error:
            log.warning("cannot move clients to another group member", error=str(error))
        except Exception:
            # No error may end the checks.
            log.exception("cannot move clients to another group member")

    async def _ask_by(self, url: str, asked: Sequence[tuple[Group, Collection[str]]]) -> None:
        timeout_ms = min(_timeout_ms(group) for group, _ in asked)
        keys = {key for _, each in asked for key in each}
        found = await self._measure(url, timeout_ms, keys)
        failed = {key for key, (delay, _) in found.items() if delay == DEAD}
        if again := failed & serving(self._groups.choices):
            others, are_all = self._successors(url, again)
            found |= await self._measure(url, timeout_ms, again | (others - found.keys()))
            if not are_all and all(delay == DEAD for delay, _ in found.values()):
                # The page may be what fails. The next checks ask others, until one answers or none
                # is left.
                found = {key: each for key, each in found.items() if key not in again}
        # All at once: what decides meanwhile must not see that some live and not yet the others. A
        # result of a member whose path has changed meanwhile is of the old one, and one by a URL
        # that its groups do not have any more must not be kept.
        now = self._plan()
        wanted = members(now, url)
        valid = {
            key: delay
            for key, (delay, path) in found.items()
            if key in wanted and self._path(now, key) == path
        }
        self._groups.note(url, valid)

    def _successors(self, url: str, failing: Collection[str]) -> tuple[set[str], bool]:
        """Return the members that clients may move to, if these fail: those of the same groups that
        are not known to be dead, `_AT_ONCE` of a group at most; and whether these are all. The page
        that is fetched may be what fails, by all members, and then no client has to move.
        """
        found: set[str] = set()
        are_all = True
        for group in self._plan().groups.values():
            if group.url == url and not {*group.members}.isdisjoint(failing):
                delays = self._groups.delays_of(group)
                living = [key for key in group.members if delays.get(key) != DEAD]
                found.update(living[:_AT_ONCE])
                are_all &= len(living) <= _AT_ONCE
        return found, are_all

    async def _measure(self, url: str, timeout_ms: int, keys: Iterable[str]) -> _Results:
        """Return the delay of each member in milliseconds, or `DEAD`, and the path of its check."""
        plan = self._plan()
        paths = {key: path for key in sorted(keys) if (path := self._path(plan, key)) is not None}
        if not paths:
            return {}
        probes = [
            ProbeDocument(name=key, config=probe_document(path)) for key, path in paths.items()
        ]
        found = await self._pool.delays(probes, url, timeout_ms)
        return {key: (delay.delay, paths[key]) for key, delay in found.items()}

    def _path(self, plan: Plan, key: str) -> NodePath | KernelPath | None:
        """Return the path by which a member is checked; None if there is none."""
        if is_routed_member(key):
            return None if self._groups.is_closed(key) else self._routed_path(plan, key)
        instance = plan.instances.get(key)
        return None if instance is None else _path_of(instance)

    def _routed_path(self, plan: Plan, key: str) -> KernelPath | None:
        """Return the path of a member that the kernel routes; None if the plan has none."""
        name = key.removeprefix(INTERFACE_PREFIX)
        servers = plan.policy.resolvers
        if name != key:
            egress = plan.egresses.get(name)
            if egress is None:
                return None
            own = egress.resolvers or self._peer_dns().get(name) or egress.default_resolvers
            servers = own or servers
        # Without a resolver a URL with an address works all the same.
        resolver = servers[0] if servers else str(RESOLVER_IN_USE)
        return KernelPath(mark=member_mark(plan, key), resolver=resolver)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def probes_of(instances: Iterable[Instance]) -> Iterator[ProbeDocument]:
    """Yield a probe for each node, by the path of its instance, named by the instance's key."""
    for instance in instances:
        if (path := _path_of(instance)) is not None:
            yield ProbeDocument(name=instance.key, config=probe_document(path))


def _path_of(instance: Instance) -> NodePath | None:
    """Return the path to a node, by its instance; None if the instance has another work."""
    return instance.work.paths[0] if isinstance(instance.work, Dialer) else None


def _in_parts(keys: Sequence[str]) -> list[list[str]]:
    """Return the keys in parts that are checked one after another."""
    return [[*keys[first : first + _AT_ONCE]] for first in range(0, len(keys), _AT_ONCE)]


def _timeout_ms(group: Group) -> int:
    return min(_TIMEOUT_MAX_MS, group.interval_s * 1000 // _TIMEOUTS)
