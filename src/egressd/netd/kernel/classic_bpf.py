"""Filters of what sockets receive: classic BPF, as in the kernel's ``networking/filter.rst``.

For netlink's messages there are checks; their offsets count from the start of a whole message,
which begins with a ``struct nlmsghdr``.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from egressd.netd.kernel import uapi

TYPE_AT: Final = 4
"""Offset in ``struct nlmsghdr`` of the type, two bytes."""
PORT_AT: Final = 12
"""Offset in ``struct nlmsghdr`` of the port id, four bytes."""
BODY_AT: Final = 16
"""Offset of a netlink message's body: the length of ``struct nlmsghdr`` in bytes."""

_SIZES: Final = {"B": uapi.BPF_B, "H": uapi.BPF_H, "I": uapi.BPF_W}
WHOLE, NOTHING = 0xFFFF_FFFF, 0
"""Return values of a program: the bytes of a message that get through."""
_INSTRUCTION: Final = struct.Struct("=HBBI")  # struct sock_filter
_PROGRAM: Final = struct.Struct("@HP")  # struct sock_fprog


class Check(NamedTuple):
    """A condition on a field of a message; `width` is the field's format character of `struct`."""

    width: Literal["B", "H", "I"]
    offset: int
    test: Literal["is", "is not", "lacks"]
    value: int


def any_of(heard: Iterable[Sequence[Check]]) -> bytes:
    """Return the program that lets a message through if all checks of one of the lists hold."""
    program = b""
    for checks in heard:
        for number, check in enumerate(checks):
            to_next_list = 2 * (len(checks) - number) - 1
            # A filter loads numbers in network byte order; messages are in the machine's.
            value = int.from_bytes(struct.pack(f"={check.width}", check.value), "big")
            load = uapi.BPF_LD | uapi.BPF_ABS | _SIZES[check.width]
            jump = uapi.BPF_JMP | (uapi.BPF_JSET if check.test == "lacks" else uapi.BPF_JEQ)
            skipped = (0, to_next_list) if check.test == "is" else (to_next_list, 0)
            program += _INSTRUCTION.pack(load, 0, 0, check.offset)
            program += _INSTRUCTION.pack(jump, *skipped, value)
        program += _INSTRUCTION.pack(uapi.BPF_RET, 0, 0, WHOLE)
    return program + _INSTRUCTION.pack(uapi.BPF_RET, 0, 0, NOTHING)


def assembled(*instructions: tuple[int, int, int, int]) -> bytes:
    """Return the program of these instructions: code, offsets of the jumps if true and if false,
    and the operand.
    """
    return b"".join(_INSTRUCTION.pack(*each) for each in instructions)


def attach(opened: socket.socket, program: bytes) -> None:
    """Attach a program in place of the socket's present one, if any. Needs no privilege."""
    instructions = ctypes.create_string_buffer(program, len(program))
    count = len(program) // _INSTRUCTION.size
    fprog = _PROGRAM.pack(count, ctypes.addressof(instructions))
    opened.setsockopt(socket.SOL_SOCKET, uapi.SO_ATTACH_FILTER, fprog)
