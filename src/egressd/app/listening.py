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
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from egressd.app import held_sockets, readiness
from egressd.app.held_sockets import close
from egressd.app.listen_address import ListenAddress
from egressd.app.supervise import HANDED
from egressd.model.errors import Failed

_FIRST: Final = 3
"""The first descriptor that systemd hands over (SD_LISTEN_FDS_START)."""
_STORED: Final = "egressd-api"
"""The name by which systemd knows the sockets."""
_CLOSED_S: Final = 5.0
"""Seconds within which systemd closes its copies, which it does some time after it was asked."""
_AGAIN_S: Final = 0.02


def bound(endpoint: ListenAddress) -> socket.socket:
    """Return a socket that listens at `endpoint`. Raises Failed."""
    try:
        return held_sockets.bound(str(endpoint))
    except OSError as error:
        action, _, cause = str(error).rpartition(": ")
        raise Failed(action, cause) from error


def taken(
    endpoints: Sequence[ListenAddress], environment: Mapping[str, str] = os.environ
) -> list[socket.socket]:
    """Return a socket for each of `endpoints`: one that was handed over to this process, else a new
    one. Sockets that were handed over and are not wanted are closed. Raises Failed.
    """
    handed = {sock.getsockname(): sock for sock in map(_socket, _handed(environment))}
    found = {each: handed.pop(_place_of(each), None) for each in endpoints}
    close(handed.values())
    if handed:
        readiness.forget(_STORED)  # systemd's copies would keep the ports taken
    within_s = _CLOSED_S if handed else 0.0
    sockets = [sock or _bound_within(each, within_s) for each, sock in found.items()]
    if handed or None in found.values():
        readiness.store(_STORED, [sock.fileno() for sock in sockets])
    return sockets


def _bound_within(endpoint: ListenAddress, seconds: float) -> socket.socket:
    """Return a socket that listens at `endpoint`, as soon as it is free. Raises Failed."""
    until = time.monotonic() + seconds
    while True:
        try:
            return bound(endpoint)
        except Failed:
            if time.monotonic() >= until:
                raise
        time.sleep(_AGAIN_S)


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
        return held_sockets.socket_address(str(endpoint))
    return ()
