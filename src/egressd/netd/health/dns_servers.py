"""Find the resolvers that answer, for each list of which the kernel sends questions to one.

netd queries the servers of each list regularly, and early while clients send questions
(`egressd.netd.health.dns_doubts`), by the same egress as the clients' questions: the servers before
the first that answers are passed over until they answer again. If none answers, no other server
takes their place, and netd checks if the egress itself fails (`egressd.netd.health.egress_probe`):
by a WAN that is up and leads nowhere, no host answers. So netd also sends queries by WANs that no
rule names.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final, NamedTuple

import structlog

from egressd.model.names import DIRECT
from egressd.model.plan import Plan
from egressd.model.wording import Sentence, say
from egressd.netd.health import egress_probe
from egressd.netd.kernel import conntrack
from egressd.netd.ports import KernelPort
from egressd.netd.system.periodic import PeriodicTask
from egressd.planner.registry import MARK_ASKED_DIRECTLY, MARK_DIRECT
from egressd.planner.resolvers import (
    RESOLVERS_MAX,
    Resolver,
    candidates,
    first_answering,
    is_inner,
    passed_over,
)
from egressd.planner.topology import inbound, interface_mark, is_line

log = structlog.get_logger()

PERIOD_S: Final = 10.0
SUSPICION_S: Final = 2.0
"""Seconds of the period while an egress or its resolvers do not answer, so that their return is
reported soon."""
_TRIES_S: Final = (0.3, 0.3, 0.4)
"""Seconds to wait for the answer to each copy of a question: a packet may get lost."""

_AT_ONCE_S: Final = 0.1
"""Seconds in which most answers arrive."""

_PORT: Final = 53
_DIRECTLY: Final = say("asked-directly")
_LOCALLY: Final = say("asked-locally")
_HEADER: Final = struct.Struct("!HHHHHH")
# Bits of the header's second field (RFC 1035, 4.1.1).
_RECURSION: Final = 0x0100
_IS_ANSWER: Final = 0x8000
_CODE: Final = 0x000F
_ANSWERS: Final = (0, 3)
"""NOERROR and NXDOMAIN (RFC 1035, 4.1.1; RFC 2308): other response codes help no client."""
_QUESTION: Final = b"\x01a\x0croot-servers\x03net\x00" + struct.pack("!HH", 1, 1)
"""The question for the address of ``a.root-servers.net``, which every resolver knows and caches
(RFC 9609)."""


class Asked(NamedTuple):
    """The result of queries by one egress."""

    silent: frozenset[Resolver] = frozenset()
    """The resolvers that are passed over."""
    unanswered: tuple[str, ...] = ()
    """All resolvers of the egress if none answered; else empty."""
    is_dead: bool = False
    """True if no host answers by that egress."""


class DnsServerChecks:
    """Keeps `KernelPort.silent` up to date; awaits `adapt` when that changes the resolver of an
    egress.

    `changed` is called when `dead_ends` or `nameless` change.
    """

    def __init__(
        self,
        kernel: KernelPort,
        plan: Callable[[], Plan],
        adapt: Callable[[], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.dead_ends: Mapping[str, Sentence] = {}
        """Interface or ``DIRECT`` -> a sentence about why it leads nowhere."""
        self.nameless: Mapping[str, Sentence] = {}
        """Interface or ``DIRECT`` -> a sentence about why no names are resolved by it."""
        self._kernel = kernel
        self._plan = plan
        self._adapt = adapt
        self._changed = changed
        self._due_soon: frozenset[int] | None = frozenset()
        """The marks of the egresses to check soon; None for all egresses."""
        self._task = PeriodicTask(
            "switch away from unresponsive DNS servers", self._check_due, SUSPICION_S
        )
        self._due = 0.0
        """Time of the next check of all resolvers, by the loop's clock."""
        self._in_use: dict[int, str] = {}
        """Mark of an egress -> the resolver that the kernel was last set to use."""

    def start(self) -> None:
        """Start checking the resolvers."""
        self._in_use = first_answering(self._candidates(), self._kernel.silent)
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    @property
    def problems(self) -> tuple[Sentence, ...]:
        """A sentence for each resolver that is passed over or cannot be used."""
        servers, silent = self._candidates(), self._kernel.silent
        chosen = first_answering(servers, silent)
        egresses = self._plan().egresses.items()
        names = {interface_mark(name, egress.number): name for name, egress in egresses}
        topology = self._kernel.topology
        told = [
            say(
                "resolver-silent",
                server=server,
                way=_LOCALLY if is_inner(server, topology) else _by(names.get(mark, "")),
                other=chosen[mark],
            )
            for mark, server in passed_over(servers, chosen)
        ]
        told += (
            say("resolver-outside", server=server)
            for server in self._plan().policy.local_resolvers
            if not is_inner(server, topology)
        )
        # A sentence may occur twice: for DIRECT, and for lines whose questions go out directly.
        return tuple(dict.fromkeys(told))

    def check_soon(self, egresses: frozenset[int] | None = None) -> None:
        """Check the egresses of these marks soon, or all egresses if `egresses` is None."""
        known = self._due_soon
        self._due_soon = None if egresses is None or known is None else known | egresses
        self._task.wake()

    async def check(self, only: Collection[int] | None = None) -> None:
        """Query resolvers by all egresses at once, or by the egresses of the marks `only`. Takes
        some 1.1 s at most.
        """
        egresses = self._egresses()
        marks = set(egresses) if only is None else set(egresses) & set(only)
        asked = await asyncio.gather(*(self._ask(mark, egresses[mark]) for mark in marks))
        found = dict(zip(marks, asked, strict=True))
        self._note(found, egresses)
        lists = self._candidates()
        # Resolvers of closed egresses were not queried: they keep their state.
        lost = {(m, s) for m, each in lists.items() if m not in found for s in each}
        lost &= self._kernel.silent
        lost = lost.union(*(each.silent for mark, each in found.items() if mark in lists))
        known = self.problems
        self._kernel.silent = frozenset(lost)
        for problem in self.problems:
            if problem not in known:
                log.warning(problem)
        chosen = first_answering(self._candidates(), self._kernel.silent)
        if chosen == self._in_use:
            return
        await self._adapt()
        # A client's conntrack entry would send further questions of the same socket to the resolver
        # that was chosen first.
        left = {server for mark, server in self._in_use.items() if chosen.get(mark) != server}
        for server in left:
            await asyncio.to_thread(conntrack.forget_questions, IPv4Address(server))
        self._in_use = chosen

    async def _check_due(self) -> float:
        now = asyncio.get_running_loop().time
        egresses, self._due_soon = self._due_soon, frozenset()
        if now() >= self._due:
            egresses = None
            self._due = now() + PERIOD_S  # also if the check fails
        await self.check(egresses)
        if egresses is None:
            self._due = now() + (SUSPICION_S if self.dead_ends or self.nameless else PERIOD_S)
        return self._due - now()

    def _candidates(self) -> Mapping[int, tuple[str, ...]]:
        return candidates(self._plan(), self._kernel.peer_dns)

    def _egresses(self) -> dict[int, tuple[str, ...]]:
        """Return, for each mark of an open egress, the resolvers to query by it."""
        plan, egresses = self._plan(), dict(self._candidates())
        for name, egress in inbound(self._kernel.topology).items():
            if name not in plan.egresses and plan.policy.resolvers:
                mark = interface_mark(name, egress.number)
                egresses[mark] = plan.policy.resolvers[:RESOLVERS_MAX]
        named = self._names()
        is_open = self._kernel.is_open
        return {m: each for m, each in egresses.items() if any(map(is_open, named.get(m, ())))}

    def _names(self) -> dict[int, list[str]]:
        """Return, by mark, the egresses whose clients' questions leave with that mark."""
        names = {MARK_DIRECT: [DIRECT]}
        plan = self._plan()
        for name, egress in {**inbound(self._kernel.topology), **plan.egresses}.items():
            if egress.is_asked_directly:
                names.setdefault(MARK_ASKED_DIRECTLY, []).append(name)
            else:
                names.setdefault(interface_mark(name, egress.number), []).append(name)
        return names

    async def _ask(self, mark: int, servers: tuple[str, ...]) -> Asked:
        """Query by the egress of `mark`: the preferred server, and the others if it takes long."""
        outside = [each for each in servers if not is_inner(each, self._kernel.topology)]
        asking = [asyncio.ensure_future(answers(servers[0], mark))]
        try:
            await asyncio.wait(asking, timeout=_AT_ONCE_S)
            if _is_answered(asking):
                return Asked()
            asking += [asyncio.ensure_future(answers(server, mark)) for server in servers[1:]]
            # An egress that leads nowhere is found before all questions have timed out.
            if outside and not await egress_probe.is_anybody_there(outside, mark):
                is_dead = not _is_answered(asking)
            else:
                is_dead = False
            for number, answer in enumerate(asking):
                if not is_dead and await answer:
                    return Asked(silent=frozenset((mark, each) for each in servers[:number]))
        finally:
            for answer in asking:
                answer.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        # No server answers: keep the present choice among them.
        known = {(mark, server) for server in servers} & self._kernel.silent
        return Asked(silent=frozenset(known), unanswered=servers, is_dead=is_dead)

    def _note(self, found: Mapping[int, Asked], egresses: Collection[int]) -> None:
        """Record the open `egresses` by which no answer comes."""
        before = self.dead_ends, self.nameless
        names = self._names()
        left = {name for mark in set(egresses) - set(found) for name in names.get(mark, ())}
        dead_ends, nameless = (
            {name: why for name, why in each.items() if name in left} for each in before
        )
        for mark, asked in found.items():
            if not asked.unanswered:
                continue
            servers = asked.unanswered
            for name in names.get(mark, ()):
                # A line is up only while something comes by it: see `egressd.netd.lines.pulse`.
                leads_on = mark == MARK_ASKED_DIRECTLY or is_line(name)
                if leads_on or not asked.is_dead:
                    nameless[name] = say("no-resolver-answers", way=_by(name), servers=servers)
                else:
                    dead_ends[name] = self._kernel.why_unreached(name) or say(
                        "nothing-answers", way=_by(name), servers=servers
                    )
        self.dead_ends, self.nameless = dead_ends, nameless
        if before != (dead_ends, nameless):
            self._changed()


async def answers(server: str, mark: int) -> bool:
    """True if a resolver answers a question that leaves by `mark`. Needs CAP_NET_ADMIN."""
    number = secrets.randbits(16)
    question = _HEADER.pack(number, _RECURSION, 1, 0, 0, 0) + _QUESTION
    with (
        suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking,
    ):
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        asking.connect((server, _PORT))
        for patience in _TRIES_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    asking.send(question)
                    return _is_helpful(await _reply(asking, number))
    return False


async def _reply(asking: socket.socket, number: int) -> bytes:
    """Wait for the reply to the question with this number. Raises OSError."""
    loop = asyncio.get_running_loop()
    while True:
        reply = await loop.sock_recv(asking, 512)
        if reply[:2] == number.to_bytes(2, "big"):
            return reply


def _is_answered(asking: Iterable[asyncio.Future[bool]]) -> bool:
    return any(answer.done() and answer.result() for answer in asking)


def _is_helpful(reply: bytes) -> bool:
    if len(reply) < _HEADER.size:
        return False
    flags = int.from_bytes(reply[2:4], "big")
    return bool(flags & _IS_ANSWER) and flags & _CODE in _ANSWERS


def _by(interface: str) -> Sentence:
    return _DIRECTLY if interface in ("", DIRECT) else say("asked-by", name=interface)
