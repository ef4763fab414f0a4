"""Which resolvers answer, where the kernel sends questions to one of a list.

The servers of each list are asked regularly, the preferred one first, by the way that clients ask
by, until one answers: those before it are passed over until they answer again. Where none answers
nothing changes, since it is the way that fails.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final

import structlog

from egressd.model.plan import Plan
from egressd.netd.kernel import conntrack
from egressd.netd.machine import Machine
from egressd.planner.resolvers import (
    Resolver,
    candidates,
    first_answering,
    is_inner,
    passed_over,
)
from egressd.planner.topology import interface_mark

log = structlog.get_logger()

PERIOD_S: Final = 10.0
_PATIENCE_S: Final = 1.0
_TRIES: Final = 2
"""A packet may get lost."""

_PORT: Final = 53
_HEADER: Final = struct.Struct("!HHHHHH")
_RECURSION: Final = 0x0100
_IS_ANSWER: Final = 0x8000
_CODE: Final = 0x000F
_ANSWERS: Final = (0, 3)
"""NOERROR and NXDOMAIN (RFC 1035, 4.1.1; RFC 2308): what else a resolver says helps no client."""
_QUESTION: Final = b"\x01a\x0croot-servers\x03net\x00" + struct.pack("!HH", 1, 1)
"""For an address of ``a.root-servers.net``, which every resolver knows and keeps (RFC 9609)."""


class Resolvers:
    """Keeps `Machine.silent` up to date; awaits `adapt` when that changes who is to be asked."""

    def __init__(
        self, machine: Machine, plan: Callable[[], Plan], adapt: Callable[[], Awaitable[None]]
    ) -> None:
        self._machine = machine
        self._plan = plan
        self._adapt = adapt
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

    async def look(self) -> None:
        """Ask the lists of more than one server, all at the same time: at most 6 s."""
        servers = {mark: each for mark, each in self._candidates().items() if len(each) > 1}
        lost = await asyncio.gather(*(self._silent(mark, each) for mark, each in servers.items()))
        known = self.problems
        self._machine.silent = frozenset[Resolver]().union(*lost)
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
        while True:
            try:
                await self.look()
            except Exception as error:
                log.warning("could not pass over resolvers that are silent", error=str(error))
            await asyncio.sleep(PERIOD_S)

    def _candidates(self) -> Mapping[int, tuple[str, ...]]:
        return candidates(self._plan(), self._machine.handed_out)

    async def _silent(self, mark: int, servers: tuple[str, ...]) -> set[Resolver]:
        """Those before the first that answers by the way of `mark`."""
        found: set[Resolver] = set()
        for server in servers:
            if await answers(server, mark):
                return found
            found.add((mark, server))
        return found.intersection(self._machine.silent)


async def answers(server: str, mark: int) -> bool:
    """Whether a resolver answers a question that leaves by `mark`. Needs CAP_NET_ADMIN."""
    loop = asyncio.get_running_loop()
    for _ in range(_TRIES):
        number = secrets.randbits(16)
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking,
            suppress(OSError),
        ):
            asking.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
            asking.connect((server, _PORT))
            asking.send(_HEADER.pack(number, _RECURSION, 1, 0, 0, 0) + _QUESTION)
            async with asyncio.timeout(_PATIENCE_S):  # its TimeoutError is an OSError
                while True:
                    reply = await loop.sock_recv(asking, 512)
                    if reply[:2] == number.to_bytes(2, "big"):
                        return _is_helpful(reply)
    return False


def _is_helpful(reply: bytes) -> bool:
    if len(reply) < _HEADER.size:
        return False
    flags = int.from_bytes(reply[2:4], "big")
    return bool(flags & _IS_ANSWER) and flags & _CODE in _ANSWERS


def _way(interface: str) -> str:
    return f"by {interface}" if interface else "directly"
