"""The runner's surroundings: no network, no sockets of other programs, little of everything."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from pathlib import Path
from typing import Final

# Flags of unshare(2) and mount(2), and of netdevice(7).
_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWNET: Final = 0x4000_0000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP: Final = 1
_PR_SET_PDEATHSIG: Final = 1
_IFREQ: Final = struct.Struct("16sH14x")
"""``struct ifreq`` with flags."""

_SOCKETS: Final = (Path("/run"), Path("/var/run"))
"""Folders with the sockets of other programs: a resolver's cache would ask by its own way."""
_LIMITS: Final = {
    resource.RLIMIT_AS: 512 * 1024 * 1024,
    resource.RLIMIT_CPU: 20,
    resource.RLIMIT_FSIZE: 0,
    resource.RLIMIT_NOFILE: 128,
    resource.RLIMIT_CORE: 0,
}

_libc = ctypes.CDLL(None, use_errno=True)


def isolate() -> None:
    """Give this process a network namespace with a loopback alone, and hide other programs' sockets
    from it. Needs CAP_SYS_ADMIN. Raises OSError.
    """
    _check(_libc.unshare(_CLONE_NEWNET | _CLONE_NEWNS), "unshare")
    _mount("none", Path("/"), "", _MS_REC | _MS_PRIVATE, "")
    for folder in _SOCKETS:
        if folder.is_dir() and not folder.is_symlink():
            flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            _mount("none", folder, "tmpfs", flags, "size=4k,mode=0555")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        _, flags = _IFREQ.unpack(fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _IFREQ.pack(b"lo", flags | _IFF_UP))


def close_streams() -> None:
    """Connect the standard streams to nothing: what is written there must not reach the caller."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.close(nothing)


def end_with_parent() -> None:
    """Have the kernel end this process when its parent ends (prctl(2)). To be called once the user
    has changed, which would undo it.
    """
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")
    if os.getppid() == 1:
        os._exit(0)  # it has ended before


def limit() -> None:
    """Limit the memory, the processor time and the files of this process."""
    for name, most in _LIMITS.items():
        resource.setrlimit(name, (most, most))


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        options.encode(),
    )
    _check(result, f"mount {target}")


def _check(result: int, call: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}")
