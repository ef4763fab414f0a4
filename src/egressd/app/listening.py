"""The API's listening sockets, which stay open while the api restarts.

While no process listens at a port above 1023, any user's program may take it, and callers then send
their token to that program. So each socket is made once. `egressd serve` makes them and hands them
to every api that it starts (`HANDED`); under systemd the api leaves them with systemd, which hands
them to the next api (``FileDescriptorStoreMax=`` in systemd.service(5), ``FDSTORE`` in
sd_notify(3)). Connections that come meanwhile wait until they are accepted.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from egressd.app import readiness
from egressd.app.listen_address import ListenAddress
from egressd.model.errors import Failed

HANDED: Final = "EGRESSD_LISTENING"
"""The environment variable with the descriptors of an api's sockets, separated by commas."""
_BACKLOG: Final = 2048
"""Connections that may wait to be accepted: uvicorn's own number."""
_FIRST: Final = 3
"""The first descriptor that systemd hands over (SD_LISTEN_FDS_START)."""
_STORED: Final = "egressd-api"
"""The name by which systemd knows the sockets."""


def bound(endpoint: ListenAddress) -> socket.socket:
    """Return a socket that listens at `endpoint`. Raises Failed."""
    try:
        made = endpoint.bind()
        made.listen(_BACKLOG)
    except OSError as error:
        raise Failed(f"listen at {endpoint}", error.strerror or str(error)) from error
    return made


class HeldSockets:
    """Sockets that stay open until this process ends or no longer wants them."""

    def __init__(self) -> None:
        self._sockets: dict[ListenAddress, socket.socket] = {}

    def want(self, endpoints: Sequence[ListenAddress]) -> None:
        """Hold sockets at `endpoints`, and no others. Raises Failed; present sockets at other ports
        than those of new endpoints then stay.
        """
        ports = {endpoint.port for endpoint in endpoints if endpoint not in self._sockets}
        for endpoint in self._sockets.keys() - {*endpoints}:
            # Sockets at two addresses of one port may exclude each other.
            if endpoint.port in ports:
                self._sockets.pop(endpoint).close()
        made: dict[ListenAddress, socket.socket] = {}
        try:
            for endpoint in endpoints:
                if endpoint not in self._sockets:
                    made[endpoint] = bound(endpoint)
        except Failed:
            _close(made.values())
            raise
        every = self._sockets | made
        _close(sock for endpoint, sock in every.items() if endpoint not in endpoints)
        self._sockets = {endpoint: every[endpoint] for endpoint in endpoints}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors of the sockets, for a process to inherit."""
        return tuple(sock.fileno() for sock in self._sockets.values())


def taken(
    endpoints: Sequence[ListenAddress], environment: Mapping[str, str] = os.environ
) -> list[socket.socket]:
    """Return a socket for each of `endpoints`: one that was handed over to this process, else a new
    one. Sockets that were handed over and are not wanted are closed. Raises Failed.
    """
    handed = {sock.getsockname(): sock for sock in map(_socket, _handed(environment))}
    found = {each: handed.pop(_place_of(each), None) for each in endpoints}
    _close(handed.values())
    if handed:
        readiness.forget(_STORED)  # systemd's copies would keep the ports taken
    sockets = [sock or bound(each) for each, sock in found.items()]
    if handed or None in found.values():
        readiness.store(_STORED, [sock.fileno() for sock in sockets])
    return sockets


def _handed(environment: Mapping[str, str]) -> list[int]:
    if listed := environment.get(HANDED):
        return [int(number) for number in listed.split(",")]
    if environment.get("LISTEN_PID") == str(os.getpid()):  # sd_listen_fds(3)
        return [*range(_FIRST, _FIRST + int(environment["LISTEN_FDS"]))]
    return []


def _socket(descriptor: int) -> socket.socket:
    os.set_inheritable(descriptor, False)
    return socket.socket(fileno=descriptor)


def _place_of(endpoint: ListenAddress) -> tuple[Any, ...]:
    """Return the name of a socket at `endpoint`; empty if it can have none, since its interface may
    be gone.
    """
    with suppress(OSError):
        return endpoint.socket_address
    return ()


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
