"""The clients of CIDR rules whose known flows may take the fast path.

The rules are flattened, so the networks are disjoint. A rule for a single address takes precedence
over them, also if its client may not take the fast path: the kernel's map of clients then has a
place without a mark for it (`NO_PLACE`), by which no flow finds an egress.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network, summarize_address_range
from itertools import islice
from typing import Final, NamedTuple

from egressd.model.plan import Plan
from egressd.planner.fast_path import Neighbourhood, Place, may_be_fast
from egressd.planner.flatten import Span, overlaps, spans
from egressd.planner.shaping import is_limited

NETWORKS_MAX: Final = 1 << 16
"""Networks that the kernel's map has room for; clients of further ones take the slow path."""

NO_PLACE: Final = Place(0, 0)
"""The place of a client within a network that takes the slow path."""


class NetworkPlace(NamedTuple):
    """The place of the clients of a network, and the number of the rule that counts them."""

    place: Place
    rule: int


def network_places(
    plan: Plan, neighbourhood: Neighbourhood, groups: Collection[int]
) -> dict[IPv4Network, NetworkPlace]:
    """Return the disjoint networks of CIDR rules whose clients' flows may take the fast path.
    `groups`: the marks of `planner.fast_path.routed_groups`. O(n log n).
    """
    if not plan.policy.is_ruled or not plan.nets:
        return {}
    return dict(islice(_networks(plan, neighbourhood, groups), NETWORKS_MAX))


def _networks(
    plan: Plan, neighbourhood: Neighbourhood, groups: Collection[int]
) -> Iterator[tuple[IPv4Network, NetworkPlace]]:
    rules = {
        IPv4Network(text): 0 if is_limited(limit) else limit.number
        for text, limit in plan.limits.items()
        if "/" in text
    }
    marks = sorted(Span(*_ends(text), mark) for text, mark in plan.nets.items())
    fast: list[Span] = []
    kinds: list[tuple[int, int]] = []  # mark and rule of each span
    for rule, mark in overlaps(spans(rules), marks):
        if rule.value and may_be_fast(mark.value, groups):
            fast.append(Span(rule.first, rule.last, len(kinds)))
            kinds.append((mark.value, rule.value))
    for span, lan in overlaps(fast, neighbourhood.spans):
        if lan.value:
            mark_of_span, number = kinds[span.value]
            found = NetworkPlace(Place(mark_of_span, lan.value), number)
            for network in summarize_address_range(IPv4Address(span.first), IPv4Address(span.last)):
                yield network, found


def _ends(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(IPv4Address(first)), int(IPv4Address(last or first))
