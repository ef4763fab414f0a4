"""Clients that a change moves, and the end of what they had open before.

A change goes three ways: `foresee` tells whom it moves while the old plan is in force, `settle`
takes over what the new one says of ranges, and `follow_up` ends what the clients that moved had
open, once the kernel sends them elsewhere.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from typing import NamedTuple

from egressd.model.plan import Change, Plan
from egressd.netd import impact
from egressd.netd.kernel.conntrack import Flow
from egressd.netd.kernel.ranges import RangeMap, Ranges
from egressd.netd.machine import Machine
from egressd.netd.tidier import LOOPBACK, Tidier, cut, may_have


class Move(NamedTuple):
    """What a change of the plan means for clients' connections."""

    ranges: RangeMap
    """The marks of the ranges of the plan that it leads to."""
    clients: list[str]
    """Addresses and ranges within the LANs whose mark becomes another one."""
    served: list[str]
    """Those of them that may have sockets in the engine."""


class Moves:
    """Knows the marks of the ranges of the plan in force, and tidies up after who left them."""

    def __init__(self, machine: Machine, plan: Callable[[], Plan]) -> None:
        self._machine = machine
        self._plan = plan
        self._ranges = RangeMap({})
        """In order: made anew only when one changes."""
        self._served: set[int] = set()
        """The marks of targets that were served when `follow_losses` looked last."""
        self._tidier = Tidier(self._law, self._owners)

    def foresee(self, change: Change) -> Move:
        """What `change` will mean."""
        plan, ranges = self._plan(), self._ranges
        if change.nets:
            ranges = RangeMap(dict(change.nets.applied(plan.nets)))
        # Whatever else a wide range covers, servers for one, is no client.
        moved = impact.moved(change, plan, self._ranges, ranges)
        clients = list(Ranges(self._networks()).clip(moved))
        return Move(ranges, clients, impact.engine_served(clients, plan))

    def settle(self, ranges: RangeMap) -> RangeMap:
        """Make these the marks of ranges that flows are judged by; the ones before."""
        before, self._ranges = self._ranges, ranges
        return before

    def outdate(self) -> None:
        """To be called before a transaction after which flows are judged by more than other marks
        of hosts, and `tidy_all` or `follow_up` after it.
        """
        self._tidier.outdate()

    async def follow_up(self, move: Move, hosts_before: dict[str, int]) -> None:
        """End what the clients of a move had open.

        `hosts_before` are the hosts that the change touched, with the marks that they had.
        """
        ruled = ChainMap(self._plan().hosts, hosts_before)
        await cut(move.served, ruled, self._machine.topology.router_addresses)
        if move.clients:
            self._tidier.add(move.clients)

    def follow_losses(self) -> None:
        """Tidy up after targets of the plan that the kernel sends nobody to any more: their
        instances are lost, and where they only stood by, nobody starts them again.

        To be called after each update of the table that may send clients to other instances.
        """
        before, self._served = self._served, self._machine.served()
        if lost := before - self._served:
            planned = {instance.mark for instance in self._plan().instances.values()}
            if lost & planned:
                self.tidy_all()

    def tidy_all(self) -> None:
        """Remove whatever flows there are that the plan in force would not let begin so."""
        self._tidier.add([*self._networks(), str(LOOPBACK)])

    async def close(self) -> None:
        """Tidy up no more."""
        await self._tidier.close()

    def _law(self) -> Callable[[bytes, Flow], bool]:
        machine = self._machine
        own = machine.topology.router_addresses
        return may_have(self._plan(), self._ranges, machine.choices, machine.served(), own)

    def _owners(self) -> Ranges:
        """The addresses whose flows are tidied."""
        return Ranges([*self._networks(), str(LOOPBACK)])

    def _networks(self) -> list[str]:
        """The addresses that clients may have."""
        return [str(network) for _, network in self._machine.topology.lan_networks]
