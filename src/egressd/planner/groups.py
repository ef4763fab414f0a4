"""Which node of a group serves which client. Pure.

A node that is not known to be dead is taken to live. When none lives, nobody is moved: there
is nothing to gain, and what cannot be reached blocks by itself.

- ``urltest``: the node with the lowest delay; the one chosen stays unless another is faster by
  more than `TOLERANCE_MS`, so that clients do not go to and fro.
- ``fallback``: the first that lives, in the group's order. One that was not measured yet has to
  be before the one chosen last gives way to it.
- ``sticky``: each client keeps its node while that lives. A new client gets the node that the
  fewest have. Clients that no rule names by address (those of a CIDR) are told apart by a hash
  of the address, and `SLOTS` parts of them are treated as such clients.

Existing flows stay with their node while it lives, whatever is chosen for new ones; see
`egressd.planner.chains`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Final, TypeVar

import msgspec

from egressd.model.plan import Group

TOLERANCE_MS: Final = 50
"""What sing-box's own url test has (``protocol/group/urltest.go``)."""

SLOTS: Final = 256

DEAD: Final = -1

K = TypeVar("K")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group's clients go, as keys of its nodes' instances."""

    living: tuple[str, ...] = ()
    """The nodes that flows may stay with."""
    elected: str = ""
    """Whom every client is sent to; empty with ``sticky``."""
    kept: dict[str, str] = {}
    """Client address -> its node."""
    slots: tuple[str, ...] = ()
    """By the address's hash, for clients that are not in `kept`."""

    def serving(self) -> set[str]:
        """The nodes that new flows are sent to."""
        return {self.elected, *self.kept.values(), *self.slots} - {""}

    def of_client(self, client: str) -> str:
        """The node of a client's new flows; empty where only the kernel's hash tells."""
        return self.elected or self.kept.get(client, "")


def living_of(group: Group, delays: Mapping[str, int]) -> tuple[str, ...]:
    """The nodes that flows may stay with: those that live, or all if none does."""
    return tuple(key for key in group.members if delays.get(key) != DEAD) or group.members


def choose(
    group: Group, delays: Mapping[str, int], before: Choice, clients: Iterable[str]
) -> Choice:
    """The choice to follow `before`.

    `delays`: key -> milliseconds, or `DEAD`; a node that is not in it has not been measured.
    `clients`: the addresses that rules send to the group.
    """
    living = living_of(group, delays)
    match group.strategy:
        case "sticky":
            slots = _spread(living, dict(enumerate(before.slots)), range(SLOTS))
            kept = _spread(living, before.kept, sorted(clients))
            return Choice(living=living, kept=kept, slots=tuple(slots.values()))
        case "fallback":
            return Choice(living=living, elected=_first(living, delays, before.elected))
        case _:
            return Choice(living=living, elected=_fastest(living, delays, before.elected))


def _first(living: tuple[str, ...], delays: Mapping[str, int], current: str) -> str:
    return next((key for key in living if key in delays or current in ("", key)), living[0])


def _fastest(living: tuple[str, ...], delays: Mapping[str, int], current: str) -> str:
    measured = [key for key in living if delays.get(key, DEAD) != DEAD]
    best = min(measured, key=delays.__getitem__, default=living[0])
    if current not in living:
        return best
    if current in measured and delays[current] <= delays[best] + TOLERANCE_MS:
        return current
    return best if measured else current


def _spread(living: Sequence[str], before: Mapping[K, str], clients: Iterable[K]) -> dict[K, str]:
    """Each client with its node: the one it had if that lives, else one that the fewest have."""
    able = frozenset(living)
    result = {client: before.get(client, "") for client in clients}
    loads = Counter(result.values())
    idlest = [(loads[key], place, key) for place, key in enumerate(living)]
    heapify(idlest)
    for client, key in result.items():
        if key not in able:
            load, place, chosen = idlest[0]
            heapreplace(idlest, (load + 1, place, chosen))
            result[client] = chosen
    return result
