"""The Unix socket by which commands on the device itself call the API, in the api's own folder.

While no process listens at a port, any program may take it, and a command would send its token to
that program. Only root and the api's user can enter the folder, and the kernel reports the user of
the process that listens.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed

_NAME: Final = "api.sock"
_CREDENTIALS: Final = struct.Struct("3i")
"""``struct ucred``: pid, uid, gid (unix(7), SO_PEERCRED)."""


def listen(folder: Path) -> socket.socket:
    """Return a socket that is bound in `folder`; a file that an earlier api has left is replaced.

    Raises Failed.
    """
    with _entered(folder, "listen") as (path, _), _reported("listen", folder):
        Path(path).unlink(missing_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(path)
            Path(path).chmod(0o600)
        except OSError:
            bound.close()
            raise
    return bound


def connect(folder: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the api, with a timeout. Raises Failed if no process listens, or if a
    process listens that is neither root's nor the folder owner's.
    """
    action = "call the api"
    with _entered(folder, action) as (path, owner), _reported(action, folder):
        calling = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            calling.settimeout(timeout_s)
            calling.connect(path)
            _check_listener(calling, owner)
        except BaseException:
            calling.close()
            raise
    return calling


def _check_listener(calling: socket.socket, owner: int) -> None:
    """Raise PermissionError if the process that listens is neither root's nor `owner`'s."""
    raw = calling.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, listener, _ = _CREDENTIALS.unpack(raw)
    if listener not in (0, owner):
        raise PermissionError(errno.EPERM, "another user's process listens")


@contextmanager
def _entered(folder: Path, action: str) -> Iterator[tuple[str, int]]:
    """Yield the socket's path, and the folder's owner. The path leads through a descriptor, since
    the path of a socket has 107 bytes at most (unix(7)).
    """
    with _reported(action, folder):
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(descriptor)
        if found.st_mode & 0o022:
            raise Failed(action, f"others than its owner may write to {folder}")
        yield f"/proc/self/fd/{descriptor}/{_NAME}", found.st_uid
    finally:
        os.close(descriptor)


@contextmanager
def _reported(action: str, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(action, f"{error.strerror or error} ({folder / _NAME})") from error
