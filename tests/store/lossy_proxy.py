"""A connection to PostgreSQL that breaks at a chosen message, and counts what is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.postgres import Server

_PIECE = 65536


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
        self.questions = 0
        """Number of messages that clients have sent, each of which they wait for the answer of."""
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

    def _run(self, target: Callable[..., None], *args: socket.socket) -> None:
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
                self._run(self._ask, client, server)
                self._run(self._answer, server, client)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        is_due = False
        with suppress(OSError):
            while piece := client.recv(_PIECE):
                is_due = is_due or self.cut_after in piece
                if is_due and self.cut_at and self.cut_at in piece:
                    self.cut_at = b""
                    client.shutdown(socket.SHUT_WR)
                self.questions += 1
                server.sendall(piece)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(_PIECE):
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)


@contextmanager
def lossy_proxy(server: Server, folder: Path) -> Iterator[LossyProxy]:
    """Run a proxy on a socket in `folder` until the block ends."""
    proxy = LossyProxy(server, folder)
    try:
        yield proxy
    finally:
        proxy.close()
