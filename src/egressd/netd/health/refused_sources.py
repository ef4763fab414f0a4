"""Report the clients and the callers of proxy services that have reached one of their bounds.

The kernel refuses packets beyond a bound, even if this module does not run. It keeps the sources
that it refused for a few seconds, with the number of refused packets.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from egressd.model.messages import Reached
from egressd.netd.kernel import refused, uapi
from egressd.netd.kernel.netlink import KeptSocket
from egressd.netd.kernel.refused import RefusedSource
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.api_guard import CALLS_PER_S
from egressd.planner.bounds import ASKING_CONNECTIONS, QUESTIONS_PER_S, Bounds
from egressd.planner.nft import Crowd, Greedy

PERIOD_S: Final = 0.5
TOLD_S: Final = 10.0
"""Seconds after the last refusal during which it is reported."""
_KINDS: Final = {
    ("tcp", False): refused.CONNECTIONS,
    ("udp", False): refused.SESSIONS,
    ("tcp", True): refused.NETWORK_CONNECTIONS,
    ("udp", True): refused.NETWORK_SESSIONS,
}
"""Protocol, and True if the bound is a network's -> kind."""
REACHED_MAX: Final = 1000
"""Entries that are reported at most, the first in order: their number has no other bound."""


class RefusedSources:
    """Keeps the sources that have reached a bound. `changed` is called when these change."""

    def __init__(
        self,
        bounds: Callable[[], Bounds],
        changed: Callable[[], None],
        greedy: Callable[[], Collection[Greedy]] = tuple,
        crowd: Callable[[], Crowd] = Crowd,
        read: Callable[[KeptSocket], dict[RefusedSource, int]] = refused.read,
    ) -> None:
        """`greedy` and `crowd` give the clients and callers that netd itself has found beyond their
        bounds (`egressd.netd.health.client_bounds` and `egressd.netd.health.caller_bounds`).
        """
        self._bounds = bounds
        self._changed = changed
        self._greedy = greedy
        self._crowd = crowd
        self._read = read
        self._kernel = KeptSocket(uapi.NETLINK_NETFILTER)
        self._counted: Mapping[RefusedSource, int] = {}
        self._last: dict[RefusedSource, float] = {}
        """Refusal -> the time when it was seen last, by the loop's clock."""
        self._totals: Counter[str] = Counter()
        self._task = PeriodicTask("read the limit counters", self._check, PERIOD_S)

    @property
    def reached(self) -> tuple[Reached, ...]:
        """The sources that have reached a bound within the last `TOLD_S` seconds."""
        figures = self._figures()
        return tuple(
            Reached(kind=each.kind, source=each.source, port=each.port, bound=figures[each.kind])
            for each in sorted(self._last)[:REACHED_MAX]
        )

    @property
    def totals(self) -> dict[str, int]:
        """Kind -> packets that were refused since netd started."""
        return dict(self._totals)

    def start(self) -> None:
        """Start looking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()
        self._kernel.close()

    def check(self, now: float) -> None:
        """Read the refusals since the last call. Raises OSError."""
        found = {
            RefusedSource(_KINDS[each.protocol, each.is_of_network], each.client): 0
            for each in self._greedy()
        }
        found |= dict.fromkeys(
            (RefusedSource(refused.CALLS, each) for each in self._crowd().callers), 0
        )
        if self._crowd().is_full:
            found[RefusedSource(refused.OUTSIDE)] = 0
        found |= self._read(self._kernel)
        for each, packets in found.items():
            before = self._counted.get(each, 0)
            # The count of an element that has expired meanwhile starts again at 0.
            self._totals[each.kind] += packets - before if packets >= before else packets
        self._counted = found
        known = {*self._last}
        self._last = {each: at for each, at in self._last.items() if now - at < TOLD_S}
        self._last |= dict.fromkeys(found, now)
        if known != {*self._last}:
            self._changed()

    def _figures(self) -> dict[str, int]:
        bounds = self._bounds()
        return {
            refused.CONNECTIONS: bounds.connections,
            refused.SESSIONS: bounds.sessions,
            refused.NETWORK_CONNECTIONS: bounds.connections_of_network,
            refused.NETWORK_SESSIONS: bounds.sessions_of_network,
            refused.RESOLVER: ASKING_CONNECTIONS,
            refused.QUESTIONS: QUESTIONS_PER_S,
            refused.STRANGERS: 0,
            refused.GUESSES: 0,
            refused.CALLS: bounds.callers,
            refused.SERVICE: 0,
            refused.OUTSIDE: bounds.outside,
            refused.API: CALLS_PER_S,
        }

    async def _check(self) -> None:
        self.check(asyncio.get_running_loop().time())
