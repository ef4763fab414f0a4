"""Clients that a change moves, and the end of their old connections.

A change takes three steps: `plan_for` finds the clients that it moves while the old plan is in
force, `commit` takes over the new plan's marks of ranges, and `follow_up` ends the old connections
of the clients that moved, once the kernel sends these elsewhere.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from egressd.model.plan import Change, Plan
from egressd.netd.kernel.address_ranges import RangeMap, Ranges
from egressd.netd.kernel.conntrack import TrackedFlow
from egressd.netd.ports import ServedTargets
from egressd.netd.reconciler import change_effects
from egressd.netd.reconciler.stale_flows import LOOPBACK, StaleFlows, cut, may_have


class ClientMove(NamedTuple):
    """The effect of a change of the plan on clients' connections."""

    ranges: RangeMap
    """The marks of the ranges of the plan that the change leads to."""
    clients: list[str]
    """Addresses and ranges within the LANs whose mark changes."""
    served: list[str]
    """The members of `clients` that may have sockets in the engine."""


class MovedClients:
    """Holds the marks of the ranges in force, and ends old flows of clients that moved."""

    def __init__(self, kernel: ServedTargets, plan: Callable[[], Plan]) -> None:
        self._kernel = kernel
        self._plan = plan
        self._ranges = RangeMap({})
        """The marks of the plan's ranges, in order; computed again only when a range changes."""
        self._served: set[int] = set()
        """The marks of the targets that were served at the last call of `follow_losses`."""
        self._stale_flows = StaleFlows(self._law, self._owners, kernel.keep_cut)

    def plan_for(self, change: Change) -> ClientMove:
        """Return the effect of `change`, which is not in force yet."""
        plan, ranges = self._plan(), self._ranges
        if change.nets:
            ranges = RangeMap(dict(change.nets.applied(plan.nets)))
        # Addresses of a wide range outside the LANs, such as servers, are no clients.
        moved = change_effects.moved(change, plan, self._ranges, ranges)
        clients = list(Ranges(self._networks()).clip(moved))
        return ClientMove(ranges, clients, change_effects.engine_served(clients, plan))

    def commit(self, ranges: RangeMap) -> RangeMap:
        """Judge flows by the marks of these ranges. Return the previous ranges."""
        before, self._ranges = self._ranges, ranges
        return before

    def invalidate(self) -> None:
        """Invalidate a running walk. Call this before a transaction that alters more than the marks
        of hosts in the judgement of flows; call `end_stale_flows` or `follow_up` after the
        transaction.
        """
        self._stale_flows.invalidate()

    async def follow_up(self, move: ClientMove, hosts_before: dict[str, int]) -> None:
        """End the old connections of the clients of a move.

        `hosts_before` are the hosts that the change touched, with their marks before it.
        """
        ruled = ChainMap(self._plan().hosts, hosts_before)
        await cut(move.served, ruled, self._kernel.topology.router_addresses)
        if move.clients:
            self._stale_flows.add(move.clients)

    async def cut(self, clients: Sequence[str]) -> None:
        """End the old connections of clients of which the plan in force lets none go on."""
        await cut(clients, self._plan().hosts, self._kernel.topology.router_addresses)
        if clients:
            self._stale_flows.add(clients)

    def follow_losses(self) -> None:
        """End old flows if the kernel no longer sends clients to some target of the plan: its
        instance is lost, and a lost standby instance is not started again.

        Call this after each update of the table that may send clients to other instances.
        """
        before, self._served = self._served, self._kernel.served()
        if lost := before - self._served:
            planned = {instance.mark for instance in self._plan().instances.values()}
            if lost & planned:
                self.end_stale_flows()

    def end_stale_flows(self) -> None:
        """Remove all flows that the plan in force would not let begin as they are."""
        self._stale_flows.add([*self._networks(), str(LOOPBACK)])

    async def close(self) -> None:
        """Stop removing flows."""
        await self._stale_flows.close()

    def _law(self) -> Callable[[bytes, TrackedFlow], bool]:
        kernel = self._kernel
        own = kernel.topology.router_addresses
        return may_have(self._plan(), self._ranges, kernel.choices, kernel.served(), own)

    def _owners(self) -> Ranges:
        """Return the addresses whose flows are checked."""
        return Ranges([*self._networks(), str(LOOPBACK)])

    def _networks(self) -> list[str]:
        """Return the networks whose addresses clients may have."""
        return [str(network) for _, network in self._kernel.topology.lan_networks]
