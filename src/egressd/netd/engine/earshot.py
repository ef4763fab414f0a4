"""What the instances of a worker hear of the machine's links and routes.

A sing-box instance subscribes to all of it by netlink. After each message it lists interfaces and
routes anew, which takes 2 ms of processor time and leaves 90 KB of garbage: with 1,000 instances
two seconds and 90 MB whenever a port of a bridge changes, or egressd makes a route. What an
instance sends bears a mark by which the kernel routes it, so all it has to hear is that the main
table's way out may be another: it then ends QUIC and multiplexed sessions, which would hang on the
old one. So its sockets get a filter (classic BPF, as in the kernel's ``networking/filter.rst``)
that lets through just

- a default route of IPv4 that comes to the main table or goes from it;
- a link that does not run, since its routes go without a message: no PPP link, whose routes
  egressd makes, and no bridge's news of its ports.

Messages are a ``struct nlmsghdr`` and an ``ifinfomsg`` or ``rtmsg`` (rtnetlink(7)).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

_SO_ATTACH_FILTER: Final = 26

_LOAD: Final = {"B": 0x30, "H": 0x28, "I": 0x20}
_JUMP_IF_EQUAL, _JUMP_IF_SET, _RETURN = 0x15, 0x45, 0x06
_EVERYTHING, _NOTHING = 0xFFFF_FFFF, 0
_INSTRUCTION: Final = struct.Struct("=HBBI")  # struct sock_filter
_PROGRAM: Final = struct.Struct("@HP")  # struct sock_fprog

_RTM_NEWLINK, _RTM_NEWROUTE, _RTM_DELROUTE = 16, 24, 25
_RT_TABLE_MAIN: Final = 254
_ARPHRD_PPP: Final = 512
_IFF_RUNNING: Final = 0x40

_GATHER_S: Final = 0.5
"""Instances that start within this time are attended to at once."""


class _Check(NamedTuple):
    """A condition on a field of a message, as wide as `struct` has its format."""

    width: Literal["B", "H", "I"]
    offset: int
    test: Literal["is", "is not", "lacks"]
    value: int


def _default_route(message: int) -> tuple[_Check, ...]:
    return (
        _Check("H", 4, "is", message),
        _Check("B", 16, "is", socket.AF_INET),
        _Check("B", 17, "is", 0),  # bits of the destination
        _Check("B", 20, "is", _RT_TABLE_MAIN),
    )


_HEARD: Final = (
    (
        _Check("H", 4, "is", _RTM_NEWLINK),
        _Check("B", 16, "is", socket.AF_UNSPEC),
        _Check("H", 18, "is not", _ARPHRD_PPP),
        _Check("I", 24, "lacks", _IFF_RUNNING),
    ),
    _default_route(_RTM_NEWROUTE),
    _default_route(_RTM_DELROUTE),
)


def _compiled(heard: tuple[tuple[_Check, ...], ...]) -> bytes:
    """A program that lets a message through if all checks of one of the lists hold."""
    program = b""
    for checks in heard:
        for number, check in enumerate(checks):
            to_next_list = 2 * (len(checks) - number) - 1
            # A filter loads numbers in network order, messages have the machine's.
            value = int.from_bytes(struct.pack(f"={check.width}", check.value), "big")
            jump = _JUMP_IF_SET if check.test == "lacks" else _JUMP_IF_EQUAL
            skipped = (0, to_next_list) if check.test == "is" else (to_next_list, 0)
            program += _INSTRUCTION.pack(_LOAD[check.width], 0, 0, check.offset)
            program += _INSTRUCTION.pack(jump, *skipped, value)
        program += _INSTRUCTION.pack(_RETURN, 0, 0, _EVERYTHING)
    return program + _INSTRUCTION.pack(_RETURN, 0, 0, _NOTHING)


_FILTER: Final = _compiled(_HEARD)


def narrow() -> None:
    """Put the filter on every socket of this process that subscribes to links or routes.

    Asks for no privilege. The kernel takes a filter in place of the same one.
    """
    for entry in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):  # closed meanwhile
            _narrow(int(entry.name))


def _narrow(descriptor: int) -> None:
    # Other threads close and open descriptors: the copy stays what it is.
    copy = os.dup(descriptor)
    if not stat.S_ISSOCK(os.fstat(copy).st_mode):
        os.close(copy)
        return
    with socket.socket(fileno=copy) as opened:
        is_netlink = (opened.family, opened.proto) == (socket.AF_NETLINK, socket.NETLINK_ROUTE)
        # Without groups it asks, and waits for all of the answer.
        if is_netlink and opened.getsockname()[1]:
            _attach(opened)


def _attach(opened: socket.socket) -> None:
    instructions = ctypes.create_string_buffer(_FILTER)
    count = len(_FILTER) // _INSTRUCTION.size
    program = _PROGRAM.pack(count, ctypes.addressof(instructions))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


class Narrowing:
    """Calls `narrow` for instances that were started, a moment later."""

    def __init__(self) -> None:
        self._due: asyncio.TimerHandle | None = None

    def soon(self) -> None:
        """Tell that an instance was started. To be called in the event loop."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_GATHER_S, self._now)

    def _now(self) -> None:
        self._due = None
        narrow()
