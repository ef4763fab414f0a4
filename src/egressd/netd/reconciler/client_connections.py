"""The live connections of single clients, as the api asks for them.

The kernel passes its whole table for one client. So there is one walk at a time, in a thread; it is
followed by a rest three times as long, and its result is good for ten times as long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Final

import msgspec

from egressd.model.connections import CLOSED_AT_ONCE, CONNECTIONS_SHOWN, TrackedConnection
from egressd.model.errors import Failed
from egressd.model.messages import ConnectionsClosed, ConnectionsListed
from egressd.netd.kernel import client_flows
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.cut_flows import KeepCut
from egressd.planner.registry import inbound_place
from egressd.planner.topology import Topology

_REST: Final = 3
"""Durations of a walk until the next one may begin."""
_KEPT: Final = 10
"""Durations of a walk for which its result is good."""
_KEPT_MIN_S: Final = 0.5
_CLIENTS_MAX: Final = 16
"""Clients whose last result is kept."""


class ClientConnections:
    """Lists and closes the connections of clients. `carries` returns True for a client whose known
    connections the fast path may carry, past the kernel's counts.
    """

    def __init__(
        self,
        topology: Callable[[], Topology],
        carries: Callable[[str], bool],
        keep_cut: KeepCut,
    ) -> None:
        self._topology = topology
        self._carries = carries
        self._keep_cut = keep_cut
        self._turn = asyncio.Lock()
        self._may_walk_at = 0.0
        self._kept: dict[str, tuple[float, ConnectionsListed]] = {}
        """Client -> the end of the time for which its connections are good, and these."""

    async def list(self, client: str) -> ConnectionsListed:
        """Return the connections of an address. Raises Failed."""
        async with self._turn:
            until, kept = self._kept.pop(client, (0.0, None))
            if kept is None or time.monotonic() >= until:
                await self._rest()
                begun = time.monotonic()
                try:
                    found = await asyncio.to_thread(self._listed, client)
                finally:
                    took_s = self._walked(begun)
                kept = ConnectionsListed(found.total, tuple(map(self._with_wan, found.first)))
                until = time.monotonic() + max(_KEPT_MIN_S, _KEPT * took_s)
            self._kept[client] = until, kept
            while len(self._kept) > _CLIENTS_MAX:
                del self._kept[next(iter(self._kept))]
        return kept

    async def close_some(self, client: str, wanted: int | None) -> ConnectionsClosed:
        """Close the connection `wanted` of an address, or all. Raises Failed."""
        async with self._turn:
            self._kept.pop(client, None)
            await self._rest()
            begun = time.monotonic()
            try:
                ended = await asyncio.to_thread(self._close, client, wanted)
            finally:
                self._walked(begun, asleep_s=client_flows.NOTICE_S)
        return ConnectionsClosed(ended.closed, ended.left)

    async def _rest(self) -> None:
        await asyncio.sleep(self._may_walk_at - time.monotonic())

    def _walked(self, begun: float, asleep_s: float = 0.0) -> float:
        """Note a walk that has ended now; return the seconds that it took, without those in which
        it may have slept.
        """
        now = time.monotonic()
        took_s = max(0.0, now - begun - asleep_s)
        self._may_walk_at = now + _REST * took_s
        return took_s

    def _listed(self, client: str) -> client_flows.FoundFlows:
        if self._is_own(client):
            return client_flows.FoundFlows(0, [])
        is_counted = not self._carries(client)
        try:
            return client_flows.listed(
                client, self._lans(), CONNECTIONS_SHOWN, is_counted=is_counted
            )
        except OSError as error:
            raise Failed("read the client's connections", str(error)) from error

    def _close(self, client: str, wanted: int | None) -> client_flows.EndedFlows:
        if self._is_own(client):
            return client_flows.EndedFlows(0, 0)
        own = self._topology().router_addresses
        try:
            return client_flows.close(
                client,
                self._lans(),
                CLOSED_AT_ONCE,
                wanted=wanted,
                own=own,
                keep_cut=self._keep_cut,
            )
        except OSError as error:
            raise Failed("close the client's connections", str(error)) from error

    def _with_wan(self, row: TrackedConnection) -> TrackedConnection:
        place, wans = inbound_place(row.mark), self._topology().seen_wans
        if place is None or place >= len(wans):
            return row
        return msgspec.structs.replace(row, wan=wans[place])

    def _is_own(self, client: str) -> bool:
        return IPv4Address(client) in self._topology().router_addresses

    def _lans(self) -> Ranges:
        """Return the addresses that clients may have."""
        topology = self._topology()
        networks = (*topology.lan_networks, *topology.local_networks)
        return Ranges(str(network) for _, network in networks)
