"""The protocol between a lab and its processes in the namespaces: framed requests over Unix
sockets.

A socket's path works across network namespaces, so one process per namespace can serve any number
of callers. A frame is a 4-byte big-endian length and a msgpack document; a request is ``[operation,
{arguments}]``, an answer ``[error, result]`` with `error` empty or a sentence. File descriptors may
come with an answer (SCM_RIGHTS, unix(7)): so a test gets a socket that lives in another namespace.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from egressd.model.errors import Failed

T = TypeVar("T")

LENGTH: Final = struct.Struct("!I")
FDS_MAX: Final = 8


def send(sock: socket.socket, document: object, fds: tuple[int, ...] = ()) -> None:
    """Send one frame, and `fds` with its first byte."""
    body = msgspec.msgpack.encode(document)
    frame = LENGTH.pack(len(body)) + body
    if fds:
        sent = socket.send_fds(sock, [frame], list(fds))
        frame = frame[sent:]
    sock.sendall(frame)


def receive(sock: socket.socket) -> tuple[Any, list[int]] | None:
    """Return one frame and the descriptors that came with it, or None at the end."""
    head, fds, _, _ = socket.recv_fds(sock, LENGTH.size, FDS_MAX)
    if not head:
        return None
    head += _exactly(sock, LENGTH.size - len(head))
    body = _exactly(sock, LENGTH.unpack(head)[0])
    return msgspec.msgpack.decode(body), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the other side closed in the middle of a frame")
        data += chunk
    return bytes(data)


class Channel:
    """A caller's side. Threads may share it: each call in progress has its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Wait until the process listens. Raises Failed after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._put_back(self._connect())
            except OSError as error:
                if time.monotonic() > deadline:
                    raise Failed(f"reach {self._path}", str(error)) from error
                time.sleep(0.005)
            else:
                return

    def call(self, operation: str, kind: type[T], /, **arguments: object) -> T:
        """Send a request, wait, and return the result as a `kind`. Raises Failed with
        the reason.
        """
        result, fds = self._ask(operation, arguments)
        for fd in fds:
            socket.close(fd)
        return msgspec.convert(result, kind)

    def call_for_socket(self, operation: str, /, **arguments: object) -> socket.socket:
        """Request a socket. It belongs to the process's namespace, in any other process too."""
        _, fds = self._ask(operation, arguments)
        return socket.socket(fileno=fds[0])

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for sock in idle:
            sock.close()

    def _ask(self, operation: str, arguments: dict[str, object]) -> tuple[Any, list[int]]:
        sock = self._take()
        try:
            send(sock, [operation, arguments])
            answer = receive(sock)
        except BaseException as error:
            sock.close()  # an answer may still come: the connection is of no further use
            if isinstance(error, OSError):
                raise Failed(f"ask {self._path.name} for {operation}", str(error)) from error
            raise
        if answer is None:
            sock.close()
            raise Failed(f"ask {self._path.name} for {operation}", "the process has ended")
        self._put_back(sock)
        (problem, result), fds = answer
        if problem:
            raise Failed(f"{operation} in {self._path.name}", problem)
        return result, fds

    def _connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(self._path))
        except OSError:
            sock.close()
            raise
        return sock

    def _take(self) -> socket.socket:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except OSError as error:
            raise Failed(f"reach {self._path}", str(error)) from error

    def _put_back(self, sock: socket.socket) -> None:
        with self._lock:
            self._idle.append(sock)
