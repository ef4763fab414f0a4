"""The two ends of measured traffic: a server on the internet and what clients do with it.

Like `egressd.lab`'s own probes, but made for speed. The client speaks first, one letter that
says what it wants, so that a proxy on the way has something to carry:

| letter | the server |
|---|---|
| ``u`` | takes what comes until the end |
| ``d`` | sends until it is cut |
| ``p`` | sends each message back |
| ``c`` | sends one byte and closes |

The ends have a core each, since the scheduler's choice otherwise weighs more than the router.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from statistics import median

PORT = 5202
DISCARD = 9
CLIENT_CORE, SERVER_CORE = 0, (os.cpu_count() or 2) - 1
_CHUNK = 1 << 17
_MESSAGE = b"x" * 32
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TIMEOUT_S = 20.0


# --- The server. ------------------------------------------------------------------------------


def serve(address: str) -> None:
    """Serve until killed."""
    os.sched_setaffinity(0, {SERVER_CORE})
    listener = socket.create_server((address, PORT), backlog=4096)
    listener.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    buffer = bytearray(_CHUNK)
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                _accept(listener, selector)
            else:
                with suppress(BlockingIOError):
                    _serve_one(key, selector, buffer)


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
    key: selectors.SelectorKey, selector: selectors.BaseSelector, buffer: bytearray
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
        elif wanted == "p" and size:
            opened.send(buffer[:size])
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


def upload(sources: Sequence[str], server: str, seconds: float) -> float:
    """Bytes a second of one connection from each source."""
    return _pump(sources, server, seconds, b"u")


def download(sources: Sequence[str], server: str, seconds: float) -> float:
    """Bytes a second of one connection from each source."""
    return _pump(sources, server, seconds, b"d")


def _pump(sources: Sequence[str], server: str, seconds: float, letter: bytes) -> float:
    os.sched_setaffinity(0, {CLIENT_CORE})
    event = selectors.EVENT_WRITE if letter == b"u" else selectors.EVENT_READ
    data, moved = bytearray(_CHUNK), 0
    with selectors.DefaultSelector() as selector:
        connections = [_open(source, server, letter) for source in sources]
        for opened in connections:
            opened.setblocking(False)
            selector.register(opened, event)
        begun = time.perf_counter()
        while (now := time.perf_counter()) < begun + seconds:
            for key, _ in selector.select(0.1):
                opened = key.fileobj  # type: ignore[assignment]
                with suppress(BlockingIOError):
                    moved += opened.send(data) if letter == b"u" else opened.recv_into(data)
        for opened in connections:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            opened.close()
    return moved / (now - begun)


def round_trip(source: str, server: str, count: int = 2000) -> float:
    """The median microseconds of a small message and its answer on an open connection."""
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
    """Connections a second, `at_once` under way: each one opened, answered once and closed."""
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


def packet_cost(source: str, server: str, batches: int = 8, size: int = 36) -> float:
    """Processor time of a small datagram in nanoseconds, in the sender, the best of the batches.

    On this network all of a routed packet's way is walked in the sender's `send`, so this is
    what the router costs; the clock is the process's own, which stands still when others run.
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
