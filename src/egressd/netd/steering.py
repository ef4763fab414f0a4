"""Sends the clients of groups where they are served: the reconciler's hand in `groups`.

A change of the plan and a change of what is known of nodes go the same way: `muster` decides and
starts the nodes that are needed, `settle` makes that the choice the kernel is told, and once it
was told, `follow_up` does what needs no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable

from egressd.model.messages import Event
from egressd.model.plan import Change, Plan
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.slot import Running
from egressd.netd.groups import Choices, Groups, living, serving
from egressd.netd.health import Health
from egressd.netd.kernel.follower import Follower
from egressd.netd.machine import Machine
from egressd.netd.serving import Serving
from egressd.planner.groups import DEAD


class Steering:
    """Keeps the groups' choices, the kernel and the running instances in step.

    `regroup` is awaited when nodes turned out to be other than they were.
    """

    def __init__(
        self,
        groups: Groups,
        machine: Machine,
        serving_instances: Serving,
        pool: Pool,
        *,
        plan: Callable[[], Plan],
        regroup: Callable[[], Awaitable[None]],
        publish: Callable[[Event], None],
    ) -> None:
        self._groups = groups
        self._machine = machine
        self._serving = serving_instances
        self._plan = plan
        self._publish = publish
        self._health = Health(pool, groups, plan, regroup)
        self._saving = Follower(lambda: asyncio.to_thread(groups.save))

    def restore(self) -> None:
        """Take up the choices of an earlier netd, as far as they suit the plan."""
        self._groups.load()
        self.settle(self.decide())

    def start(self) -> None:
        """Begin to look after nodes."""
        self._health.start()

    async def close(self) -> None:
        """Stop looking after nodes."""
        await self._health.close()
        await self._saving.close()

    def suspect(self, tags: Iterable[str]) -> None:
        """Connections fail through these outbounds: see whether their nodes still live."""
        self._health.suspect(tags)

    def decide(self) -> Choices:
        """The choices for the plan in force, by what is known now."""
        revision = self._plan().revision
        return self._groups.decide(self._plan(), Change(base=revision, revision=revision))

    @property
    def is_settled(self) -> bool:
        """Whether the choices in force are those that would be made now."""
        return self.decide() == self._groups.choices

    async def muster(
        self, change: Change, started: dict[str, Running], failed: Collection[str]
    ) -> Choices:
        """The choices for the plan after `change`. The nodes chosen run then, those that had to be
        started among `started`; one that will not start counts as dead, as do `failed`.
        """
        plan = self._plan()
        tried = set(failed)
        self._groups.forget(change, plan)
        self._groups.delays |= dict.fromkeys(failed, DEAD)
        while True:
            choices = self._groups.decide(plan, change)
            chosen = serving(choices) - started.keys() - tried
            absent = {key for key in chosen if self._serving.get(key) is None}
            absent -= self._serving.reviving
            if not absent:
                return choices
            instances = change.instances.applied(plan.instances)
            wanted = [instance for key, instance in instances if key in absent]
            started |= await self._serving.start(wanted, strict=False)
            self._groups.delays |= dict.fromkeys(absent - started.keys(), DEAD)
            tried |= absent

    def settle(self, choices: Choices) -> Choices:
        """Make these the choices that the kernel is told next; the ones before."""
        before, self._groups.choices = self._groups.choices, choices
        self._machine.choices = choices
        self._serving.needed = serving(choices)
        return before

    def spare(self) -> list[str]:
        """Running instances that only serve groups, and that no flow may stay with."""
        return self._serving.spare(self._plan(), living(self._groups.choices))

    def follow_up(self, before: Choices) -> bool:
        """Remember the choices and tell of them; whether flows had to leave a node."""
        choices = self._groups.choices
        self._saving.tell()
        if choices.keys() != before.keys() or living(choices) - living(before):
            self._health.look()
        for key, choice in choices.items():
            old = before.get(key)
            if old is not None and old.elected and choice.elected not in ("", old.elected):
                text = f"new flows go by {choice.elected}, not by {old.elected}"
                self._publish(Event(topic="group", subject=key, text=text))
        return any(
            set(old.living) - set(choices[key].living)
            for key, old in before.items()
            if key in choices
        )
