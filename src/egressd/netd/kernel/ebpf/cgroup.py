"""A descriptor of the root of the cgroup hierarchy, where programs are attached (cgroups(7))."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.netd.kernel import uapi

_MOUNTS: Final = Path("/proc/self/mountinfo")
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
    flags = ctypes.c_uint(uapi.FSOPEN_CLOEXEC)
    context = _call(uapi.SYS_fsopen, ctypes.c_char_p(b"cgroup2"), flags)
    try:
        command = ctypes.c_uint(uapi.FSCONFIG_CMD_CREATE)
        _call(uapi.SYS_fsconfig, ctypes.c_int(context), command, None, None, ctypes.c_int(0))
        flags = ctypes.c_uint(uapi.FSMOUNT_CLOEXEC)
        return _call(uapi.SYS_fsmount, ctypes.c_int(context), flags, ctypes.c_uint(0))
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
