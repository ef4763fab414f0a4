"""Rotation by the clock: each client of a group gets another member once in the group's period.

The periods of clients begin at different times, by a hash of the address, so that not all of them
move at once. They are counted on the monotonic clock, which goes on over a restart of netd.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from zlib import crc32

from egressd.model.plan import Group, Plan
from egressd.netd.health.groups import Choices
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.groups import Turn

_LOOK_S: Final = 5.0
"""Seconds between looks at the clock: a twelfth of the shortest period."""
_SLOTS: Final = ""
"""The name under which the slots of a group count as a client of its own."""


class ClockRotation:
    """Rotates the clients of the plan's groups. `rotate` takes those whose time has come."""

    def __init__(
        self,
        plan: Callable[[], Plan],
        choices: Callable[[], Choices],
        rotate: Callable[[Mapping[str, Turn]], Awaitable[object]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock` returns seconds that only grow."""
        self._plan = plan
        self._choices = choices
        self._rotate = rotate
        self._clock = clock
        self._task = PeriodicTask("rotate clients by the clock", self.look, _LOOK_S)
        self._periods: dict[str, tuple[int, dict[str, int]]] = {}
        """Group key -> its period in seconds, and the number of each client's present one."""

    def start(self) -> None:
        """Start looking at the clock."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    async def look(self) -> None:
        """Rotate the clients whose period is over. If that raises Failed, the next one counts."""
        turns = {}
        before, self._periods = self._periods, {}
        for key, group in self._plan().groups.items():
            if group.rotate_every_s:
                known = before.get(key, (0, {}))
                if turn := self._turn(key, group, known):
                    turns[key] = turn
        if turns:
            await self._rotate(turns)

    def _turn(self, key: str, group: Group, known: tuple[int, dict[str, int]]) -> Turn | None:
        period_s, now = group.rotate_every_s, int(self._clock())
        choice = self._choices().get(key)
        if choice is None:
            return None
        numbers = {
            client: (now + crc32(client.encode()) % period_s) // period_s
            for client in (_SLOTS, *choice.kept)
        }
        self._periods[key] = period_s, numbers
        last = known[1] if known[0] == period_s else {}
        due = {client for client, number in numbers.items() if last.get(client, number) != number}
        return Turn(due - {_SLOTS}, and_slots=_SLOTS in due) if due else None
