"""Removes what the kernel still tracks of flows that were cut.

`seal` has cut the flows of a moved client already; their conntrack entries only stand in the
way of new flows with the same ports (a UDP flow would go on without address translation).
Walking the kernel's table takes 25 ms even when it is empty, so it is done beside the
changes and not within them, for all clients that moved meanwhile in one walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address

from egressd.model.plan import Plan
from egressd.netd.kernel import conntrack
from egressd.netd.kernel.follower import Follower
from egressd.planner.groups import Choice
from egressd.planner.registry import flow_mark


class Tidier:
    """Tidies up after clients in the background.

    `is_current` tells whether a flow is one that its client may have now: those are left
    alone. It is called in another thread.
    """

    def __init__(self, is_current: Callable[[bytes, int], bool]) -> None:
        self._is_current = is_current
        self._clients: set[str] = set()
        self._follower = Follower(self._tidy)

    def add(self, clients: Iterable[str]) -> None:
        """Tidy up after these addresses and ranges soon."""
        self._clients.update(clients)
        self._follower.tell()

    async def close(self) -> None:
        """Stop; what was not done stays."""
        await self._follower.close()

    async def _tidy(self) -> None:
        clients, self._clients = self._clients, set()
        await asyncio.to_thread(conntrack.delete_stale, clients, self._is_current)


def may_have(plan: Plan, choices: Mapping[str, Choice], client: bytes, mark: int) -> bool:
    """Whether `plan`, with these choices of its groups, lets the client's address have flows of
    that conntrack mark.

    Flows without a mark are none of ours: to the router, between LANs.
    """
    address = IPv4Address(client)
    target = plan.hosts.get(str(address)) or _of_range(plan, address)
    if not target or plan.floor.opened:
        return mark in (0, plan.floor.unmanaged)
    listed = plan.whitelist
    marks = {target, listed.mark, listed.sniffers.get(target, 0)}
    for name, group in plan.groups.items():
        if group.mark in marks:
            marks.update(plan.instances[key].mark for key in choices[name].living)
    return mark == 0 or mark in {flow_mark(m, listed.epoch) for m in marks if m}


def _of_range(plan: Plan, address: IPv4Address) -> int:
    for text, mark in plan.nets.items():
        first, _, last = text.partition("-")
        if IPv4Address(first) <= address <= IPv4Address(last):
            return mark
    return 0
