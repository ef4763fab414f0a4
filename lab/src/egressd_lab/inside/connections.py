"""Connections and downloads that stay open, to see whether a change elsewhere cuts them."""

from __future__ import annotations

import http.client
import itertools
import json
import select
import socket
import threading
import time
from collections import deque
from typing import Final
from urllib.parse import urlsplit

from egressd_lab.inside.probes import body_of, check_echo, check_piece, open_http, target_of
from egressd_lab.inside.sockets import Deadline, connect_tcp, fault
from egressd_lab.observed import EchoReply, Progress

STALLED_S: Final = 60.0
"""Seconds without a byte after which a download is given up."""


class Connection:
    """A TCP connection to an echo server. Raises OSError if it cannot be made."""

    def __init__(self, address: str, port: int, source: str, timeout: float) -> None:
        deadline = Deadline(timeout)
        self._sock = connect_tcp(address, port, source, deadline)
        self._unread = b""
        self._due: deque[bytes] = deque()
        self._seen = json.loads(self._line(deadline))["ip"]

    def exchange(self, text: str, timeout: float) -> EchoReply:
        """Send a line and wait for it to come back, behind earlier lines that are still due."""
        deadline = Deadline(timeout)
        self._due.append(text.encode())
        try:
            self._sock.settimeout(timeout)
            self._sock.sendall(f"{text}\n".encode())
            while self._due:
                check_echo(self._line(deadline), self._due[0])
                self._due.popleft()
        except (OSError, ValueError, EOFError) as error:
            return EchoReply(error=fault(error), seconds=deadline.elapsed)
        return EchoReply(seconds=deadline.elapsed, seen=self._seen, text=text, size=len(text))

    def state(self) -> str:
        """Return ``open``, ``closed`` or the errno's name, without sending anything."""
        try:
            readable, _, _ = select.select([self._sock], [], [], 0)
            if not readable:
                return "open"
            return "open" if self._sock.recv(1, socket.MSG_PEEK) else "closed"
        except (OSError, ValueError) as error:
            return fault(error)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()

    def _line(self, deadline: Deadline) -> bytes:
        while b"\n" not in self._unread:
            self._sock.settimeout(deadline.left)
            chunk = self._sock.recv(4096)
            if not chunk:
                raise EOFError
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line


class Download:
    """A download in a thread of its own. Raises OSError if it cannot begin."""

    def __init__(self, url: str, source: str, resolver: str, timeout: float, verify: bool) -> None:
        deadline = Deadline(timeout)
        connection = open_http(url, source, resolver, "", deadline)
        self._sock = connection.sock  # http.client releases it after the answer's head
        connection.request("GET", target_of(urlsplit(url)), headers={"Connection": "close"})
        self._response = connection.getresponse()
        self._seen = self._response.headers.get("X-Seen", "")
        self._verify = verify
        self._received = 0
        self._error = ""
        self._finished = False
        self._stopping = False
        self._last = time.monotonic()
        self._longest_pause = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def progress(self) -> Progress:
        """Return the progress until now."""
        waiting = 0.0 if self._finished else time.monotonic() - self._last
        return Progress(
            received=self._received,
            error=self._error,
            finished=self._finished,
            longest_pause=max(self._longest_pause, waiting),
            seen=self._seen,
        )

    def stop(self) -> Progress:
        """End the download, if it has not ended, and return its progress."""
        progress = self.progress()
        self._stopping = True
        self._response.close()
        self._sock.close()
        return progress

    def _run(self) -> None:
        try:
            for chunk in body_of(self._sock, self._response, lambda: STALLED_S):
                now = time.monotonic()
                self._longest_pause = max(self._longest_pause, now - self._last)
                self._last = now
                if self._verify:
                    check_piece(chunk, self._received)
                self._received += len(chunk)
        except (OSError, ValueError, EOFError, http.client.HTTPException) as error:
            if not self._stopping:
                self._error = fault(error)
        self._finished = True


class Kept:
    """Open connections and downloads, by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._connections: dict[int, Connection] = {}
        self._downloads: dict[int, Download] = {}

    def connect(self, address: str, port: int, source: str, timeout: float) -> int:
        """Open a connection to an echo server, and return its number."""
        number = next(self._numbers)
        self._connections[number] = Connection(address, port, source, timeout)
        return number

    def exchange(self, number: int, text: str, timeout: float) -> EchoReply:
        """Exchange a line on a connection."""
        return self._connections[number].exchange(text, timeout)

    def state(self, number: int) -> str:
        """Return the state of a connection."""
        return self._connections[number].state()

    def disconnect(self, number: int) -> None:
        """Close a connection and forget it."""
        self._connections.pop(number).close()

    def download(self, url: str, source: str, resolver: str, timeout: float, verify: bool) -> int:
        """Begin a download, and return its number."""
        number = next(self._numbers)
        self._downloads[number] = Download(url, source, resolver, timeout, verify)
        return number

    def progress(self, number: int) -> Progress:
        """Return the progress of a download."""
        return self._downloads[number].progress()

    def stop_download(self, number: int) -> Progress:
        """End a download and forget it; return its progress."""
        return self._downloads.pop(number).stop()
