"""Intermediate functional blocks: devices whose only purpose is the queue in front of them.

A packet sent into one waits in its qdisc and then continues from where it was taken
(drivers/net/ifb.c of the kernel).
"""

from __future__ import annotations

import errno
import struct
from typing import Final

from egressd.model.errors import Failed
from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkSocket,
    attribute,
    attributes,
    nest,
    number,
    text,
    u32,
)

# linux/rtnetlink.h, linux/if_link.h, linux/if.h
_NEW_LINK, _DELETE_LINK, _GET_LINK = 16, 17, 18
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, mask of changes
_NAME, _MTU, _TRANSMIT_QUEUE, _LINK_INFO, _EXT_MASK = 3, 4, 13, 18, 29
_INFO_KIND = 1
_SKIP_STATISTICS = 1 << 3
_UP = 0x1

_KIND: Final = "ifb"
_HANDED_ON: Final = 1000
"""Packets that may be on their way out of the device (``txqueuelen``)."""


def find(kernel: NetlinkSocket, name: str) -> int | None:
    """Return the index of the device if it exists and is up. Raises Failed if it is not an IFB."""
    body = _link(kernel, name)
    if body is None:
        return None
    _, _, index, flags, _ = _LINK.unpack_from(body)
    if (kind := _kind(attributes(body, _LINK.size))) != _KIND:
        raise Failed(f"use {name} for speed limits", f"it is of kind {kind or 'unknown'}, not ifb")
    return index if flags & _UP else None


def make(kernel: NetlinkSocket, name: str) -> int:
    """Make the device and bring it up if necessary; return its index."""
    index = find(kernel, name)
    if index is not None:
        return index
    up = _LINK.pack(0, 0, 0, _UP, _UP) + _name(name)
    link_info = nest(_LINK_INFO, attribute(_INFO_KIND, _KIND.encode()))
    queue = attribute(_TRANSMIT_QUEUE, u32(_HANDED_ON))
    try:
        kernel.request(_NEW_LINK, up + queue + link_info, uapi.NLM_F_CREATE | uapi.NLM_F_EXCL)
    except NetlinkError as error:
        if error.errno != errno.EEXIST:
            raise
        kernel.request(_NEW_LINK, up)
    index = find(kernel, name)
    if index is None:
        raise Failed(f"bring up {name}", "it went down or away at once")
    return index


def present(kernel: NetlinkSocket, prefix: str) -> list[str]:
    """Return the names of all IFBs that begin with `prefix`."""
    asked = _LINK.pack(0, 0, 0, 0, 0) + attribute(_EXT_MASK, u32(_SKIP_STATISTICS))
    links = (attributes(body, _LINK.size) for body in kernel.dump(_GET_LINK, asked))
    names = (text(link[_NAME]) for link in links if _kind(link) == _KIND)
    return [name for name in names if name.startswith(prefix)]


def mtu(kernel: NetlinkSocket, name: str) -> int:
    """Return the largest packet that an interface carries, in bytes; 0 if it doesn't exist."""
    body = _link(kernel, name)
    return 0 if body is None else number(attributes(body, _LINK.size).get(_MTU))


def remove(kernel: NetlinkSocket, name: str) -> None:
    """Remove the device, if it exists."""
    try:
        kernel.request(_DELETE_LINK, _LINK.pack(0, 0, 0, 0, 0) + _name(name))
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise


def _link(kernel: NetlinkSocket, name: str) -> bytes | None:
    request = _LINK.pack(0, 0, 0, 0, 0) + _name(name)
    request += attribute(_EXT_MASK, u32(_SKIP_STATISTICS))
    try:
        (body,) = kernel.request(_GET_LINK, request)
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise
        return None
    return body


def _kind(link: dict[int, bytes]) -> str:
    return text(attributes(link.get(_LINK_INFO, b"")).get(_INFO_KIND, b""))


def _name(name: str) -> bytes:
    return attribute(_NAME, name.encode() + b"\0")
