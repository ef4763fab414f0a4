"""The nodes that fail, as far as their clients' connections show it: for reports only.

A node is checked when connections through it fail, and then repeatedly until it answers. So this
costs nothing while all nodes work, and never checks an unused node. The results block and move no
client: only groups do that (`egressd.netd.health.group_checks`), by checks of their own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
import structlog

from egressd.model.delays import Delay
from egressd.model.errors import EgressdError
from egressd.model.instances import Instance
from egressd.model.plan import Plan
from egressd.model.wording import NONE, Sentence
from egressd.netd.health.group_checks import probes_of
from egressd.netd.ports import DelaySource
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.groups import DEAD

log = structlog.get_logger()

PERIOD_S: Final = 10.0
"""Seconds between checks of a node that failed."""
PATIENCE_S: Final = 5.0
PATIENCE_MAX_S: Final = 60.0
"""Seconds in which a node that answered is not checked again, even if it is suspected: clients also
request destinations that cannot be reached. The time doubles with each answer, from the first to
the second value."""
_TIMEOUT_MS: Final = 5_000
_AT_ONCE: Final = 64
"""Nodes that are checked at the same time."""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a node, which is not checked again for `patience` seconds."""

    asked: float
    """The time of the check by the loop's clock."""
    patience: float
    reason: Sentence
    """The reason why the node failed; empty if it answered."""


class NodeFailures:
    """Keeps `reasons`. `changed` is called when a node fails, and when it answers again."""

    def __init__(
        self, pool: DelaySource, plan: Callable[[], Plan], changed: Callable[[], None]
    ) -> None:
        self._pool = pool
        self._plan = plan
        self._changed = changed
        self._suspects: dict[str, None] = {}
        """Instance keys of nodes, in the order in which they were suspected."""
        self._known: dict[Instance, _Known] = {}
        self._task = PeriodicTask("check failing nodes", self._check, PERIOD_S)

    @property
    def reasons(self) -> dict[str, Sentence]:
        """Instance key -> the reason why its node failed at the last check."""
        failed = {each: known.reason for each, known in self._known.items() if known.reason}
        return {each.key: why for each, why in failed.items() if self._is_planned(each)}

    def start(self) -> None:
        """Start checking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    def suspect(self, keys: Iterable[str]) -> None:
        """Have the nodes of these outbounds checked: connections through them failed. Outbounds
        that are no nodes are ignored.
        """
        instances = self._plan().instances
        for key in keys:
            if key.startswith("node:") and key in instances:
                self._suspects[key] = None
                self._task.wake()

    async def _check(self) -> float:
        self._forget()
        now = asyncio.get_running_loop().time()
        waits = {each: self._due(each) - now for each in self._concerned()}
        if batch := [each for each, wait in waits.items() if wait <= 0][:_AT_ONCE]:
            await self._ask(batch)
            return 0.0
        return min(waits.values(), default=math.inf)

    def _concerned(self) -> list[Instance]:
        """Return the suspects, followed by the nodes that failed."""
        instances = self._plan().instances
        suspects = [instances[key] for key in self._suspects]
        failed = [each for each, known in self._known.items() if known.reason]
        return list(dict.fromkeys([*suspects, *failed]))

    def _due(self, instance: Instance) -> float:
        """Return the time from which the node may be checked, by the loop's clock."""
        known = self._known.get(instance)
        return 0.0 if known is None else known.asked + known.patience

    def _is_planned(self, instance: Instance) -> bool:
        return self._plan().instances.get(instance.key) == instance

    def _forget(self) -> None:
        """Forget the results of nodes that have changed or are gone."""
        self._known = {each: known for each, known in self._known.items() if self._is_planned(each)}
        instances = self._plan().instances
        self._suspects = {key: None for key in self._suspects if key in instances}

    async def _ask(self, batch: list[Instance]) -> None:
        for instance in batch:
            self._suspects.pop(instance.key, None)
        probes = [*probes_of(batch)]
        found: dict[str, Delay] = {}
        try:
            found = await self._pool.delays(probes, self._plan().delay_url, _TIMEOUT_MS)
        except EgressdError as error:
            log.warning("cannot check failing nodes", error=str(error))
        except Exception:
            log.exception("cannot check failing nodes")
        for instance in batch:
            self._note(instance, found.get(instance.key))

    def _note(self, instance: Instance, found: Delay | None) -> None:
        """Record the result of a check. `found` is None if the node could not be checked."""
        now = asyncio.get_running_loop().time()
        before = self._known.get(instance, _Known(asked=now, patience=0.0, reason=NONE))
        reason = before.reason if found is None else found.error if found.delay == DEAD else NONE
        is_fine = found is not None and not reason
        patience = PERIOD_S
        if is_fine:
            longer = PATIENCE_S if before.reason else max(PATIENCE_S, 2 * before.patience)
            patience = min(longer, PATIENCE_MAX_S)
        self._known[instance] = _Known(asked=now, patience=patience, reason=reason)
        if bool(reason) != bool(before.reason) and self._is_planned(instance):
            self._changed()
