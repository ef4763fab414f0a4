"""A descriptor of the root of the cgroup hierarchy, where programs are attached (cgroups(7))."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""System calls, with the same numbers on all machines (asm-generic/unistd.h)."""
_FSOPEN_CLOEXEC: Final = 1
_FSMOUNT_CLOEXEC: Final = 1
_FSCONFIG_CMD_CREATE: Final = 6
_AT_ROOT: Final = "/"


def open_root() -> int:
    """Open the cgroup2 hierarchy by its mount point, else by a mount without a path.

    Raises OSError if there is no hierarchy, or if this process may not mount it.
    """
    for line in _MOUNTS.read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 ") and fields.split()[3] == _AT_ROOT:
            with suppress(OSError):
                return os.open(fields.split()[4], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    context = _call(_FSOPEN, ctypes.c_char_p(b"cgroup2"), ctypes.c_uint(_FSOPEN_CLOEXEC))
    try:
        command = ctypes.c_uint(_FSCONFIG_CMD_CREATE)
        _call(_FSCONFIG, ctypes.c_int(context), command, None, None, ctypes.c_int(0))
        return _call(
            _FSMOUNT, ctypes.c_int(context), ctypes.c_uint(_FSMOUNT_CLOEXEC), ctypes.c_uint(0)
        )
    finally:
        os.close(context)


def _call(number: int, *arguments: object) -> int:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    answer: int = syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
