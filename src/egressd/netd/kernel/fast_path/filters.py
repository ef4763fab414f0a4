"""Puts classifiers on interfaces, where what comes in is looked at first (tc-bpf(8))."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from egressd.netd.kernel.netlink import (
    CREATE,
    EXCLUSIVE,
    REPLACE,
    NetlinkError,
    NetlinkSocket,
    attribute,
    attributes,
    nest,
    number,
    text,
    u32,
)
from egressd.planner.registry import FAST_PATH_PREFERENCE

# linux/rtnetlink.h, linux/pkt_sched.h, linux/pkt_cls.h, linux/if_ether.h
_NEW_QDISC = 36
_NEW_FILTER, _DELETE_FILTER, _GET_FILTER = 44, 45, 46
_MESSAGE: Final = struct.Struct("=BxxxiIII")  # tcmsg: family, interface, handle, parent, info
_CLSACT_HANDLE, _CLSACT_PARENT, _INGRESS = 0xFFFF_0000, 0xFFFF_FFF1, 0xFFFF_FFF2
_KIND, _OPTIONS = 1, 2
_DESCRIPTOR, _NAME, _FLAGS, _PROGRAM = 6, 7, 8, 11  # TCA_BPF_FD, _NAME, _FLAGS, _ID
_ACTS_ITSELF: Final = 1  # TCA_BPF_FLAG_ACT_DIRECT
_PROTOCOL_IP: Final = socket.htons(0x0800)
_INFO: Final = FAST_PATH_PREFERENCE << 16 | _PROTOCOL_IP
_HANDLE: Final = 1
_NOT_THERE: Final = (errno.ENOENT, errno.EINVAL, errno.ENODEV)
"""What the kernel says of an interface that has nowhere for filters, or is gone."""


class Filter(NamedTuple):
    """One that is in place."""

    name: str
    program: int
    """The kernel's number of its program."""


def put(kernel: NetlinkSocket, interface: int, name: str, descriptor: int) -> None:
    """Put a program on an interface, in the place of an earlier one if there is any.

    Raises NetlinkError.
    """
    body = _MESSAGE.pack(0, interface, _CLSACT_HANDLE, _CLSACT_PARENT, 0)
    with _unless(errno.EEXIST):
        kernel.request(_NEW_QDISC, body + attribute(_KIND, b"clsact\0"), CREATE | EXCLUSIVE)
    options = nest(
        _OPTIONS,
        attribute(_DESCRIPTOR, u32(descriptor)),
        attribute(_NAME, name.encode() + b"\0"),
        attribute(_FLAGS, u32(_ACTS_ITSELF)),
    )
    body = _MESSAGE.pack(0, interface, _HANDLE, _INGRESS, _INFO)
    kernel.request(_NEW_FILTER, body + attribute(_KIND, b"bpf\0") + options, CREATE | REPLACE)


def take_away(kernel: NetlinkSocket, interface: int) -> None:
    """Take our program off an interface, if it is there. Raises NetlinkError."""
    body = _MESSAGE.pack(0, interface, _HANDLE, _INGRESS, _INFO)
    with _unless(*_NOT_THERE):
        kernel.request(_DELETE_FILTER, body + attribute(_KIND, b"bpf\0"))


def find(kernel: NetlinkSocket, interface: int) -> Filter | None:
    """Ours on an interface. Raises NetlinkError."""
    return next(_ours(kernel, interface), None)


def _ours(kernel: NetlinkSocket, interface: int) -> Iterator[Filter]:
    body = _MESSAGE.pack(0, interface, 0, _INGRESS, 0)
    found: list[bytes] = []
    with _unless(*_NOT_THERE):
        found = kernel.dump(_GET_FILTER, body)
    for each in found:
        info = _MESSAGE.unpack_from(each)[4]
        options = attributes(attributes(each, _MESSAGE.size).get(_OPTIONS, b""))
        if info == _INFO and _PROGRAM in options:
            yield Filter(text(options.get(_NAME, b"")), number(options[_PROGRAM]))


@contextmanager
def _unless(*errors: int) -> Iterator[None]:
    """Take these refusals for what was to be done already."""
    try:
        yield
    except NetlinkError as error:
        if error.errno not in errors:
            raise
