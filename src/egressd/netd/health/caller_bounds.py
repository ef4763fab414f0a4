"""Find callers of proxy services at their bound of connections, and the connections beyond it.

The kernel's ``ct count`` counts connections by their first packet only (as of Linux 6.18), and any
host can send that packet with a forged source address. So this module counts established
connections. A caller at its bound gets no further connection
(`egressd.planner.proxy_service_rules`); connections that came in before the bound was noticed are
ended, the youngest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address

from egressd.netd.kernel.sockets import CallerConnection
from egressd.planner.bounds import Bounds
from egressd.planner.nft import Crowd


def crowd_of(
    callers: Iterable[CallerConnection], is_inside: Callable[[IPv4Address], bool], bounds: Bounds
) -> tuple[Crowd, list[CallerConnection]]:
    """Return the callers that get no further connection, and the connections beyond the bounds.

    `callers`: connections, the oldest first. `is_inside`: True for an address that is in a LAN or
    this machine's.
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
