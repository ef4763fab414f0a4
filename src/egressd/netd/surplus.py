"""Sees what clients have open in the engine that connection tracking does not know any more.

The kernel counts a client's flows by their conntrack entries (`egressd.planner.chains.bounds`), and
these may end before the sockets do: of a connection that the client has closed on its side they do
so after 60 s, and of a UDP session that only the far end keeps up after 120 s. So sockets are
counted as well, where there are many; a client that has too many begins no further flow until it
has fewer. And idle connections to resolvers are ended, for which the engine sets no time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP
from typing import Final

import structlog

from egressd.model.errors import Failed
from egressd.netd.kernel import sockets, sockstat
from egressd.planner.bounds import Bounds
from egressd.planner.nft import Greedy

log = structlog.get_logger()

PERIOD_S: Final = 2.0
IDLE_S: Final = 10.0
"""Seconds of silence after which a connection to a resolver is ended (RFC 7766, 6.2.3: a few)."""
_MORE: Final = 1.25
"""What connections that are about to close may come to beside those that are open."""


class Surplus:
    """Keeps `greedy`. `changed` is awaited when that is another."""

    def __init__(
        self,
        bounds: Callable[[], Bounds],
        own: Callable[[], Collection[IPv4Address]],
        changed: Callable[[frozenset[Greedy]], Awaitable[None]],
    ) -> None:
        """`own` tells this machine's addresses."""
        self._bounds = bounds
        self._own = own
        self._changed = changed
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
        allowed = self._allowed()
        used = sockstat.in_use()
        if all(used.get(protocol.upper(), 0) <= most for protocol, most in allowed.items()):
            return frozenset()
        counted = sockets.count_by_client(self._own())
        return frozenset(
            Greedy(socket.inet_ntoa(client), protocol)
            for (number, client), count in counted.items()
            if count > allowed[protocol := _PROTOCOLS[number]]
        )

    def _allowed(self) -> dict[str, int]:
        bounds = self._bounds()
        return {"tcp": int(bounds.connections * _MORE), "udp": bounds.sessions_kept}

    async def _attend(self) -> None:
        while True:
            try:
                await asyncio.to_thread(sockets.destroy_idle_askers, self._own(), IDLE_S)
                greedy = await asyncio.to_thread(self.look)
                if greedy != self.greedy:
                    self.greedy = greedy
                    await self._changed(greedy)
            except (Failed, OSError) as error:
                log.warning("could not see what clients have open", error=str(error))
            except Exception:
                log.exception("could not see what clients have open")
            await asyncio.sleep(PERIOD_S)


_PROTOCOLS: Final = {IPPROTO_TCP: "tcp", IPPROTO_UDP: "udp"}
