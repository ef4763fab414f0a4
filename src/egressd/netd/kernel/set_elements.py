"""Reads the elements of a set or map of egressd's nftables tables, as the kernel has them.

Through nfnetlink (linux/netfilter/nf_tables.h), whose numbers are big endian.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from egressd.netd.kernel.netlink import NetlinkError, NetlinkSocket, attribute, attributes, nest
from egressd.netd.kernel.picker import Picker
from egressd.planner.registry import NFT_TABLE

SUBSYSTEM: Final = 10 << 8  # NFNL_SUBSYS_NFTABLES
HEADER: Final = struct.Struct("=BBH")  # nfgenmsg: family, version, resource
INET: Final = HEADER.pack(1, 0, 0)  # NFPROTO_INET
NETDEV: Final = HEADER.pack(5, 0, 0)  # NFPROTO_NETDEV
TABLE: Final = attribute(1, NFT_TABLE.encode() + b"\0")
"""NFTA_CHAIN_TABLE, NFTA_RULE_TABLE and NFTA_SET_ELEM_LIST_TABLE alike."""

_GET_ELEMENT: Final = SUBSYSTEM | 13  # NFT_MSG_GETSETELEM
_SET, _ELEMENTS, _ELEMENT = 2, 3, 1  # NFTA_SET_ELEM_LIST_SET, _ELEMENTS; NFTA_LIST_ELEM
_KEY, _DATA, _FLAGS, _EXPRESSION = 1, 2, 3, 7  # NFTA_SET_ELEM_*
_VALUE = 1  # NFTA_DATA_VALUE
_EXPRESSION_DATA = 2  # NFTA_EXPR_DATA
_BYTES, _PACKETS = 1, 2  # NFTA_COUNTER_*
_ATTRIBUTE = struct.Struct("=HH")


class RawElement(NamedTuple):
    """An element's parts as the kernel writes them; missing parts are empty."""

    key: bytes
    value: bytes
    flags: bytes
    size: bytes
    """Bytes of IP packets that the element has counted."""
    packets: bytes


def dump(kernel: NetlinkSocket, family: bytes, name: str) -> Iterator[RawElement]:
    """List a set's elements; none if the set doesn't exist. `family`: `INET` or `NETDEV`.

    Raises NetlinkError.
    """
    try:
        bodies = kernel.dump(_GET_ELEMENT, family + TABLE + _named(name))
    except NetlinkError as error:
        if error.errno != errno.ENOENT:
            raise
        return
    pick = _picker().pick
    for body in bodies:
        for element in _elements(body):
            yield RawElement(*pick(element))


def get(kernel: NetlinkSocket, family: bytes, name: str, key: bytes) -> RawElement | None:
    """Return one element; None if it doesn't exist. Raises NetlinkError."""
    wanted = nest(_ELEMENTS, nest(_ELEMENT, nest(_KEY, attribute(_VALUE, key))))
    try:
        (body,) = kernel.request(_GET_ELEMENT, family + TABLE + _named(name) + wanted)
    except NetlinkError as error:
        if error.errno != errno.ENOENT:
            raise
        return None
    (element,) = _elements(body)
    return RawElement(*_picker().pick(element))


def _elements(body: bytes) -> Iterator[bytes]:
    """Split a message into its elements, each without its header."""
    listed = attributes(body, HEADER.size).get(_ELEMENTS, b"")
    at = 0
    while at + _ATTRIBUTE.size <= len(listed):
        length, _ = _ATTRIBUTE.unpack_from(listed, at)
        yield listed[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def _picker() -> Picker:
    counter = _EXPRESSION, _EXPRESSION_DATA
    return Picker(
        0, (_KEY, _VALUE), (_DATA, _VALUE), (_FLAGS,), (*counter, _BYTES), (*counter, _PACKETS)
    )


def _named(name: str) -> bytes:
    return attribute(_SET, name.encode() + b"\0")
