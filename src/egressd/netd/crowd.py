"""Which callers of proxy services have as many connections as they may, and which are too many.

The kernel's ``ct count`` counts connections by their first packet (Linux 6.18 by no other), and
that one anybody can send in another's name. So those that both ends have agreed on are counted
here. Who has as many as there may be is let in no further (`egressd.planner.services_guard`); what
came in before that was known is ended, the youngest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address

from egressd.netd.kernel.sockets import Caller
from egressd.planner.bounds import Bounds
from egressd.planner.nft import Crowd


def crowd_of(
    callers: Iterable[Caller], is_inside: Callable[[IPv4Address], bool], bounds: Bounds
) -> tuple[Crowd, list[Caller]]:
    """Who is let in no further, and the connections that are too many.

    `callers`: the oldest first; `is_inside`: whether an address is in a LAN, or this machine's.
    """
    is_inside = lru_cache(maxsize=None)(is_inside)
    counts: Counter[IPv4Address] = Counter()
    outside = 0
    surplus = []
    for each in callers:
        address = each.remote[0]
        from_outside = not is_inside(address)
        if counts[address] == bounds.callers or (from_outside and outside == bounds.outside):
            surplus.append(each)
            continue
        counts[address] += 1
        outside += from_outside
    full = frozenset(f"{each}" for each, count in counts.items() if count == bounds.callers)
    return Crowd(full, outside == bounds.outside), surplus
