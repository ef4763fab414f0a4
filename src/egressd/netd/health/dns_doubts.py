"""Trigger an early look at egresses and resolvers when traffic gives a reason to.

`DnsServerChecks` looks at them every 10 s by itself. Blocked clients must be reported sooner than
that: so it also looks when a WAN has sent packets and received none, and while clients send DNS
questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from egressd.netd.health.dns_servers import DnsServerChecks
from egressd.netd.kernel import questions, traffic, uapi
from egressd.netd.kernel.netlink import KeptSocket
from egressd.netd.kernel.traffic import InterfaceTraffic
from egressd.netd.system.periodic import PeriodicTask

PERIOD_S: Final = 0.2
PATIENCE_S: Final = 0.2
"""Seconds from the first unanswered packet; nearly all answers take less."""
ASKED_AGAIN_S: Final = 0.5
"""Seconds at least between two looks at the resolvers of one egress."""


class _Heard(msgspec.Struct):
    """Bytes that an interface had carried when it last received a packet."""

    received: int
    sent: int
    unanswered_since: float | None = None
    """Time by the loop's clock; None if nothing was sent since."""
    is_told: bool = False


class Silence:
    """Notices when one of the interfaces `names` has sent packets and received none.

    The kernel reports no event when a WAN stops answering, but its counters show it. On a link
    with constant traffic of other hosts (broadcasts of a shared segment) the counters do not show
    it, and only the regular look finds out.
    """

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        read: Callable[[], Mapping[str, InterfaceTraffic]] = traffic.read,
    ) -> None:
        self._names = names
        self._read = read
        self._heard: dict[str, _Heard] = {}

    def is_noticed(self, now: float) -> bool:
        """Compare the counters with those of the last look. True once for each silence.

        Raises OSError.
        """
        counted = self._read()
        known, self._heard = self._heard, {}
        for name in self._names():
            if (count := counted.get(name)) is None:
                continue
            heard = known.get(name)
            if heard is None or count.received != heard.received:
                heard = _Heard(count.received, count.sent)
            elif heard.unanswered_since is None and count.sent != heard.sent:
                heard.unanswered_since = now
            self._heard[name] = heard
        late = [
            heard
            for heard in self._heard.values()
            if not heard.is_told
            and heard.unanswered_since is not None
            and now - heard.unanswered_since >= PATIENCE_S
        ]
        for heard in late:
            heard.is_told = True
        return bool(late)


class Questions:
    """Notices the egresses that DNS questions leave by. The kernel does not count answers: that
    would cost a rule for each packet.
    """

    def __init__(self, read: Callable[[], Mapping[int, int]]) -> None:
        self._read = read
        self._noticed: dict[int, tuple[int, float]] = {}
        """Mark of an egress -> count of its questions when last noticed, and the time of that."""

    def noticed(self, now: float) -> frozenset[int]:
        """Return the marks of egresses with a new question, each at most once in `ASKED_AGAIN_S`.

        Raises OSError.
        """
        counted = self._read()
        known = {mark: seen for mark, seen in self._noticed.items() if mark in counted}
        fresh = {
            mark: (count, now)
            for mark, count in counted.items()
            if mark not in known
            or (count != known[mark][0] and now - known[mark][1] >= ASKED_AGAIN_S)
        }
        self._noticed = known | fresh
        return frozenset(fresh)


class DnsDoubts:
    """Calls `resolvers.check_soon` for silent interfaces of `wans`, and for egresses with
    questions.
    """

    def __init__(self, wans: Callable[[], Collection[str]], resolvers: DnsServerChecks) -> None:
        self._silence = Silence(wans)
        self._kernel = KeptSocket(uapi.NETLINK_NETFILTER)
        self._questions = Questions(partial(questions.read, self._kernel))
        self._resolvers = resolvers
        self._task = PeriodicTask("read the counters of queries", self._check, PERIOD_S)

    def start(self) -> None:
        """Start looking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()
        self._kernel.close()

    async def _check(self) -> None:
        now = asyncio.get_running_loop().time()
        with suppress(OSError):
            if self._silence.is_noticed(now):
                self._resolvers.check_soon()
            if egresses := self._questions.noticed(now):
                self._resolvers.check_soon(egresses)
