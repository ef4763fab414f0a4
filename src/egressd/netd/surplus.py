"""Sees what clients have open in the engine that connection tracking does not know any more.

The kernel counts a client's flows by their conntrack entries (`egressd.planner.chains.bounds`), and
these may end before the sockets do: of a connection that the client has closed on its side they do
so after 60 s, and of a UDP session that only the far end keeps up after 120 s. So sockets are
counted as well, where there are many; a client that has too many begins no further flow until it
has fewer. So are those of networks, since a host may use many addresses. And connections to
resolvers on which nothing is asked, or half of something, are ended: the engine sets no time.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping
from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP
from typing import Final

import structlog

from egressd.model.errors import Failed
from egressd.netd.kernel import sockets, sockstat
from egressd.netd.kernel.sockets import Asker
from egressd.planner.bounds import NETWORK_BITS, Bounds
from egressd.planner.nft import Greedy

log = structlog.get_logger()

PERIOD_S: Final = 2.0
IDLE_S: Final = 10.0
"""Seconds after which a connection to a resolver is ended on which nothing is asked (RFC 7766,
6.2.3: a few), or a question is begun and not answered: the engine gives each 4 s."""
_MORE: Final = 1.25
"""What connections that are about to close may come to beside those that are open."""
_PROTOCOLS: Final = {IPPROTO_TCP: "tcp", IPPROTO_UDP: "udp"}

Counted = Mapping[tuple[int, bytes], int]
"""Protocol and client, an address of 4 bytes -> how much it has open."""


class Surplus:
    """Keeps `greedy`. `changed` is awaited when that is another."""

    def __init__(
        self,
        bounds: Callable[[], Bounds],
        own: Callable[[], Collection[IPv4Address]],
        ruled: Callable[[], Container[str]],
        changed: Callable[[frozenset[Greedy]], Awaitable[None]],
    ) -> None:
        """`own` tells this machine's addresses, `ruled` those that have a rule of their own."""
        self._bounds = bounds
        self._own = own
        self._ruled = ruled
        self._changed = changed
        self._idlers = Idlers()
        self.greedy: frozenset[Greedy] = frozenset()
        """Who has too much open."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._attend())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look(self) -> frozenset[Greedy]:
        """Who has too much open now. Raises OSError."""
        bounds = self._bounds()
        used = sockstat.in_use()
        if all(used.get(name.upper(), 0) <= most for name, most in _of_a_client(bounds).items()):
            return frozenset()
        return greedy(sockets.count_by_client(self._own()), bounds, self._ruled())

    def _end_idle(self, now: float) -> None:
        """End connections to resolvers. Raises OSError."""
        sockets.destroy(self._idlers.among(sockets.askers(self._own()), now))

    async def _attend(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                await asyncio.to_thread(self._end_idle, loop.time())
                found = await asyncio.to_thread(self.look)
                if found != self.greedy:
                    self.greedy = found
                    await self._changed(found)
            except (Failed, OSError) as error:
                log.warning("cannot count the connections of clients", error=str(error))
            except Exception:
                log.exception("cannot count the connections of clients")
            await asyncio.sleep(PERIOD_S)


class Idlers:
    """Tells connections to resolvers that ask nothing from those that wait for an answer."""

    def __init__(self) -> None:
        self._asking: dict[bytes, float] = {}
        """When each was seen first with a question, or a part of one, that is not answered."""

    def among(self, askers: Collection[Asker], now: float) -> list[Asker]:
        """Those that are to end. `now`: by a clock in seconds, to be called every `PERIOD_S`."""
        self._asking = {
            each.id: self._asking.get(each.id, now)
            for each in askers
            if each.received_s < each.sent_s
        }
        return [each for each in askers if self._idle_s(each, now) >= IDLE_S]

    def _idle_s(self, asker: Asker, now: float) -> float:
        if asker.id not in self._asking:
            return min(asker.sent_s, asker.received_s)
        # Another answer may have been sent since then.
        return min(asker.sent_s, max(now - self._asking[asker.id], asker.received_s))


def greedy(counted: Counted, bounds: Bounds, ruled: Container[str]) -> frozenset[Greedy]:
    """Who has more open than a client may, or an undue share of what its network may."""
    allowed = _of_a_client(bounds)
    return frozenset(
        Greedy(socket.inet_ntoa(client), name)
        for (number, client), count in counted.items()
        if count > allowed[name := _PROTOCOLS[number]]
    ).union(_of_networks(counted, bounds, ruled))


def _of_networks(counted: Counted, bounds: Bounds, ruled: Container[str]) -> Iterator[Greedy]:
    """Those that have more than an even part of what a network may, where that has more. One that
    has little begins further flows though its neighbours have much.
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
