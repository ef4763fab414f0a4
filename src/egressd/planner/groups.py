"""The assignment of a group's clients to its nodes. Pure.

A node that is not known to be dead counts as living. When none lives, no client is moved: there is
nothing to gain, and an unreachable node blocks by itself.

- ``urltest``: the node with the lowest delay; the one chosen stays unless another is faster by
  more than `TOLERANCE_MS`, so that clients do not move back and forth.
- ``fallback``: the first that lives, in the group's order. A node must be measured before the
  one chosen last gives way to it.
- ``sticky``: each client keeps its node while that lives. A new client gets the node with the
  fewest clients. Clients that no rule names by address (those of a CIDR) are assigned by a hash
  of the address to one of `SLOTS` slots, and each slot is treated as such a client.

Existing flows stay with their node while it lives, regardless of the choice for new ones; see
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
"""Milliseconds: the tolerance of sing-box's own url test (``protocol/group/urltest.go``)."""

SLOTS: Final = 256
"""Hash values of clients' addresses in ``sticky`` groups."""

DEAD: Final = -1

K = TypeVar("K")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a group's clients, as keys of the nodes' instances."""

    living: tuple[str, ...] = ()
    """The nodes that flows may stay with."""
    elected: str = ""
    """The node that every client is sent to; empty with ``sticky``."""
    kept: dict[str, str] = {}
    """Client address -> its node."""
    slots: tuple[str, ...] = ()
    """Nodes by the address's hash, for clients that are not in `kept`."""

    def serving(self) -> set[str]:
        """Return the nodes that new flows are sent to."""
        return {self.elected, *self.kept.values(), *self.slots} - {""}

    def of_client(self, client: str) -> str:
        """Return the node of a client's new flows; empty if only the kernel's hash decides."""
        return self.elected or self.kept.get(client, "")


def living_of(group: Group, delays: Mapping[str, int]) -> tuple[str, ...]:
    """Return the nodes that flows may stay with: the living ones, or all if none lives."""
    return tuple(key for key in group.members if delays.get(key) != DEAD) or group.members


def choose(
    group: Group, delays: Mapping[str, int], before: Choice, clients: Iterable[str]
) -> Choice:
    """Return the choice to follow `before`.

    `delays`: key -> milliseconds, or `DEAD`; a node that is missing has not been measured.
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
    """Return each client's node: its previous one if that lives, else one with the fewest
    clients.
    """
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
