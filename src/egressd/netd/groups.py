"""What is known of the nodes of groups, and who serves whom at the moment.

The choices outlive netd in a small file, so that a client keeps its node over a restart.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from egressd.model.plan import Change, Group, Plan
from egressd.netd.files import write_private
from egressd.planner.groups import DEAD, Choice, choose, living_of

log = structlog.get_logger()

Choices = dict[str, Choice]
"""Group key -> where its clients go."""


class Groups:
    """The choices in force, and the delays that they were made by."""

    def __init__(self, path: Path) -> None:
        self.choices: Choices = {}
        self.delays: dict[str, int] = {}
        """Instance key -> milliseconds, or `egressd.planner.groups.DEAD`. Those never measured
        are not in it."""
        self._path = path

    def load(self) -> None:
        """Take up the choices of an earlier netd. Without a file that can be read: none."""
        with suppress(OSError, msgspec.DecodeError):
            self.choices = msgspec.json.decode(self._path.read_bytes(), type=Choices)
        # What was written down last need not be of the plan that was.
        self.choices = {
            key: msgspec.structs.replace(choice, living=()) for key, choice in self.choices.items()
        }

    def save(self) -> None:
        """Write the choices. Blocks; a failure only costs clients their nodes at a restart."""
        try:
            write_private(self._path, msgspec.json.encode(self.choices))
        except OSError as error:
            log.warning("could not write down the groups' choices", error=str(error))

    def decide(self, plan: Plan, change: Change) -> Choices:
        """The choices for `plan` as it is after `change`. O(hosts) only where clients who keep
        nodes come, go, or lose theirs.
        """
        groups = change.groups.applied(plan.groups)
        return {key: self._choose(key, group, plan, change) for key, group in groups}

    def _choose(self, key: str, group: Group, plan: Plan, change: Change) -> Choice:
        before = self.choices.get(key, Choice())
        if group.strategy != "sticky":
            return choose(group, self.delays, before, ())
        # Who keeps which node concerns all clients at once: that is left as it is when neither
        # they nor the nodes that live are others.
        is_sticky = bool(before.slots)
        lives = living_of(group, self.delays)
        if is_sticky and before.living == lives and not _concerns(change, group, before):
            return before
        hosts = change.hosts.applied(plan.hosts)
        clients = [address for address, mark in hosts if mark == group.mark]
        return choose(group, self.delays, before, clients)

    def dead(self, plan: Plan) -> list[str]:
        """Those of the plan's groups that are known to be dead. Who has left them is not asked any
        more, whatever was found last.
        """
        return [key for key in sorted(members(plan)) if self.delays.get(key) == DEAD]

    def forget(self, change: Change, plan: Plan) -> None:
        """What was known of nodes that `change` redefines or takes away means nothing more."""
        for key in change.instances.drop:
            self.delays.pop(key, None)
        for key, instance in change.instances.put.items():
            before = plan.instances.get(key)
            if before is None or before.work != instance.work:
                self.delays.pop(key, None)


def _concerns(change: Change, group: Group, choice: Choice) -> bool:
    """Whether clients come to the group or leave it."""
    put = change.hosts.put.items()
    return any(mark == group.mark or address in choice.kept for address, mark in put) or any(
        address in choice.kept for address in change.hosts.drop
    )


def members(plan: Plan) -> set[str]:
    """The instances of the nodes that are in groups."""
    return {key for group in plan.groups.values() for key in group.members}


def serving(choices: Choices) -> set[str]:
    """The instances that new flows of groups are sent to."""
    return {key for choice in choices.values() for key in choice.serving()}


def living(choices: Choices) -> set[str]:
    """The instances that flows of groups may stay with."""
    return {key for choice in choices.values() for key in choice.living}
