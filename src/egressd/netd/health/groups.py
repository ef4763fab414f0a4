"""The health of the members of groups, and the members that serve clients at present.

The choices outlive netd in a small file, so that a client keeps its member over a restart.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.plan import Change, Group, Plan, is_routed_member
from egressd.netd.system.files import write_private
from egressd.planner.groups import DEAD, Choice, Turn, choose, living_of, rotated, stays

log = structlog.get_logger()

Choices = dict[str, Choice]
"""Group key -> the members that its clients go by."""


DRAIN_S: Final = 300.0
"""Seconds for which open connections stay with a member that was left, with ``drain``."""


class Groups:
    """The choices in force, and what is known of the health of members."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds that only grow."""
        self.choices: Choices = {}
        self.is_closed: Callable[[str], bool] = lambda _member: False
        """True for a member that no traffic can leave by, as the kernel knows without a check."""
        self._path = path
        self._saved: Choices = {}
        """The choices in the file."""
        self._saving = threading.Lock()
        self._clock = clock
        self._delays: dict[tuple[str, str], int] = {}
        """URL and member -> the milliseconds of its last check, or `DEAD`. Members that were never
        checked are missing."""
        self._healthy_since: dict[tuple[str, str], float] = {}
        self._broken: set[str] = set()
        """Members that did not start, until a check succeeds."""
        self._turns: Mapping[str, Turn] = {}
        self._left_at: dict[tuple[str, str], float] = {}
        """Group and member -> the time when new flows went elsewhere."""

    def load(self) -> None:
        """Load the choices of an earlier netd; none if the file cannot be read."""
        with suppress(OSError, msgspec.DecodeError):
            self.choices = msgspec.json.decode(self._path.read_bytes(), type=Choices)
        self._saved = self.choices
        now = self._clock()
        for key, choice in self.choices.items():  # connections outlive an upgrade
            for member in {*choice.living} - choice.serving():
                self._left_at[key, member] = now
        # The choices written last need not belong to the plan that was in force.
        self.choices = {
            key: msgspec.structs.replace(choice, living=()) for key, choice in self.choices.items()
        }

    def save(self) -> None:
        """Write the choices, unless the file has them. Blocks; may be called in any thread. A
        failure is logged: clients then may get other members after a restart.
        """
        with self._saving:
            choices = self.choices
            if choices == self._saved:
                return
            try:
                write_private(self._path, msgspec.json.encode(choices))
            except OSError as error:
                log.warning("cannot save the group selections", error=str(error))
            else:
                self._saved = choices

    # --- Choices. -----------------------------------------------------------------------

    def decide(self, plan: Plan, change: Change) -> Choices:
        """Return the choices for `plan` as it is after `change`. O(hosts) only for groups whose
        clients keep their members, and only when such clients come, go or lose their member.
        """
        groups = dict(change.groups.applied(plan.groups))
        for group in groups.values():
            # Once it is open again, it has to be checked before clients return to it.
            closed = filter(self.is_closed, group.routed_members)
            self.note(group.url, dict.fromkeys(closed, DEAD))
        return {key: self._choose(key, group, plan, change) for key, group in groups.items()}

    def _choose(self, key: str, group: Group, plan: Plan, change: Change) -> Choice:
        before = self.choices.get(key, Choice())
        delays = self.delays_of(group)
        clients: list[str] = []
        if group.strategy in ("sticky", "spread"):
            # The assignment of members to clients involves all clients at once: it is kept when
            # neither the clients nor the group nor the living members have changed.
            is_settled = before.living == living_of(group, delays) and group.strategy == "sticky"
            is_same = key not in change.groups.put and group.on_switch == "keep"
            is_same &= key not in self._turns
            if before.slots and is_settled and is_same and not _concerns(change, group, before):
                return before
            hosts = change.hosts.applied(plan.hosts)
            clients = [address for address, mark in hosts if mark == group.mark]
            before = _with_devices(before, change, plan)
        choice = choose(group, delays, before, clients, self._ripeness(group))
        if (turn := self._turns.get(key)) is not None and choice.slots:
            turned = choice.kept.keys() & (choice.kept if turn.clients is None else turn.clients)
            choice = rotated(choice, sorted(turned), and_slots=turn.and_slots)
        return stays(group, choice, self._draining(key, before))

    @contextmanager
    def turning(self, turns: Mapping[str, Turn]) -> Iterator[None]:
        """Let `decide` rotate clients inside the block, by their group's key."""
        self._turns = turns
        try:
            yield
        finally:
            self._turns = {}

    def note_left(self, before: Choices) -> None:
        """Note the members that the choices in force have left since `before`."""
        now = self._clock()
        for key, choice in self.choices.items():
            serving = choice.serving()
            for member in before.get(key, Choice()).serving() - serving:
                self._left_at[key, member] = now
            for member in serving:
                self._left_at.pop((key, member), None)
        self._left_at = {
            (key, member): at
            for (key, member), at in self._left_at.items()
            if now - at < DRAIN_S and key in self.choices
        }

    def _draining(self, key: str, before: Choice) -> set[str]:
        now = self._clock()
        return before.serving() | {
            member
            for (group, member), at in self._left_at.items()
            if group == key and now - at < DRAIN_S
        }

    def _ripeness(self, group: Group) -> Callable[[str], bool]:
        def is_ripe(key: str) -> bool:
            if group.failback_s <= 0:
                return group.failback_s == 0
            since = self._healthy_since.get((group.url, key))
            return since is not None and self._clock() - since >= group.failback_s

        return is_ripe

    # --- Health. ------------------------------------------------------------------------

    def delays_of(self, group: Group) -> dict[str, int]:
        """Return the milliseconds of the last check of each member of a group, or `DEAD`; members
        that were not checked are missing.
        """
        found = {}
        for key in group.members:
            delay = self._delays.get((group.url, key))
            if key in self._broken:
                delay = DEAD
            if delay is not None:
                found[key] = delay
        return found

    def note(self, url: str, delays: Mapping[str, int]) -> None:
        """Note the results of checks by `url`: member -> milliseconds, or `DEAD`."""
        now = self._clock()
        for key, delay in delays.items():
            self._delays[url, key] = delay
            if delay == DEAD:
                self._healthy_since.pop((url, key), None)
            else:
                self._healthy_since.setdefault((url, key), now)
                self._broken.discard(key)

    def note_broken(self, keys: Iterable[str]) -> None:
        """Note members that did not start."""
        for key in keys:
            self._broken.add(key)
            for known in [each for each in self._healthy_since if each[1] == key]:
                del self._healthy_since[known]

    def forget(self, change: Change, plan: Plan) -> None:
        """Forget the health of nodes that `change` redefines or removes."""
        gone = {*change.instances.drop, *change.egresses.drop}
        for key, instance in change.instances.put.items():
            before = plan.instances.get(key)
            if before is None or before.work != instance.work:
                gone.add(key)
        if gone:
            self._broken -= gone
            for table in (self._delays, self._healthy_since):
                for known in [each for each in table if each[1] in gone]:
                    del table[known]

    def forget_checks(self, undo: Change, plan: Plan) -> None:
        """Forget the results of checks that groups made before the change that `undo` takes back,
        and that none of `plan` makes: a member may leave a group, or a group may have another URL.
        If it comes back, nothing decides that was found out before.
        """
        left = {(group.url, key) for group in undo.groups.put.values() for key in group.members}
        urls = {url for url, _ in left}
        for group in plan.groups.values():
            if group.url in urls:
                left.difference_update((group.url, key) for key in group.members)
        for known in left:
            self._delays.pop(known, None)
            self._healthy_since.pop(known, None)

    def measured(self, plan: Plan) -> dict[str, int]:
        """Return the delays of the members of the plan's groups that answered at their last check,
        in milliseconds.
        """
        found: dict[str, int] = {}
        for delays in map(self.delays_of, plan.groups.values()):
            found |= {key: delay for key, delay in delays.items() if delay != DEAD}
        return dict(sorted(found.items()))

    def elected(self, plan: Plan) -> dict[str, str]:
        """Return the member that all clients of each group of the plan are sent to, by the group's
        key; empty if each client has its own.
        """
        return {key: its.elected for key, its in self.choices.items() if key in plan.groups}

    def dead(self, plan: Plan) -> list[str]:
        """Return the members of the plan's groups that are known to be dead, by the check of each
        of their groups. One that has left all groups is not checked any more, so its last result
        does not count.
        """
        found: dict[str, bool] = {}
        for group in plan.groups.values():
            delays = self.delays_of(group)
            for key in group.members:
                found[key] = found.get(key, True) and delays.get(key) == DEAD
        return sorted(key for key, is_dead in found.items() if is_dead)


def _concerns(change: Change, group: Group, choice: Choice) -> bool:
    """True if clients come to the group or leave it."""
    put = change.hosts.put.items()
    return any(mark == group.mark or address in choice.kept for address, mark in put) or any(
        address in choice.kept for address in change.hosts.drop
    )


def _with_devices(choice: Choice, change: Change, plan: Plan) -> Choice:
    """Return the choice in which devices that have another address by `change` keep their members:
    rules that are bound to devices follow them.
    """
    bindings, left = change.bindings, [*change.bindings.put, *change.bindings.drop]
    was_at = {plan.bindings[address]: address for address in left if address in plan.bindings}
    moved = {address: was_at[mac] for address, mac in bindings.put.items() if mac in was_at}
    if not moved:
        return choice
    kept, past = dict(choice.kept), dict(choice.past)
    for address, former in moved.items():
        kept |= {address: choice.kept[former]} if former in choice.kept else {}
        past |= {address: choice.past[former]} if former in choice.past else {}
    return msgspec.structs.replace(choice, kept=kept, past=past)


def members(plan: Plan, url: str = "") -> set[str]:
    """Return the keys of the members of groups; with `url`, of those that are checked by it."""
    groups = plan.groups.values()
    return {key for group in groups if not url or group.url == url for key in group.members}


def serving(choices: Choices) -> set[str]:
    """Return the keys of the members that new flows of groups are sent to."""
    return {key for choice in choices.values() for key in choice.serving()}


def nodes_in(keys: Iterable[str]) -> set[str]:
    """Return the keys that are those of nodes' instances."""
    return {key for key in keys if not is_routed_member(key)}


def living(choices: Choices) -> set[str]:
    """Return the keys of the members that flows of groups may stay with."""
    return {key for choice in choices.values() for key in choice.living}
