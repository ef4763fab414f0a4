"""The API's listening sockets, which somebody holds while the api starts anew.

A port above 1023 is anybody's who asks for it while nobody listens there, and callers tell that one
their token. So each socket is made once. `egressd serve` makes them and hands them to every api
that it starts (`HANDED`); under systemd the api leaves them with systemd, which hands them to the
next one (``FileDescriptorStoreMax=`` in systemd.service(5), ``FDSTORE`` in sd_notify(3)).
Connections that come meanwhile wait until they are accepted.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from egressd.app import readiness
from egressd.app.config import Endpoint
from egressd.model.errors import Failed

HANDED: Final = "EGRESSD_LISTENING"
"""The environment variable with the descriptors of an api's sockets, commas between."""
_BACKLOG: Final = 2048
"""Connections that wait to be accepted, as many as uvicorn asks for."""
_FIRST: Final = 3
"""The first descriptor that systemd hands over (SD_LISTEN_FDS_START)."""
_STORED: Final = "egressd-api"
"""What systemd knows the sockets by."""


def bound(endpoint: Endpoint) -> socket.socket:
    """A socket that listens there. Raises Failed."""
    try:
        made = endpoint.bind()
        made.listen(_BACKLOG)
    except OSError as error:
        raise Failed(f"listen at {endpoint}", error.strerror or str(error)) from error
    return made


class Held:
    """Sockets for as long as this process lives, or does not want them any more."""

    def __init__(self) -> None:
        self._sockets: dict[Endpoint, socket.socket] = {}

    def want(self, endpoints: Sequence[Endpoint]) -> None:
        """Hold those, and no others. Raises Failed; those at other ports stay then."""
        ports = {endpoint.port for endpoint in endpoints if endpoint not in self._sockets}
        for endpoint in self._sockets.keys() - {*endpoints}:
            # Addresses of one port may be in each other's way.
            if endpoint.port in ports:
                self._sockets.pop(endpoint).close()
        made: dict[Endpoint, socket.socket] = {}
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
        """The sockets, for a process to inherit."""
        return tuple(sock.fileno() for sock in self._sockets.values())


def taken(
    endpoints: Sequence[Endpoint], environment: Mapping[str, str] = os.environ
) -> list[socket.socket]:
    """A socket for each of `endpoints`: what was handed over to this process, and new ones for the
    rest. What was handed over and is not wanted is closed. Raises Failed.
    """
    handed = {sock.getsockname(): sock for sock in map(_socket, _handed(environment))}
    found = {each: handed.pop(_place_of(each), None) for each in endpoints}
    _close(handed.values())
    if handed:
        readiness.forget(_STORED)  # or they would be in the way
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


def _place_of(endpoint: Endpoint) -> tuple[Any, ...]:
    """The name of a socket there, none while it can have none: its interface may be gone."""
    with suppress(OSError):
        return endpoint.socket_address
    return ()


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
