"""Look for the devices in LANs, and report them to the api.

A device shows itself by its entry in the kernel's neighbour table and by its DHCP requests. Both
are reported as they are: the api reads what the hosts of a LAN have sent, and this process, which
is root, does not. A flood of new hardware addresses, or of requests, costs little: beyond a number
within `PERIOD_S` the kernel drops the rest, and a look at the whole table finds what remains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP
from typing import Final

import structlog

from egressd.model.facts import Facts
from egressd.model.messages import DeviceNews, DhcpFrame, SeenNeighbour, TriedDestination
from egressd.netd.kernel import impostors, tried
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.dhcp_frames import DhcpRequests
from egressd.netd.kernel.neighbours import Neighbour, NeighbourEvents, seen
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.topology import Topology

log = structlog.get_logger()

PERIOD_S: Final = 2.0
LOOK_S: Final = 60.0
"""Seconds between looks at the neighbour table."""
IMPOSTORS_S: Final = 10.0
"""Seconds between looks at the impostors that the kernel has noted."""
CROWDED_LOOK_S: Final = LOOK_S / 4
"""Seconds until the next look after events were dropped."""
FRESH_S: Final = LOOK_S + 30.0
"""Age up to which a look reports a neighbour: one that is older was in an earlier report. The first
look reports all."""
EVENTS_MAX: Final = 1024
"""Events of neighbours within `PERIOD_S`."""
REQUESTS_MAX: Final = 64
"""DHCP requests within `PERIOD_S`."""
_PROTOCOLS: Final = {IPPROTO_TCP: "tcp", IPPROTO_UDP: "udp"}
_NEWS_MAX: Final = 1024
"""Neighbours in one message."""


class LanDevices:
    """Calls `publish` with what is seen in LANs, from `start` to `close`."""

    def __init__(
        self,
        facts: Callable[[], Facts],
        topology: Callable[[], Topology],
        publish: Callable[[DeviceNews], None],
    ) -> None:
        self._facts = facts
        self._topology = topology
        self._publish = publish
        self._events: NeighbourEvents | None = None
        self._listeners: dict[tuple[str, int], DhcpRequests] = {}
        """LAN and its index -> the listener there."""
        self._known: dict[tuple[int, bytes], bytes] = {}
        """Interface and address -> the hardware address that was reported last."""
        self._fresh: dict[tuple[int, bytes], Neighbour] = {}
        self._requests: dict[tuple[str, bytes], bytes] = {}
        """LAN and sender -> its last request."""
        self._heard = 0
        self._asked = 0
        self._look_at = self._impostors_at = 0.0
        self._is_first = True
        self._has_tried = self._has_impostors = True
        self._task = PeriodicTask("look for devices in LANs", self._check, PERIOD_S)

    def start(self) -> None:
        """Start looking."""
        self._events = NeighbourEvents(self._hear)
        self._task.start()

    def look_soon(self) -> None:
        """Report everything that there is once more, for a receiver that has just come."""
        self._is_first = self._has_tried = self._has_impostors = True
        self._look_at = self._impostors_at = 0.0
        self._task.wake()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()
        if self._events is not None:
            self._events.close()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

    async def _check(self) -> None:
        """Report what was heard, look if it is time, and listen again."""
        now = asyncio.get_running_loop().time()
        facts, topology = self._facts(), self._topology()
        lans = {
            lan: facts.interfaces[lan].index for lan in topology.lans if lan in facts.interfaces
        }
        fresh, self._fresh = [*self._fresh.values()], {}
        requests, self._requests = self._requests, {}
        self._report(self._within(fresh, lans, facts, topology), requests)
        self._listen(lans)
        if self._heard > EVENTS_MAX and self._events is not None:
            self._events.resume()
            self._look_at = min(self._look_at, now + CROWDED_LOOK_S)
        if self._asked > REQUESTS_MAX:
            for listener in self._listeners.values():
                listener.resume()
        self._heard = self._asked = 0
        if now >= self._look_at:
            # Before the look: a receiver may come while it is made, and needs another one.
            self._look_at = now + LOOK_S
            found = await self._look(lans.values())
            self._report(self._within(found, lans, facts, topology), {})
            await self._report_tried()
        if now >= self._impostors_at:
            self._impostors_at = now + IMPOSTORS_S
            await self._report_impostors()

    async def _look(self, indexes: Iterable[int]) -> list[Neighbour]:
        """Return the neighbours that have been alive since the last look."""
        is_first, self._is_first = self._is_first, False
        found = await asyncio.to_thread(seen, frozenset(indexes))
        # What is gone from the table is forgotten here, too.
        self._known = {(each.interface, each.address): each.mac for each in found}
        return [each for each in found if is_first or each.age_s <= FRESH_S]

    async def _report_tried(self) -> None:
        """Report what clients without a rule were refused, if that may be news."""
        had_tried, self._has_tried = self._has_tried, False
        found = await asyncio.to_thread(tried.read)
        if found or had_tried:
            self._publish(
                DeviceNews(
                    tried=tuple(
                        TriedDestination(
                            each.client, _PROTOCOLS[each.protocol], each.ip, each.port, each.packets
                        )
                        for each in found
                        if each.protocol in _PROTOCOLS
                    )
                )
            )
        self._has_tried |= bool(found)

    async def _report_impostors(self) -> None:
        """Report which devices have used addresses of others, if that may be news."""
        had_impostors, self._has_impostors = self._has_impostors, False
        found = await asyncio.to_thread(impostors.read)
        if found or had_impostors:
            self._publish(DeviceNews(impostors=tuple(found)))
        self._has_impostors |= bool(found)

    def _within(
        self, found: Iterable[Neighbour], lans: Mapping[str, int], facts: Facts, topology: Topology
    ) -> list[SeenNeighbour]:
        """Return the neighbours that are hosts of a LAN: neither this machine nor its gateway to
        the internet, which an interface that is LAN and WAN has beside it.
        """
        networks = Ranges(str(network) for _, network in topology.lan_networks)
        gateways = {route.gateway for route in facts.routes if route.destination.prefixlen == 0}
        others = {each.packed for each in (*topology.router_addresses, *filter(None, gateways))}
        names = {index: name for name, index in lans.items()}
        return [
            SeenNeighbour(
                interface=names[each.interface],
                ip=str(IPv4Address(each.address)),
                mac=each.mac.hex(":"),
                age_s=int(each.age_s),
            )
            for each in found
            if each.interface in names and each.address in networks and each.address not in others
        ]

    def _report(
        self, found: Sequence[SeenNeighbour], requests: Mapping[tuple[str, bytes], bytes]
    ) -> None:
        frames = tuple(
            DhcpFrame(interface=lan, mac=mac.hex(":"), packet=packet)
            for (lan, mac), packet in requests.items()
        )
        if frames:
            self._publish(DeviceNews(frames=frames))
        for first in range(0, len(found), _NEWS_MAX):
            self._publish(DeviceNews(tuple(found[first : first + _NEWS_MAX])))

    def _listen(self, lans: Mapping[str, int]) -> None:
        """Listen to DHCP requests in all LANs, and nowhere else."""
        for key in self._listeners.keys() - lans.items():
            self._listeners.pop(key).close()
        for lan, index in lans.items() - self._listeners.keys():
            try:
                self._listeners[lan, index] = DhcpRequests(lan, self._ask_heard(lan))
            except OSError as error:  # it has gone since the last look at the machine
                log.debug("cannot listen to DHCP requests", lan=lan, error=str(error))

    def _ask_heard(self, lan: str) -> Callable[[bytes, bytes], None]:
        def heard(mac: bytes, packet: bytes) -> None:
            self._asked += 1
            if self._asked <= REQUESTS_MAX:
                self._requests[lan, mac] = packet
            elif self._asked == REQUESTS_MAX + 1:
                for listener in self._listeners.values():
                    listener.pause()

        return heard

    def _hear(self, found: Iterable[Neighbour], lost: bool) -> None:
        """Note who has come, or come to another address. Signs of life wait for the next look."""
        for each in found:
            self._heard += 1
            key = each.interface, each.address
            if self._known.get(key) != each.mac and self._heard <= EVENTS_MAX:
                self._fresh[key] = each
                self._known[key] = each.mac
        if (lost or self._heard > EVENTS_MAX) and self._events is not None:
            self._heard = max(self._heard, EVENTS_MAX + 1)
            self._events.pause()
