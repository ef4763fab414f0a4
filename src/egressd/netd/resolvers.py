"""Which resolvers answer, where the kernel sends questions to one of a list.

The servers of each list are asked regularly, and early while clients ask (`egressd.netd.doubts`),
by the way that clients ask by: those before the first that answers are passed over until they
answer again. Where none answers
nobody is asked in its place, and it is found out whether it is the way that fails
(`egressd.netd.reach`): by a WAN that is up and leads nowhere, nothing answers. So WANs that no rule
names are asked by, too.
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
from egressd.netd import reach
from egressd.netd.kernel import conntrack
from egressd.netd.machine import Machine
from egressd.planner.registry import MARK_ASKED_DIRECTLY, MARK_DIRECT
from egressd.planner.resolvers import (
    RESOLVERS_MAX,
    Resolver,
    candidates,
    first_answering,
    is_inner,
    passed_over,
)
from egressd.planner.topology import inbound, interface_mark

log = structlog.get_logger()

PERIOD_S: Final = 10.0
SUSPICION_S: Final = 2.0
"""The period while something does not answer, in seconds, so that its end is told soon."""
_TRIES_S: Final = (0.3, 0.3, 0.4)
"""Seconds to wait for each of the same questions: a packet may get lost."""

_AT_ONCE_S: Final = 0.1
"""Seconds that an answer takes at most, as a rule."""

_PORT: Final = 53
_HEADER: Final = struct.Struct("!HHHHHH")
_RECURSION: Final = 0x0100
_IS_ANSWER: Final = 0x8000
_CODE: Final = 0x000F
_ANSWERS: Final = (0, 3)
"""NOERROR and NXDOMAIN (RFC 1035, 4.1.1; RFC 2308): what else a resolver says helps no client."""
_QUESTION: Final = b"\x01a\x0croot-servers\x03net\x00" + struct.pack("!HH", 1, 1)
"""For an address of ``a.root-servers.net``, which every resolver knows and keeps (RFC 9609)."""


class Asked(NamedTuple):
    """What came of asking by one way."""

    silent: frozenset[Resolver] = frozenset()
    """Those that are passed over."""
    unanswered: tuple[str, ...] = ()
    """All that were asked, where none answered."""
    is_dead: bool = False
    """Whether nothing else answers there, either."""


class Resolvers:
    """Keeps `Machine.silent` up to date; awaits `adapt` when that changes who is to be asked.

    `changed` is called when another way is without an answer.
    """

    def __init__(
        self,
        machine: Machine,
        plan: Callable[[], Plan],
        adapt: Callable[[], Awaitable[None]],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self.dead_ends: Mapping[str, str] = {}
        """Interface or ``DIRECT`` -> why it leads nowhere, in plain words."""
        self.nameless: Mapping[str, str] = {}
        """The same -> why no names are resolved by it."""
        self._machine = machine
        self._plan = plan
        self._adapt = adapt
        self._changed = changed
        self._hurried: frozenset[int] | None = frozenset()
        """The marks of the ways to look at soon; None for all."""
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._in_use: dict[int, str] = {}
        """Who was asked when the kernel was told of it last."""

    def start(self) -> None:
        """Begin to look after them."""
        self._in_use = first_answering(self._candidates(), self._machine.silent)
        self._task = asyncio.create_task(self._attend())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each one that is passed over."""
        servers, silent = self._candidates(), self._machine.silent
        chosen = first_answering(servers, silent)
        egresses = self._plan().egresses.items()
        names = {interface_mark(name, egress.number): name for name, egress in egresses}
        topology = self._machine.topology
        told = [
            f"resolver {server} does not answer"
            f" {'locally' if is_inner(server, topology) else _way(names.get(mark, ''))}:"
            f" {chosen[mark]} is asked in its place"
            for mark, server in passed_over(servers, chosen)
        ]
        told += (
            f"local resolver {server} is neither on this machine nor in a LAN or local network:"
            " it is not asked"
            for server in self._plan().floor.local_resolvers
            if not is_inner(server, topology)
        )
        return tuple(dict.fromkeys(told))  # lines that ask directly, and DIRECT

    def hurry(self, ways: frozenset[int] | None = None) -> None:
        """Look soon: at the ways of these marks, or at all, since some have come or gone."""
        known = self._hurried
        self._hurried = None if ways is None or known is None else known | ways
        self._woken.set()

    async def look(self, only: Collection[int] | None = None) -> None:
        """Ask by all ways at the same time, or by those of the marks `only`: some 1.1 s at most."""
        ways = self._ways()
        marks = set(ways) if only is None else set(ways) & set(only)
        asked = await asyncio.gather(*(self._ask(mark, ways[mark]) for mark in marks))
        found = dict(zip(marks, asked, strict=True))
        self._note(found, ways)
        lists = self._candidates()
        # By ways that are closed nobody was asked.
        lost = {(m, s) for m, each in lists.items() if m not in found for s in each}
        lost &= self._machine.silent
        lost = lost.union(*(each.silent for mark, each in found.items() if mark in lists))
        known = self.problems
        self._machine.silent = frozenset(lost)
        for problem in self.problems:
            if problem not in known:
                log.warning(problem)
        chosen = first_answering(self._candidates(), self._machine.silent)
        if chosen == self._in_use:
            return
        await self._adapt()
        # Who asks by the same socket again would go on asking who was asked by it first.
        left = {server for mark, server in self._in_use.items() if chosen.get(mark) != server}
        for server in left:
            await asyncio.to_thread(conntrack.forget_questions, IPv4Address(server))
        self._in_use = chosen

    async def _attend(self) -> None:
        now = asyncio.get_running_loop().time
        due = now()
        while True:
            ways, self._hurried = self._hurried, frozenset()
            self._woken.clear()
            if now() >= due:
                ways = None
            try:
                await self.look(ways)
            except Exception as error:
                log.warning("could not pass over resolvers that are silent", error=str(error))
            if ways is None:
                due = now() + (SUSPICION_S if self.dead_ends or self.nameless else PERIOD_S)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._woken.wait()

    def _candidates(self) -> Mapping[int, tuple[str, ...]]:
        return candidates(self._plan(), self._machine.handed_out)

    def _ways(self) -> dict[int, tuple[str, ...]]:
        """Mark -> whom to ask by it: of the ways out that are open."""
        plan, ways = self._plan(), dict(self._candidates())
        for name, egress in inbound(self._machine.topology).items():
            if name not in plan.egresses and plan.floor.resolvers:
                mark = interface_mark(name, egress.number)
                ways[mark] = plan.floor.resolvers[:RESOLVERS_MAX]
        named = self._names()
        is_open = self._machine.is_open
        return {m: each for m, each in ways.items() if any(map(is_open, named.get(m, ())))}

    def _names(self) -> dict[int, list[str]]:
        """Mark -> the ways out whose clients' resolvers are asked by it."""
        names = {MARK_DIRECT: [DIRECT]}
        plan = self._plan()
        for name, egress in {**inbound(self._machine.topology), **plan.egresses}.items():
            if egress.is_asked_directly:
                names.setdefault(MARK_ASKED_DIRECTLY, []).append(name)
            else:
                names.setdefault(interface_mark(name, egress.number), []).append(name)
        return names

    async def _ask(self, mark: int, servers: tuple[str, ...]) -> Asked:
        """Ask by the way of `mark`: the preferred one, and the others if that takes longer."""
        outside = [each for each in servers if not is_inner(each, self._machine.topology)]
        asking = [asyncio.ensure_future(answers(servers[0], mark))]
        try:
            await asyncio.wait(asking, timeout=_AT_ONCE_S)
            if _is_answered(asking):
                return Asked()
            asking += [asyncio.ensure_future(answers(server, mark)) for server in servers[1:]]
            # A way that leads nowhere is known before all questions are given up.
            if outside and not await reach.is_anybody_there(outside, mark):
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
        # Another may be asked in place of the first of them for now: that stays as it is.
        known = {(mark, server) for server in servers} & self._machine.silent
        return Asked(silent=frozenset(known), unanswered=servers, is_dead=is_dead)

    def _note(self, found: Mapping[int, Asked], ways: Collection[int]) -> None:
        """Take down by which of the open `ways` there is no answer."""
        before = self.dead_ends, self.nameless
        names = self._names()
        left = {name for mark in set(ways) - set(found) for name in names.get(mark, ())}
        dead_ends, nameless = (
            {name: why for name, why in each.items() if name in left} for each in before
        )
        for mark, asked in found.items():
            if not asked.unanswered:
                continue
            servers = ", ".join(asked.unanswered)
            for name in names.get(mark, ()):
                if mark == MARK_ASKED_DIRECTLY or not asked.is_dead:
                    nameless[name] = f"no resolver answers {_way(name)} ({servers})"
                else:
                    dead_ends[name] = self._machine.why_unreached(name) or (
                        f"nothing that is asked {_way(name)} answers ({servers})"
                    )
        self.dead_ends, self.nameless = dead_ends, nameless
        if before != (dead_ends, nameless):
            self._changed()


async def answers(server: str, mark: int) -> bool:
    """Whether a resolver answers a question that leaves by `mark`. Needs CAP_NET_ADMIN."""
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


def _way(interface: str) -> str:
    return f"by {interface}" if interface not in ("", DIRECT) else "directly"
