"""Send the clients of groups to living nodes, on behalf of the reconciler.

A change of the plan and new results about nodes take the same steps: `start_chosen` decides, and
starts the nodes that are needed; `commit` makes these choices the ones that the kernel gets next;
after the kernel has them, `follow_up` does the work that needs no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager

from egressd.model.messages import Event
from egressd.model.plan import Change, Plan
from egressd.netd.dataplane.instances import RunningInstances
from egressd.netd.engine.slot import Running
from egressd.netd.health.group_checks import GroupChecks
from egressd.netd.health.groups import Choices, Groups, living, nodes_in, serving
from egressd.netd.kernel.debounce import Debouncer
from egressd.netd.ports import DelaySource, ServedTargets
from egressd.planner.groups import Turn


class GroupSelection:
    """Keeps the groups' choices, the kernel and the running instances in step.

    `regroup` is awaited when the results about nodes have changed.
    """

    def __init__(
        self,
        groups: Groups,
        kernel: ServedTargets,
        instances: RunningInstances,
        delays: DelaySource,
        *,
        plan: Callable[[], Plan],
        regroup: Callable[[], Awaitable[None]],
        publish: Callable[[Event], None],
    ) -> None:
        self._groups = groups
        self._kernel = kernel
        self._instances = instances
        self._plan = plan
        self._publish = publish
        self._regroup = regroup
        self._closed: set[str] = set()
        """The members that were closed at the last look."""
        groups.is_closed = kernel.is_closed
        self._health = GroupChecks(delays, groups, plan, regroup, lambda: kernel.peer_dns)
        self._saving = Debouncer(self.save)

    def restore(self) -> None:
        """Load the choices of an earlier netd, and keep them as far as they suit the plan."""
        self._groups.load()
        self.commit(self.decide())

    def start(self) -> None:
        """Start checking nodes."""
        self._health.start()

    async def close(self) -> None:
        """Stop checking nodes. A later netd has the choices in force."""
        await self._health.close()
        await self._saving.close()
        await self.save()

    async def save(self) -> None:
        """Store the choices in force now, not soon."""
        await asyncio.to_thread(self._groups.save)

    def suspect(self, tags: Iterable[str]) -> None:
        """Check the nodes of these outbounds: connections through them have failed."""
        self._health.suspect(tags)

    def decide(self) -> Choices:
        """Return the choices for the plan in force, by the present results."""
        revision = self._plan().revision
        return self._groups.decide(self._plan(), Change(base=revision, revision=revision))

    @property
    def choices(self) -> Choices:
        """The choices in force."""
        return self._groups.choices

    async def follow_routes(self) -> None:
        """Leave the members that no traffic can leave by any more, and check at once those that are
        open again. Raises Failed.
        """
        groups = self._plan().groups.values()
        routed = {key for group in groups for key in group.routed_members}
        before, self._closed = self._closed, set(filter(self._kernel.is_closed, routed))
        if before - self._closed:
            self._health.refresh()
        if routed:
            await self._regroup()

    @property
    def is_settled(self) -> bool:
        """True if the choices in force are the ones that `decide` would make now."""
        return self.decide() == self._groups.choices

    def turning(self, turns: Mapping[str, Turn]) -> AbstractContextManager[None]:
        """Let the next choices rotate clients, by their group's key, inside the block."""
        return self._groups.turning(turns)

    async def start_chosen(
        self, change: Change, started: dict[str, Running], failed: Collection[str]
    ) -> Choices:
        """Return the choices for the plan after `change`, and start the chosen nodes that do not
        run; they are added to `started`. A node that does not start counts as dead, as do `failed`.
        """
        plan = self._plan()
        tried = set(failed)
        self._groups.forget(change, plan)
        self._groups.note_broken(failed)
        while True:
            choices = self._groups.decide(plan, change)
            chosen = nodes_in(serving(choices)) - started.keys() - tried
            absent = {key for key in chosen if self._instances.get(key) is None}
            absent -= self._instances.reviving
            if not absent:
                return choices
            instances = change.instances.applied(plan.instances)
            wanted = [instance for key, instance in instances if key in absent]
            started |= await self._instances.start(wanted, strict=False)
            self._groups.note_broken(absent - started.keys())
            tried |= absent

    def commit(self, choices: Choices) -> Choices:
        """Make these the choices that the kernel gets next. Return the ones before."""
        before, self._groups.choices = self._groups.choices, choices
        self._kernel.choices = choices
        self._instances.needed = nodes_in(serving(choices))
        return before

    def spare(self) -> list[str]:
        """Return the running instances that only serve groups and may keep no flow."""
        return self._instances.spare(self._plan(), living(self._groups.choices))

    def follow_checks(self, undo: Change) -> None:
        """Forget the results of checks that the change of groups has ended, and make those that it
        has begun; `undo` takes the change back.
        """
        self._groups.forget_checks(undo, self._plan())
        self._health.look()

    def cut_off(self, before: Choices) -> list[str]:
        """Return the clients that have another member than `before`, in groups that cut open
        connections then. Others may still be sent to the former member, so that it stays in the
        kernel's sets.
        """
        groups = self._plan().groups
        return sorted(
            client
            for key, choice in self._groups.choices.items()
            if key in before and groups[key].on_switch == "cut"
            for client, member in choice.kept.items()
            if before[key].of_client(client) not in ("", member)
        )

    def follow_up(self, before: Choices) -> bool:
        """Save the choices and publish events about them. True if flows had to leave a node."""
        choices = self._groups.choices
        self._groups.note_left(before)
        self._saving.notify()
        if choices.keys() != before.keys() or living(choices) - living(before):
            self._health.refresh()
        for key, choice in choices.items():
            old = before.get(key)
            if old is not None and old.elected and choice.elected not in ("", old.elected):
                text = f"new flows go by {choice.elected}, not by {old.elected}"
                values = {"node": choice.elected, "before": old.elected}
                self._publish(
                    Event(topic="group", subject=key, text=text, code="elected", values=values)
                )
        return any(
            set(old.living) - set(choices[key].living)
            for key, old in before.items()
            if key in choices
        )
