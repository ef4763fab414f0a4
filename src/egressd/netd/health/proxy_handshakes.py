"""End connections to proxy services that do not complete their handshake, or exceed the bounds.

The engine waits without limit for a caller's greeting, password and request. A connection that has
not signed in within `HANDSHAKE_S`, or has not been answered, is not a genuine caller: it sends
nothing, or an incomplete request, or a byte now and then. The kernel keeps the progress of each
handshake in the connection's mark (`egressd.planner.proxy_service_rules`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from ipaddress import IPv4Address
from typing import Final

from egressd.model.plan import Plan
from egressd.netd.health.caller_bounds import crowd_of
from egressd.netd.kernel import conntrack, sockets, uapi
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.netd.kernel.set_elements import INET, get
from egressd.netd.kernel.sockets import CallerConnection
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.bounds import Bounds
from egressd.planner.nft import Crowd
from egressd.planner.proxy_service_rules import HANDSHAKE_S
from egressd.planner.registry import MARK_ASKING_BY_HTTP, MARK_PAST, MARK_SIGNED_IN
from egressd.planner.topology import Topology

PERIOD_S: Final = 0.5
PATIENCE_S: Final = 300.0
"""Seconds for callers that have signed in and sent no request, and for a server's answer to an
HTTP request, which is the first message of an HTTP caller."""
_REQUEST_MIN: Final = 128
"""Bytes at least of a request with its headers, as programs send them; fewer bytes are an
incomplete request."""
_TALK_MAX: Final = 4096
"""Bytes that exceed all of a service's own messages. A caller that was sent more has a tunnel, even
if it has no mark any more, because another program has removed its conntrack entry."""

Mark = int | None


class ProxyHandshakes:
    """Ends such connections while the plan has proxy services. `changed` is awaited when `crowd`
    changes.
    """

    def __init__(
        self,
        plan: Callable[[], Plan],
        bounds: Callable[[], Bounds],
        topology: Callable[[], Topology],
        changed: Callable[[Crowd], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._bounds = bounds
        self._topology = topology
        self._changed = changed
        self.crowd = Crowd()
        """The callers that have reached their bound of connections."""
        self._since: dict[bytes, float] = {}
        """Connection -> the time when it was seen first, by the loop's clock."""
        self._done: set[bytes] = set()
        """The connections that have finished their handshake."""
        self.ended = 0
        """The number of late connections that were ended since netd began."""
        self._task = PeriodicTask(
            "check for unauthenticated proxy connections", self._check, PERIOD_S
        )

    def start(self) -> None:
        """Start looking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    def check(self, ports: Mapping[int, bool], now: float) -> Crowd:
        """End connections that are late or beyond the bounds. Return the callers that get no more.

        `ports`: the port of each service -> True if it is for LAN clients only. Raises OSError.
        """
        callers = sockets.callers(ports)
        self._since = {each.id: self._since.get(each.id, now) for each in callers}
        self._done.intersection_update(self._since)
        late = []
        for each in callers:
            age = now - self._since[each.id]
            if age < HANDSHAKE_S or each.id in self._done:
                continue
            mark = conntrack.mark_of_caller(each.local, each.remote)
            if is_past(mark, each):
                self._done.add(each.id)
            elif age >= PATIENCE_S or not _may_take_longer(mark, each, ports):
                late.append(each)
        self.ended += sockets.destroy(late)
        oldest_first = sorted(callers, key=lambda each: self._since[each.id])
        crowd, surplus = crowd_of(oldest_first, self._is_inside, self._bounds())
        sockets.destroy(surplus)
        return crowd

    def _is_inside(self, address: IPv4Address) -> bool:
        topology = self._topology()
        return (
            address.is_loopback
            or address in topology.router_addresses
            or any(address in network for _, network in topology.lan_networks)
        )

    async def _check(self) -> None:
        services = [each for each in self._plan().instances.values() if each.port]
        crowd = Crowd()
        if services:
            ports = {each.port: each.lan_only for each in services}
            now = asyncio.get_running_loop().time()
            crowd = await asyncio.to_thread(self.check, ports, now)
        if crowd != self.crowd:
            self.crowd = crowd
            await self._changed(crowd)


def is_past(mark: Mark, caller: CallerConnection) -> bool:
    """True if a caller has finished its handshake and its request was answered."""
    return mark == MARK_PAST or caller.sent > _TALK_MAX


def _may_take_longer(mark: Mark, caller: CallerConnection, ports: Mapping[int, bool]) -> bool:
    """True if the caller may have sent a request whose answer takes a while."""
    if mark == MARK_SIGNED_IN:
        return True
    if mark != MARK_ASKING_BY_HTTP or caller.received < _REQUEST_MIN:
        return False
    return ports[caller.local[1]] or _has_signed_in_lately(caller)


def _has_signed_in_lately(caller: CallerConnection) -> bool:
    """True if another connection of the same address has signed in lately."""
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        return get(kernel, INET, "callers", caller.remote[0].packed) is not None
