"""The two ends of measured traffic: a server on the internet, and the clients' side.

Like `egressd_lab`'s own probes, but made for speed. The client speaks first and sends one letter
that selects the service, so that a proxy on the way has something to carry:

| letter | the server |
|---|---|
| ``u`` | receives until the end |
| ``d`` | sends until it is cut |
| ``p`` | sends each message back |
| ``c`` | sends one byte and closes |
| ``n`` | sends the bytes that all ``u`` have brought, at each further byte |

Each end has a core of its own, since the scheduler's choice otherwise weighs more than the router.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from statistics import median
from typing import NamedTuple

from egressd_lab import packets

PORT = 5202
DISCARD = 9
CLIENT_CORE, SERVER_CORE = 0, (os.cpu_count() or 2) - 1
_CHUNK = 1 << 17
_MESSAGE = b"x" * 32
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TIMEOUT_S = 20.0
_WARM_UP_S = 0.3
_COUNT = struct.Struct("!Q")
# Options and values of a socket in repair (linux/tcp.h): it tells its numbers.
_TCP_REPAIR, _TCP_REPAIR_QUEUE, _TCP_QUEUE_SEQ = 19, 20, 21
_REPAIR_ON, _REPAIR_OFF_NO_WP = 1, -1
_RECV_QUEUE, _SEND_QUEUE = 1, 2


# --- The server. ------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Serve until killed."""
    os.sched_setaffinity(0, {SERVER_CORE})
    listener = socket.create_server((address, PORT), backlog=4096)
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    buffer = bytearray(_CHUNK)
    taken = [0]
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                _accept(listener, selector)
            else:
                with suppress(BlockingIOError):
                    _serve_one(key, selector, buffer, taken)


def _accept(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    while True:
        try:
            opened = listener.accept()[0]
        except BlockingIOError:
            return
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(opened, selectors.EVENT_READ, "")


def _serve_one(
    key: selectors.SelectorKey,
    selector: selectors.BaseSelector,
    buffer: bytearray,
    taken: list[int],
) -> None:
    opened = key.fileobj
    assert isinstance(opened, socket.socket)
    wanted = key.data
    try:
        if wanted == "d":
            opened.send(buffer)
            return
        size = opened.recv_into(buffer)
        if not wanted and size:
            wanted = chr(buffer[0])
            event = selectors.EVENT_WRITE if wanted == "d" else selectors.EVENT_READ
            selector.modify(opened, event, wanted)
            if wanted == "c":
                opened.send(b"c")
            elif wanted == "p" and size > 1:
                opened.send(buffer[1:size])
            elif wanted == "n" and size > 1:
                opened.send(_COUNT.pack(taken[0]))
        elif wanted == "u":
            taken[0] += size
        elif wanted == "p" and size:
            opened.send(buffer[:size])
        elif wanted == "n" and size:
            opened.send(_COUNT.pack(taken[0]))
    except ConnectionError:
        size = 0
    if not size:
        selector.unregister(opened)
        opened.close()


# --- Clients. ---------------------------------------------------------------------------------


def _open(source: str, server: str, letter: bytes) -> socket.socket:
    opened = socket.create_connection((server, PORT), _TIMEOUT_S, (source, 0))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.sendall(letter)
    return opened


class Moved(NamedTuple):
    """The payload that many connections carried."""

    rate: float
    """Payload bytes a second, once TCP had found its pace."""
    size: int
    """Payload bytes from beginning to end."""


def upload(sources: Sequence[str], server: str, seconds: float) -> Moved:
    """Upload by one connection from each source. Arrived bytes count, as buffers on the way hold
    much.
    """
    data = bytes(_CHUNK)
    with _open(sources[0], server, b"n") as asking:

        def arrived() -> int:
            asking.send(b"n")
            return int(_COUNT.unpack(asking.recv(_COUNT.size, socket.MSG_WAITALL))[0])

        return _pump(
            sources, server, seconds, b"u", lambda opened: opened.send(data), lambda _: arrived()
        )


def download(sources: Sequence[str], server: str, seconds: float) -> Moved:
    """Download by one connection from each source."""
    data = bytearray(_CHUNK)
    return _pump(
        sources, server, seconds, b"d", lambda opened: opened.recv_into(data), lambda moved: moved
    )


def _pump(
    sources: Sequence[str],
    server: str,
    seconds: float,
    letter: bytes,
    move: Callable[[socket.socket], int],
    count: Callable[[int], int],
) -> Moved:
    """Move data and return its rate and size.

    `count` converts the bytes that `move` has moved on this side into the bytes that have arrived.
    """
    os.sched_setaffinity(0, {CLIENT_CORE})
    event = selectors.EVENT_WRITE if letter == b"u" else selectors.EVENT_READ
    moved, counted = 0, [count(0)]
    times = [0.0]
    with selectors.DefaultSelector() as selector:
        connections = [_open(source, server, letter) for source in sources]
        for opened in connections:
            opened.setblocking(False)
            selector.register(opened, event, opened)
        for span in (_WARM_UP_S, seconds):
            until = time.perf_counter() + span
            while time.perf_counter() < until:
                for key, _ in selector.select(0.1):
                    with suppress(BlockingIOError):
                        moved += move(key.data)
            counted.append(count(moved))
            times.append(time.perf_counter())
        for opened in connections:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            opened.close()
    rate = (counted[2] - counted[1]) / (times[2] - times[1])
    return Moved(rate, counted[2] - counted[0])


def round_trip(source: str, server: str, count: int = 2000) -> float:
    """Return the median microseconds of a small message and its answer on an open connection."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    samples = []
    with _open(source, server, b"p") as opened:
        for _ in range(count):
            begun = time.perf_counter_ns()
            opened.send(_MESSAGE)
            opened.recv(64)
            samples.append(time.perf_counter_ns() - begun)
    return median(samples) / 1000


def connections(source: str, server: str, seconds: float = 1.0, at_once: int = 16) -> float:
    """Return the connections a second: each one opened, answered once and closed, `at_once` at a
    time.
    """
    os.sched_setaffinity(0, {CLIENT_CORE})
    done = 0
    with selectors.DefaultSelector() as selector:

        def begin() -> None:
            opened = socket.socket()
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            opened.bind((source, 0))
            with suppress(BlockingIOError):
                opened.connect((server, PORT))
            selector.register(opened, selectors.EVENT_WRITE)

        for _ in range(at_once):
            begin()
        begun = time.perf_counter()
        while (now := time.perf_counter()) < begun + seconds:
            for key, _ in selector.select(0.1):
                opened = key.fileobj
                assert isinstance(opened, socket.socket)
                if key.events == selectors.EVENT_WRITE:
                    opened.send(b"c")
                    selector.modify(opened, selectors.EVENT_READ)
                else:
                    done += bool(opened.recv(1))
                    selector.unregister(opened)
                    opened.close()
                    begin()
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
    return done / (now - begun)


def exchange_datagrams(
    source: str, server: str, seconds: float, port: int = 7, under_way: int = 16
) -> int:
    """Return the number of answers of a UDP echo server, with `under_way` datagrams in flight."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind((source, 0))
        opened.connect((server, port))
        opened.settimeout(0.2)
        answers, end = 0, time.monotonic() + seconds
        for _ in range(under_way):
            opened.send(_MESSAGE)
        while time.monotonic() < end:
            try:
                opened.recv(256)
                answers += 1
            except TimeoutError:  # a datagram was lost on the way
                pass
            opened.send(_MESSAGE)
        return answers


def known_packet_cost(source: str, server: str, batches: int = 8) -> float:
    """Return the sender's CPU time of an acknowledgement in an open connection in nanoseconds, the
    best of the batches: the cost of the router, as in `packet_cost`.

    Through a node the connection ends at the engine's socket. The acknowledgement repeats the last
    one, so that it calls for no answer.
    """
    os.sched_setaffinity(0, {CLIENT_CORE})
    with (
        _open(source, server, b"p") as opened,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw,
    ):
        opened.send(_MESSAGE)
        opened.recv(64)
        segment = packets.tcp(
            source,
            server,
            opened.getsockname()[1],
            PORT,
            b"",
            flags=packets.TCP_ACK,
            sequence=_number(opened, _SEND_QUEUE),
            acknowledged=_number(opened, _RECV_QUEUE),
        )
        data = packets.ipv4(source, server, packets.TCP, segment)
        samples = []
        for _ in range(batches):
            begun = time.process_time_ns()
            for _ in range(2500):
                raw.sendto(data, (server, 0))
            samples.append((time.process_time_ns() - begun) / 2500)
        opened.send(_MESSAGE)
        assert opened.recv(64) == _MESSAGE, "the connection did not outlive it"
    return min(samples)


def _number(opened: socket.socket, queue: int) -> int:
    """Return the number of the next byte that a connection sends or receives."""
    opened.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _REPAIR_ON)
    opened.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR_QUEUE, queue)
    number = opened.getsockopt(socket.IPPROTO_TCP, _TCP_QUEUE_SEQ)
    opened.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, _REPAIR_OFF_NO_WP)
    return number & 0xFFFF_FFFF


def first_packet_cost(source: str, server: str, batches: int = 8, flows: int = 400) -> float:
    """Return the sender's CPU time of a new flow's first datagram in nanoseconds, the best of the
    batches: the cost of the router, as in `packet_cost`.
    """
    os.sched_setaffinity(0, {CLIENT_CORE})
    data = bytes(36)
    samples = []
    for _ in range(batches):
        with ExitStack() as stack:
            opened = []
            for _ in range(flows):
                each = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                each.bind((source, 0))
                each.connect((server, DISCARD))
                opened.append(each)
            begun = time.process_time_ns()
            for each in opened:
                each.send(data)
            samples.append((time.process_time_ns() - begun) / flows)
    return min(samples)


def one_each(sources: Sequence[str], server: str) -> None:
    """Send a datagram from each source."""
    for source in sources:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
            opened.bind((source, 0))
            opened.sendto(bytes(36), (server, DISCARD))


def packet_cost(source: str, server: str, batches: int = 8, size: int = 36) -> float:
    """Return the sender's CPU time of a small datagram in nanoseconds, the best of the batches.

    On this network a routed packet's whole way runs inside the sender's `send`, so this is the cost
    of the router. The clock is the process's own, which stands still while other processes run.
    """
    os.sched_setaffinity(0, {CLIENT_CORE})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind((source, 0))
        opened.connect((server, DISCARD))
        data = bytes(size)
        samples = []
        for _ in range(batches):
            begun = time.process_time_ns()
            for _ in range(2500):
                opened.send(data)
            samples.append((time.process_time_ns() - begun) / 2500)
    return min(samples)
