"""The measured delays of the nodes of groups, and the nodes that serve clients at present.

The choices outlive netd in a small file, so that a client keeps its node over a restart.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from egressd.model.plan import Change, Group, Plan
from egressd.netd.system.files import write_private
from egressd.planner.groups import DEAD, Choice, choose, living_of

log = structlog.get_logger()

Choices = dict[str, Choice]
"""Group key -> the nodes that its clients go by."""


class Groups:
    """The choices in force, and the delays that they were based on."""

    def __init__(self, path: Path) -> None:
        self.choices: Choices = {}
        self.delays: dict[str, int] = {}
        """Instance key -> milliseconds, or `egressd.planner.groups.DEAD`. Instances that were never
        measured are missing."""
        self._path = path

    def load(self) -> None:
        """Load the choices of an earlier netd; none if the file cannot be read."""
        with suppress(OSError, msgspec.DecodeError):
            self.choices = msgspec.json.decode(self._path.read_bytes(), type=Choices)
        # The choices written last need not belong to the plan that was in force.
        self.choices = {
            key: msgspec.structs.replace(choice, living=()) for key, choice in self.choices.items()
        }

    def save(self) -> None:
        """Write the choices. Blocks. A failure is logged: clients then may get other nodes after a
        restart.
        """
        try:
            write_private(self._path, msgspec.json.encode(self.choices))
        except OSError as error:
            log.warning("cannot save the group selections", error=str(error))

    def decide(self, plan: Plan, change: Change) -> Choices:
        """Return the choices for `plan` as it is after `change`. O(hosts) only for groups whose
        clients keep their nodes, and only when such clients come, go or lose their node.
        """
        groups = change.groups.applied(plan.groups)
        return {key: self._choose(key, group, plan, change) for key, group in groups}

    def _choose(self, key: str, group: Group, plan: Plan, change: Change) -> Choice:
        before = self.choices.get(key, Choice())
        if group.strategy != "sticky":
            return choose(group, self.delays, before, ())
        # The assignment of nodes to clients involves all clients at once: it is kept when neither
        # the clients nor the living nodes have changed.
        is_sticky = bool(before.slots)
        lives = living_of(group, self.delays)
        if is_sticky and before.living == lives and not _concerns(change, group, before):
            return before
        hosts = change.hosts.applied(plan.hosts)
        clients = [address for address, mark in hosts if mark == group.mark]
        return choose(group, self.delays, before, clients)

    def measured(self, plan: Plan) -> dict[str, int]:
        """Return the delays of the nodes of the plan's groups that answered at their last check, in
        milliseconds.
        """
        delays = ((key, self.delays.get(key, DEAD)) for key in sorted(members(plan)))
        return {key: delay for key, delay in delays if delay != DEAD}

    def elected(self, plan: Plan) -> dict[str, str]:
        """Return the node that all clients of each group of the plan are sent to, by the group's
        key; empty if each client has its own.
        """
        return {key: its.elected for key, its in self.choices.items() if key in plan.groups}

    def dead(self, plan: Plan) -> list[str]:
        """Return the nodes of the plan's groups that are known to be dead. A node that has left all
        groups is not measured any more, so its last result does not count.
        """
        return [key for key in sorted(members(plan)) if self.delays.get(key) == DEAD]

    def forget(self, change: Change, plan: Plan) -> None:
        """Forget the delays of nodes that `change` redefines or removes."""
        for key in change.instances.drop:
            self.delays.pop(key, None)
        for key, instance in change.instances.put.items():
            before = plan.instances.get(key)
            if before is None or before.work != instance.work:
                self.delays.pop(key, None)


def _concerns(change: Change, group: Group, choice: Choice) -> bool:
    """True if clients come to the group or leave it."""
    put = change.hosts.put.items()
    return any(mark == group.mark or address in choice.kept for address, mark in put) or any(
        address in choice.kept for address in change.hosts.drop
    )


def members(plan: Plan) -> set[str]:
    """Return the keys of the instances of nodes that are in groups."""
    return {key for group in plan.groups.values() for key in group.members}


def serving(choices: Choices) -> set[str]:
    """Return the keys of the instances that new flows of groups are sent to."""
    return {key for choice in choices.values() for key in choice.serving()}


def living(choices: Choices) -> set[str]:
    """Return the keys of the instances that flows of groups may stay with."""
    return {key for choice in choices.values() for key in choice.living}
