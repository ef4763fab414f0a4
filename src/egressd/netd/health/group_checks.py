"""Check the nodes of groups regularly, and at once when connections through one fail.

Nodes that serve clients are checked twice in a check interval, so that a silent node is found in
time: half an interval passes until it is checked, and two requests time out after a sixth of the
interval each (`_TIMEOUTS`). All other nodes are checked once in an interval, a few at a time: a
thousand outbounds at once would cost a hundred megabytes. A node that refuses connections is found
by the first client that it refuses: the engine reports the failure (`suspect`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Final

import structlog

from egressd.model.errors import EgressdError
from egressd.model.instances import Dialer, Instance
from egressd.model.plan import Group, Plan
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.health.groups import Groups, members, serving
from egressd.netd.ports import DelaySource
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.documents import probe_document
from egressd.planner.groups import DEAD

log = structlog.get_logger()

_TIMEOUTS: Final = 6
"""The number of request timeouts that fit into the check interval."""
_TIMEOUT_MAX_MS: Final = 5_000
_AT_ONCE: Final = 64
"""Nodes that a survey checks at the same time."""
_ALL_DEAD_S: Final = 4.0
"""Seconds of the check interval while a group has no living node."""
_NO_GROUPS_S: Final = 5.0
"""Seconds between looks for groups while there are none: the shortest check interval."""
_TRUST_S: Final = 1.0
"""Seconds in which a suspect that answered is not suspected again: its clients then request
destinations that cannot be reached."""


class GroupChecks:
    """Keeps `groups.delays` up to date. `changed` is awaited after each check of nodes."""

    def __init__(
        self,
        pool: DelaySource,
        groups: Groups,
        plan: Callable[[], Plan],
        changed: Callable[[], Awaitable[None]],
    ) -> None:
        self._pool = pool
        self._groups = groups
        self._plan = plan
        self._changed = changed
        self._checks = PeriodicTask("check the nodes in use", self._check_serving, _NO_GROUPS_S)
        self._survey = PeriodicTask("check all nodes", self._survey_all, _NO_GROUPS_S)
        self._is_whole = False
        """True if the next survey is of all nodes, those in use too."""
        self._cleared: dict[str, float] = {}
        """Instance key -> the time when a suspect was last found alive, by the loop's clock."""
        self._suspected: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start checking the nodes of the plan's groups."""
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
        """Check all nodes soon, since the groups or their nodes have changed."""
        self._is_whole = True
        self._survey.wake()

    def suspect(self, keys: Iterable[str]) -> None:
        """Check the nodes of groups among `keys`: the engine could not connect through them."""
        now = asyncio.get_running_loop().time()
        for key in members(self._plan()).intersection(keys) - self._suspected:
            if now - self._cleared.get(key, -_TRUST_S) >= _TRUST_S:
                self._suspected.add(key)
                self._run(self._clear_up(key))

    async def _clear_up(self, key: str) -> None:
        """Check a suspect. If it is dead, have all nodes checked, so that the choice of another
        node uses fresh results.
        """
        try:
            await self._ask([key])
            if self._groups.delays.get(key) == DEAD:
                self.refresh()
            else:
                self._cleared[key] = asyncio.get_running_loop().time()
        finally:
            self._suspected.discard(key)

    async def _check_serving(self) -> float:
        """Check the nodes that serve clients, twice an interval."""
        await self._ask(members(self._plan()) & serving(self._groups.choices))
        return self._period() / 2

    async def _survey_all(self) -> float:
        """Check the other nodes once an interval; check all nodes after `refresh`."""
        attended = set() if self._is_whole else serving(self._groups.choices)
        self._is_whole = False
        keys = sorted(members(self._plan()) - attended)
        for first in range(0, len(keys), _AT_ONCE):
            await self._ask(keys[first : first + _AT_ONCE])
        return self._period()

    def _period(self) -> float:
        """Return the check interval in seconds; a short one while a group has no living node."""
        groups = self._plan().groups.values()
        interval = min((group.interval_s for group in groups), default=_NO_GROUPS_S)
        delays = self._groups.delays
        if any(all(delays.get(key) == DEAD for key in group.members) for group in groups):
            return min(interval, _ALL_DEAD_S)
        return interval

    async def _ask(self, keys: Iterable[str]) -> None:
        """Measure nodes; measure those a second time that serve clients and fail."""
        try:
            failed = await self._measure(keys)
            if again := failed & serving(self._groups.choices):
                failed = failed - again | await self._measure(again)
        except EgressdError as error:
            log.warning("cannot check the nodes of groups", error=str(error))
            return
        except Exception:
            log.exception("cannot check the nodes of groups")
            return
        self._groups.delays |= dict.fromkeys(failed & self._plan().instances.keys(), DEAD)
        try:
            await self._changed()
        except EgressdError as error:
            log.warning("cannot move clients to another group member", error=str(error))
        except Exception:
            # No error may end the checks.
            log.exception("cannot move clients to another group member")

    async def _measure(self, keys: Iterable[str]) -> set[str]:
        """Note the delays of the nodes that answer. Return the keys of those that do not."""
        plan = self._plan()
        instances = {key: plan.instances[key] for key in keys if key in plan.instances}
        policy = next(iter(plan.groups.values()), None)
        if policy is None or not instances:
            return set()
        probes = [*probes_of(instances.values())]
        found = await self._pool.delays(probes, policy.url, _timeout_ms(policy))
        # A result of a node whose configuration has changed meanwhile is of the old one.
        valid = {
            key: delay.delay
            for key, delay in found.items()
            if (now := self._plan().instances.get(key)) and now.work == instances[key].work
        }
        alive = {key: delay for key, delay in valid.items() if delay != DEAD}
        self._groups.delays |= alive
        return valid.keys() - alive.keys()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def probes_of(instances: Iterable[Instance]) -> Iterator[ProbeDocument]:
    """Yield a probe for each node, by the path of its instance, named by the instance's key."""
    for instance in instances:
        if isinstance(instance.work, Dialer):
            config = probe_document(instance.work.paths[0])
            yield ProbeDocument(name=instance.key, config=config)


def _timeout_ms(group: Group) -> int:
    return min(_TIMEOUT_MAX_MS, group.interval_s * 1000 // _TIMEOUTS)
