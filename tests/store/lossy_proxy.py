"""A connection to PostgreSQL that is long, that breaks at a chosen message, and that counts how
often a client waits.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from tests.support.postgres import Server

_PIECE = 65536
_Pipe: TypeAlias = "queue.SimpleQueue[tuple[float, bytes]]"
"""Messages on the way, with the moments (monotonic, in seconds) at which they arrive."""


class LossyProxy:
    """Passes everything on until a client sends `cut_at`: then the message is passed on, and its
    answer is not: the client's connection is closed instead. Once.
    """

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self.folder = folder
        self.cut_at = b""
        self.cut_after = b""
        """The message that a connection must have had before; empty for none."""
        self.delay_s = 0.0
        """Seconds that each message takes each way."""
        self.waits = 0
        """Number of times that a client has gone on after an answer, or begun."""
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(folder / ".s.PGSQL.5432"))
        self._listener.listen()
        self._run(self._accept)

    def close(self) -> None:
        """End all connections."""
        for each in (self._listener, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._open):
            each.close()

    def _run(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._open += [client, server]
                server.connect(str(self._server.folder / ".s.PGSQL.5432"))
                is_answered = threading.Event()
                is_answered.set()
                self._run(self._ask, client, self._late(server), is_answered)
                self._run(self._answer, server, self._late(client), is_answered)

    def _late(self, target: socket.socket) -> _Pipe:
        pipe: _Pipe = queue.SimpleQueue()
        self._run(_deliver, pipe, target)
        return pipe

    def _ask(self, client: socket.socket, server: _Pipe, is_answered: threading.Event) -> None:
        is_due = False
        with suppress(OSError):
            while piece := client.recv(_PIECE):
                is_due = is_due or self.cut_after in piece
                if is_due and self.cut_at and self.cut_at in piece:
                    self.cut_at = b""
                    client.shutdown(socket.SHUT_WR)
                if is_answered.is_set():
                    is_answered.clear()
                    self.waits += 1
                server.put((time.monotonic() + self.delay_s, piece))
        server.put((0.0, b""))

    def _answer(self, server: socket.socket, client: _Pipe, is_answered: threading.Event) -> None:
        with suppress(OSError):
            while piece := server.recv(_PIECE):
                is_answered.set()
                client.put((time.monotonic() + self.delay_s, piece))
        client.put((0.0, b""))


def _deliver(pipe: _Pipe, target: socket.socket) -> None:
    """Send what comes when it is due, and end the connection after it."""
    with suppress(OSError):
        while True:
            due, piece = pipe.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not piece:
                break
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def lossy_proxy(server: Server, folder: Path) -> Iterator[LossyProxy]:
    """Run a proxy on a socket in `folder` until the block ends."""
    proxy = LossyProxy(server, folder)
    try:
        yield proxy
    finally:
        proxy.close()
