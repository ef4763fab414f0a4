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

_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, mask of changes

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
    return index if flags & uapi.IFF_UP else None


def make(kernel: NetlinkSocket, name: str) -> int:
    """Make the device and bring it up if necessary; return its index."""
    index = find(kernel, name)
    if index is not None:
        return index
    up = _LINK.pack(0, 0, 0, uapi.IFF_UP, uapi.IFF_UP) + _name(name)
    link_info = nest(uapi.IFLA_LINKINFO, attribute(uapi.IFLA_INFO_KIND, _KIND.encode()))
    queue = attribute(uapi.IFLA_TXQLEN, u32(_HANDED_ON))
    try:
        kernel.request(
            uapi.RTM_NEWLINK, up + queue + link_info, uapi.NLM_F_CREATE | uapi.NLM_F_EXCL
        )
    except NetlinkError as error:
        if error.errno != errno.EEXIST:
            raise
        kernel.request(uapi.RTM_NEWLINK, up)
    index = find(kernel, name)
    if index is None:
        raise Failed(f"bring up {name}", "it went down or away at once")
    return index


def present(kernel: NetlinkSocket, prefix: str) -> list[str]:
    """Return the names of all IFBs that begin with `prefix`."""
    asked = _LINK.pack(0, 0, 0, 0, 0)
    asked += attribute(uapi.IFLA_EXT_MASK, u32(uapi.RTEXT_FILTER_SKIP_STATS))
    links = (attributes(body, _LINK.size) for body in kernel.dump(uapi.RTM_GETLINK, asked))
    names = (text(link[uapi.IFLA_IFNAME]) for link in links if _kind(link) == _KIND)
    return [name for name in names if name.startswith(prefix)]


def mtu(kernel: NetlinkSocket, name: str) -> int:
    """Return the largest packet that an interface carries, in bytes; 0 if it doesn't exist."""
    body = _link(kernel, name)
    return 0 if body is None else number(attributes(body, _LINK.size).get(uapi.IFLA_MTU))


def remove(kernel: NetlinkSocket, name: str) -> None:
    """Remove the device, if it exists."""
    try:
        kernel.request(uapi.RTM_DELLINK, _LINK.pack(0, 0, 0, 0, 0) + _name(name))
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise


def _link(kernel: NetlinkSocket, name: str) -> bytes | None:
    request = _LINK.pack(0, 0, 0, 0, 0) + _name(name)
    request += attribute(uapi.IFLA_EXT_MASK, u32(uapi.RTEXT_FILTER_SKIP_STATS))
    try:
        (body,) = kernel.request(uapi.RTM_GETLINK, request)
    except NetlinkError as error:
        if error.errno != errno.ENODEV:
            raise
        return None
    return body


def _kind(link: dict[int, bytes]) -> str:
    return text(attributes(link.get(uapi.IFLA_LINKINFO, b"")).get(uapi.IFLA_INFO_KIND, b""))


def _name(name: str) -> bytes:
    return attribute(uapi.IFLA_IFNAME, name.encode() + b"\0")
