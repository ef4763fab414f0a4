"""Runs a program that may create sockets of some families only, as with systemd's
``RestrictAddressFamilies`` (systemd.exec(5)). For all others the kernel returns EAFNOSUPPORT.

``python families.py AF_UNIX,AF_INET program argument ...``
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from typing import Final

_SOCKET: Final = {"x86_64": 41, "aarch64": 198}
"""The number of socket(2)."""
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2  # PR_*, SECCOMP_MODE_FILTER

# linux/bpf_common.h: load a word of seccomp_data, jump if equal, return.
_LOAD, _JUMP_IF, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16  # offsets in seccomp_data
_ALLOW: Final = 0x7FFF_0000  # SECCOMP_RET_ALLOW
_REFUSE: Final = 0x0005_0000 | errno.EAFNOSUPPORT  # SECCOMP_RET_ERRNO


def restrict(families: list[int]) -> None:
    """Restrict this process, and its program after exec, to sockets of `families`.

    Raises OSError.
    """
    count = len(families)
    program = [
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_IF, 0, count + 2, _SOCKET[platform.machine()]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        *((_JUMP_IF, count - index, 0, family) for index, family in enumerate(families)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    filter_ = struct.pack("@HP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, filter_, 0, 0)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Execute the program, restricted."""
    families, *argv = sys.argv[1:]
    restrict([getattr(socket, name) for name in families.split(",")])
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
