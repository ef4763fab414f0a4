"""The API's listening sockets, in the process that keeps them while the api restarts.

Loads the standard library only, as all of `supervise` does.
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

_BACKLOG = 2048
"""Connections that may wait to be accepted: uvicorn's own number."""


def socket_address(endpoint: str) -> tuple[Any, ...]:
    """Return an endpoint, such as ``[::]:8787``, as `socket.socket.getsockname` returns it: the
    kernel writes addresses in another way than Python, and gives an interface as a number. Raises
    OSError.
    """
    host, _, port = endpoint.rpartition(":")
    found = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )
    return found[0][4]


def bound(endpoint: str) -> socket.socket:
    """Return a socket that listens at `endpoint`. Raises OSError with a sentence."""
    family = socket.AF_INET6 if endpoint.startswith("[") else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(socket_address(endpoint))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise OSError(f"listen at {endpoint}: {error.strerror or error}") from error
    return made


class HeldSockets:
    """Sockets that stay open until this process ends or no longer wants them."""

    def __init__(self) -> None:
        self._sockets: dict[str, socket.socket] = {}

    def want(self, endpoints: Sequence[str]) -> None:
        """Hold sockets at `endpoints`, and no others. Raises OSError; present sockets at other
        ports than those of new endpoints then stay.
        """
        ports = {_port(endpoint) for endpoint in endpoints if endpoint not in self._sockets}
        for endpoint in self._sockets.keys() - {*endpoints}:
            # Sockets at two addresses of one port may exclude each other.
            if _port(endpoint) in ports:
                self._sockets.pop(endpoint).close()
        made: dict[str, socket.socket] = {}
        try:
            for endpoint in endpoints:
                if endpoint not in self._sockets:
                    made[endpoint] = bound(endpoint)
        except OSError:
            close(made.values())
            raise
        every = self._sockets | made
        close(sock for endpoint, sock in every.items() if endpoint not in endpoints)
        self._sockets = {endpoint: every[endpoint] for endpoint in endpoints}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors of the sockets, for a process to inherit."""
        return tuple(sock.fileno() for sock in self._sockets.values())


def close(sockets: Iterable[socket.socket]) -> None:
    """Close sockets."""
    for sock in sockets:
        sock.close()


def _port(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]
