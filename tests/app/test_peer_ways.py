"""The datagrams between the boxes of a pair, on real sockets of the loopback interface."""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from egressd.app.peer_ways import PeerWays
from egressd.model.errors import Failed
from egressd.model.pair import WORD_PORT, Pair, PairLink
from egressd.service.peer_lease import PeerWord

KEY = bytes(32)
WORD = PeerWord(is_blind=True, is_pair=True, state=bytes(range(32)))

ADDRESSES = [IPv4Address(f"127.{random.randint(1, 250)}.{n}.1") for n in range(1, 5)]
"""The addresses of both boxes on both links, others for each test process."""


def pair_of(box: int) -> Pair:
    lan, sync = (
        PairLink("lo", own=ADDRESSES[n + box], peer=ADDRESSES[n + 1 - box]) for n in (0, 2)
    )
    return Pair(lan=lan, sync=sync)


class End:
    """One box: what it says, and the words that it has heard."""

    def __init__(self, box: int, key: bytes | None = KEY) -> None:
        ticks = itertools.count(1)

        def read_key() -> bytes:
            if key is None:
                raise Failed("read the site's key", "it is missing")
            return key

        self.box = box
        self.ways = PeerWays(pair_of(box), key=read_key, clock=lambda: float(next(ticks)))
        self.heard: list[tuple[PeerWord, float]] = []
        self.asked = 0

    def speak(self) -> PeerWord:
        self.asked += 1
        return WORD

    def hear(self, word: PeerWord, asked_at: float) -> None:
        self.heard.append((word, asked_at))


@asynccontextmanager
async def running(*ends: End) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(end.ways.answer(end.speak, end.hear)) for end in ends]
    for end in ends:
        await until(lambda end=end: len(sockets_of(end.box)) == 2)  # type: ignore[misc]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def sockets_of(box: int) -> list[int]:
    """Return the bytes that wait in each open socket of a box, as the kernel has them."""
    own = [f"{int.from_bytes(ADDRESSES[n + box].packed[::-1]):08X}:{WORD_PORT:04X}" for n in (0, 2)]
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()]
    return [int(row[4].split(":")[1], 16) for row in rows if row[1] in own]


def waiting(box: int) -> int:
    return sum(sockets_of(box))


@contextmanager
def listening(box: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield sockets of a box on both links."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lan,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sync,
    ):
        for opened, address in ((lan, ADDRESSES[box]), (sync, ADDRESSES[2 + box])):
            opened.settimeout(30)
            opened.bind((str(address), WORD_PORT))
        yield lan, sync


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the kernel does not say when it is true
        await asyncio.sleep(0.01)


async def test_a_question_is_answered_on_both_links() -> None:
    first, second = End(0), End(1)
    async with running(first, second):
        first.ways.ask()
        await until(lambda: len(first.heard) == 2)
    assert first.heard == [(WORD, 1.0)] * 2
    assert second.heard == []


async def test_a_box_without_the_right_key_is_not_answered() -> None:
    first, second, third = End(0), End(1, key=b"x" * 32), End(0, key=None)
    async with running(first, second):
        first.ways.ask()
        second.ways.ask()
        await until(lambda: not any(waiting(end.box) for end in (first, second)))
    assert not first.heard
    assert not first.asked
    assert not second.asked
    third.ways.ask()  # nothing can be said without a key, which is no fault of the caller's


async def test_only_new_answers_from_the_right_box_are_heard() -> None:
    first, second = End(0), End(1)
    async with running(first):
        with listening(1) as (lan, _):
            first.ways.ask()
            question = lan.recv(1000)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.sendto(question, (str(ADDRESSES[0]), WORD_PORT))
            for message in (b"", b"x" * 60, b"x" * 60_000, question):
                lan.sendto(message, (str(ADDRESSES[0]), WORD_PORT))
            await until(lambda: not waiting(0))
    assert not first.asked
    async with running(second):
        with listening(0) as (lan, _):
            lan.sendto(question, (str(ADDRESSES[1]), WORD_PORT))
            await until(lambda: second.asked == 1)
            answer = lan.recv(1000)
    async with running(first):
        with listening(1) as (lan, _):
            for _ in range(2):
                lan.sendto(answer, (str(ADDRESSES[0]), WORD_PORT))
                await until(lambda: not waiting(0))
            assert len(first.heard) == 2
            for _ in range(40):  # more questions than are remembered
                first.ways.ask()
            lan.sendto(answer, (str(ADDRESSES[0]), WORD_PORT))
            await until(lambda: not waiting(0))
    assert len(first.heard) == 2
