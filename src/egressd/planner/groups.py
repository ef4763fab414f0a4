"""The assignment of a group's clients to its members. Pure.

A member is a node, an interface or DIRECT. One that is not known to be dead counts as living. When
none lives, no client is moved: there is nothing to gain, and an unreachable member blocks by
itself.

- ``urltest``: the member with the lowest delay; the one chosen stays until it is measured, and
  unless another is faster by more than the group's tolerance, so that clients do not move back and
  forth.
- ``fallback``: the first that lives, in the group's order. A member must be measured before the
  one chosen last gives way to it, and must have been healthy for as long as the group demands.
- ``sticky``: each client keeps its member while that lives. A new client gets the member with the
  fewest clients.
- ``spread``: clients are assigned by a hash of their address to one of `SLOTS` slots, and each slot
  to a member by the members' weights (weighted rendezvous hashing, Thaler and Ravishankar 1998): if
  one dies, its clients alone move, and they return to it. A member must be measured, and have been
  healthy for as long as the group demands, before it gets clients that another one serves.

With ``sticky``, clients that no rule names by address (those of a CIDR) are assigned to slots, too,
and each slot is treated as a client.

Existing flows stay with their member while it lives, regardless of the choice for new ones, unless
the group says otherwise (`stays`); see `egressd.planner.chains`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import heapify, heapreplace
from itertools import zip_longest
from math import log
from struct import Struct
from typing import Final, NamedTuple, TypeVar

import msgspec

from egressd.model.names import DIRECT, INTERFACE_PREFIX
from egressd.model.plan import Group, Plan
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    asker_mark,
    asker_number,
    flow_mark,
)
from egressd.planner.topology import interface_mark

SLOTS: Final = 256
"""Hash values of clients' addresses in ``sticky`` and ``spread`` groups."""

DEAD: Final = -1

_HASHES: Final = 8
"""Hash values in one digest."""
_UNPACK: Final = Struct(f">{_HASHES}Q").unpack

PAST_MAX: Final = 16
"""Members that a client was rotated away from, and does not get again while there are others."""

K = TypeVar("K", str, int)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a group's clients, by their keys."""

    living: tuple[str, ...] = ()
    """The members that flows may stay with."""
    elected: str = ""
    """The member that every client is sent to; empty with ``sticky`` and ``spread``."""
    kept: dict[str, str] = {}
    """Client address -> its member."""
    slots: tuple[str, ...] = ()
    """Members by the address's hash, for clients that are not in `kept`."""
    past: dict[str, tuple[str, ...]] = {}
    """Client address -> the members that it was rotated away from, the last one last."""

    def serving(self) -> set[str]:
        """Return the members that new flows are sent to."""
        return {self.elected, *self.kept.values(), *self.slots} - {""}

    def of_client(self, client: str) -> str:
        """Return the member of a client's new flows; empty if only the kernel's hash decides."""
        return self.elected or self.kept.get(client, "")


class Turn(NamedTuple):
    """Clients of a group that get another member."""

    clients: Collection[str] | None = None
    """Addresses with a rule of their own; None for all of them."""
    and_slots: bool = True
    """True for the clients that no rule names by address, too."""


def member_mark(plan: Plan, key: str) -> int:
    """Return the mark of a member's clients. Raises KeyError if the plan does not have it."""
    if key == DIRECT:
        return MARK_DIRECT
    name = key.removeprefix(INTERFACE_PREFIX)
    if name != key:
        return interface_mark(name, plan.egresses[name].number)
    return plan.instances[key].mark


def routed_flows(plan: Plan, key: str) -> Iterator[int]:
    """Yield the conntrack marks of the flows that go by a member which the kernel routes, those of
    its questions and of connections that are inspected among them.
    """
    mark, epoch = member_mark(plan, key), plan.whitelist.epoch
    yield flow_mark(mark, epoch)
    if mark in plan.whitelist.sniffers:
        yield plan.whitelist.sniffers[mark]
    egress = plan.egresses.get(key.removeprefix(INTERFACE_PREFIX))
    if egress is not None and egress.is_asked_directly:
        # A question's flow has the mark of its way out, and more than one packet.
        yield flow_mark(MARK_ASKED_DIRECTLY, epoch)
    if plan.policy.local_resolvers:
        yield asker_mark(asker_number(mark))


def living_of(group: Group, delays: Mapping[str, int]) -> tuple[str, ...]:
    """Return the members that live, or all if none does."""
    return tuple(key for key in group.members if delays.get(key) != DEAD) or group.members


def choose(
    group: Group,
    delays: Mapping[str, int],
    before: Choice,
    clients: Iterable[str],
    ripe: Callable[[str], bool] = lambda _: True,
) -> Choice:
    """Return the choice to follow `before`, in which flows may stay with each member that lives.

    `delays`: key -> milliseconds, or `DEAD`; a member that is missing has not been measured.
    `clients`: the addresses that rules send to the group. `ripe` is true for a member that has been
    healthy for long enough that clients may return to it.
    """
    living = living_of(group, delays)

    def is_fit(key: str) -> bool:
        """Return whether clients of a member that lives may go to this one."""
        return delays.get(key, DEAD) != DEAD and ripe(key)

    match group.strategy:
        case "sticky":
            slots = _balanced(living, dict(enumerate(before.slots)), range(SLOTS))
            kept = _balanced(living, before.kept, sorted(clients))
            past = {client: past for client, past in before.past.items() if client in kept}
            return Choice(living=living, kept=kept, slots=tuple(slots.values()), past=past)
        case "spread":
            spread = _spread(group, living, before.slots, is_fit)
            kept = {client: spread[_slot_of(client)] for client in clients}
            return Choice(living=living, kept=kept, slots=spread)
        case "fallback":
            elected = _first(living, delays, before.elected, is_fit)
            return Choice(living=living, elected=elected)
        case _:
            elected = _fastest(living, delays, before.elected, group.tolerance_ms)
            return Choice(living=living, elected=elected)


def rotated(choice: Choice, clients: Collection[str], *, and_slots: bool = False) -> Choice:
    """Return the choice after each of `clients` has got another member that lives: one with the
    fewest clients among those that it was not rotated away from lately. If none but its own lives
    it keeps that. `and_slots`: the clients that no rule names by address, too.
    """
    kept, past = dict(choice.kept), dict(choice.past)
    loads = Counter(kept.values())
    for client in clients:
        current = kept[client]
        former = (*past.get(client, ()), current)[-min(PAST_MAX, len(choice.living) - 1) :]
        able = [key for key in choice.living if key not in former] if len(choice.living) > 1 else []
        if not able:
            continue
        kept[client] = min(able, key=lambda key: loads[key])
        loads[current] -= 1
        loads[kept[client]] += 1
        past[client] = former
    slots = choice.slots
    if and_slots and len(choice.living) > 1:
        following = dict(zip(choice.living, (*choice.living[1:], choice.living[0]), strict=True))
        slots = tuple(following.get(key, key) for key in slots)
    return msgspec.structs.replace(choice, kept=kept, past=past, slots=slots)


def stays(group: Group, choice: Choice, draining: Collection[str]) -> Choice:
    """Return the choice with `living` reduced to the members that flows may stay with by the
    group's policy. `draining`: the members that were left too short a time ago for their flows to
    be cut.
    """
    if group.on_switch == "keep":
        return choice
    kept = choice.serving()
    if group.on_switch == "drain":
        kept |= {*draining}
    return msgspec.structs.replace(
        choice, living=tuple(key for key in choice.living if key in kept)
    )


def is_dead(group: Group, delays: Mapping[str, int]) -> bool:
    """Return whether all members of a group are known to be dead."""
    return all(delays.get(key) == DEAD for key in group.members)


def _first(
    living: tuple[str, ...], delays: Mapping[str, int], current: str, is_fit: Callable[[str], bool]
) -> str:
    if current not in living:
        return next((key for key in living if key in delays or not current), living[0])
    return next(key for key in living if key == current or is_fit(key))


def _fastest(
    living: tuple[str, ...], delays: Mapping[str, int], current: str, tolerance_ms: int
) -> str:
    measured = [key for key in living if delays.get(key, DEAD) != DEAD]
    best = min(measured, key=delays.__getitem__, default=living[0])
    if current not in living:
        return best
    # After a restart others may be measured first.
    if current not in measured or delays[current] <= delays[best] + tolerance_ms:
        return current
    return best


def _balanced(living: Sequence[str], before: Mapping[K, str], clients: Iterable[K]) -> dict[K, str]:
    """Return each client's member: its previous one if that lives, else one with the fewest
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


def _spread(
    group: Group, living: Sequence[str], before: Sequence[str], is_fit: Callable[[str], bool]
) -> tuple[str, ...]:
    """Return each slot's member; its previous one if that lives, and the other is not fit yet."""
    wanted = _best_of_slots(tuple(living), tuple(group.weights.get(key, 1) for key in living))
    if wanted == before:
        return wanted
    able = frozenset(living)
    return tuple(
        current if current in able and not is_fit(best) else best
        for best, current in zip_longest(wanted, before[:SLOTS], fillvalue="")
    )


@lru_cache(64)
def _best_of_slots(living: tuple[str, ...], weights: tuple[int, ...]) -> tuple[str, ...]:
    """Return the member with the highest rank for each slot: the first one of several. Each choice
    asks for them, and they seldom change. O(members), with 10 to 20 microseconds for each.
    """
    rows = [_ranks(key, weight) for key, weight in zip(living, weights, strict=True)]
    return tuple(living[column.index(max(column))] for column in zip(*rows, strict=True))


@lru_cache(4096)
def _ranks(key: str, weight: int) -> array[float]:
    """Return the ranks of a member for all slots: its weight over an exponential variate."""
    found = array("d")
    for block in range(SLOTS // _HASHES):
        digest = blake2b(f"{key} {block}".encode(), digest_size=8 * _HASHES).digest()
        found.extend(-weight / log((n + 0.5) / 2**64) for n in _UNPACK(digest))
    return found


def _slot_of(client: str) -> int:
    return _hash(client) % SLOTS


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
