"""Find the clients' sockets in the engine that have outlived their conntrack entries.

The kernel counts a client's flows by their conntrack entries (`egressd.planner.chains.bounds`). An
entry may end before its socket: after 60 s if the client has closed its side of the connection, and
after 120 s for a UDP session that only the far end keeps up. So this module also counts sockets,
once there are many of them. A client with too many sockets begins no further flow until it has
fewer. Sockets are counted per network as well, since a host may use many addresses. Connections to
resolvers that carry no question, or an incomplete one, are ended: the engine has no timeout for
them.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping
from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP
from typing import Final

from egressd.netd.kernel import sockets, sockstat
from egressd.netd.kernel.sockets import ResolverConnection
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.bounds import NETWORK_BITS, Bounds
from egressd.planner.nft import Greedy

PERIOD_S: Final = 2.0
IDLE_S: Final = 10.0
"""Seconds until a connection to a resolver is ended that carries no question (RFC 7766, 6.2.3: a
few), or a question that is begun and not answered: the engine gives each question 4 s."""
_MORE: Final = 1.25
"""Factor on a client's bound of connections: it leaves room for connections that are about to
close, beside the open ones."""
_PROTOCOLS: Final = {IPPROTO_TCP: "tcp", IPPROTO_UDP: "udp"}

Counted = Mapping[tuple[int, bytes], int]
"""Protocol and client (an address of 4 bytes) -> the number of flows that it has open."""


class ClientBounds:
    """Keeps `greedy` up to date. `changed` is awaited when it changes."""

    def __init__(
        self,
        bounds: Callable[[], Bounds],
        own: Callable[[], Collection[IPv4Address]],
        ruled: Callable[[], Container[str]],
        changed: Callable[[frozenset[Greedy]], Awaitable[None]],
    ) -> None:
        """`own` gives this machine's addresses, `ruled` the addresses that have their own rule."""
        self._bounds = bounds
        self._own = own
        self._ruled = ruled
        self._changed = changed
        self._idlers = Idlers()
        self.greedy: frozenset[Greedy] = frozenset()
        """The clients that have too many flows open."""
        self._task = PeriodicTask("count the connections of clients", self._check, PERIOD_S)

    def start(self) -> None:
        """Start looking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    def check(self) -> frozenset[Greedy]:
        """Return the clients that have too many flows open now. Raises OSError."""
        bounds = self._bounds()
        used = sockstat.in_use()
        if all(used.get(name.upper(), 0) <= most for name, most in _of_a_client(bounds).items()):
            return frozenset()
        return greedy(sockets.count_by_client(self._own()), bounds, self._ruled())

    def _end_idle(self, now: float) -> None:
        """End idle connections to resolvers. Raises OSError."""
        sockets.destroy(self._idlers.among(sockets.askers(self._own()), now))

    async def _check(self) -> None:
        await asyncio.to_thread(self._end_idle, asyncio.get_running_loop().time())
        found = await asyncio.to_thread(self.check)
        if found != self.greedy:
            self.greedy = found
            await self._changed(found)


class Idlers:
    """Distinguishes idle connections to resolvers from connections that wait for an answer."""

    def __init__(self) -> None:
        self._asking: dict[bytes, float] = {}
        """Connection -> the time when it was first seen with an unanswered question, or a part of
        one."""

    def among(self, askers: Collection[ResolverConnection], now: float) -> list[ResolverConnection]:
        """Return the connections to end. Call it every `PERIOD_S`; `now` is a clock's seconds."""
        self._asking = {
            each.id: self._asking.get(each.id, now)
            for each in askers
            if each.received_s < each.sent_s
        }
        return [each for each in askers if self._idle_s(each, now) >= IDLE_S]

    def _idle_s(self, asker: ResolverConnection, now: float) -> float:
        if asker.id not in self._asking:
            return min(asker.sent_s, asker.received_s)
        # An answer may have been sent since then: then `sent_s` is shorter.
        return min(asker.sent_s, max(now - self._asking[asker.id], asker.received_s))


def greedy(counted: Counted, bounds: Bounds, ruled: Container[str]) -> frozenset[Greedy]:
    """Return the clients that exceed the bound of a client, or an even share of the bound of their
    network.
    """
    allowed = _of_a_client(bounds)
    return frozenset(
        Greedy(socket.inet_ntoa(client), name)
        for (number, client), count in counted.items()
        if count > allowed[name := _PROTOCOLS[number]]
    ).union(_of_networks(counted, bounds, ruled))


def _of_networks(counted: Counted, bounds: Bounds, ruled: Container[str]) -> Iterator[Greedy]:
    """Yield the clients that have more than an even share of their network's bound, if the network
    exceeds it. A client with few flows may begin further ones although its neighbours have many.
    """
    networks: dict[tuple[int, bytes], dict[str, int]] = defaultdict(dict)
    for (number, client), count in counted.items():
        if (address := socket.inet_ntoa(client)) not in ruled:
            networks[number, client[: NETWORK_BITS // 8]][address] = count
    allowed = _of_a_network(bounds)
    for (number, _), counts in networks.items():
        most = allowed[name := _PROTOCOLS[number]]
        if sum(counts.values()) > most:
            for address, count in counts.items():
                if count > most / len(counts):
                    yield Greedy(address, name, is_of_network=True)


def _of_a_client(bounds: Bounds) -> dict[str, int]:
    return {"tcp": int(bounds.connections * _MORE), "udp": bounds.sessions_kept}


def _of_a_network(bounds: Bounds) -> dict[str, int]:
    return {"tcp": bounds.connections_of_network, "udp": bounds.sessions_of_network_kept}
