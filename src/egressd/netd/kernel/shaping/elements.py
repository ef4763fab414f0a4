"""Reads the sets of the speed limits' table, and those that count the traffic of rules.

Through nfnetlink (linux/netfilter/nf_tables.h), whose numbers are big endian.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from socket import inet_aton, inet_ntoa
from typing import Final, NamedTuple

from egressd.netd.kernel.netlink import (
    NETFILTER,
    NetlinkError,
    NetlinkSocket,
    attribute,
    attributes,
    nest,
    number,
    text,
)
from egressd.netd.kernel.picker import Picker
from egressd.netd.kernel.shaping.messages import Count
from egressd.planner.registry import NFT_TABLE
from egressd.planner.shaping import COUNT_SETS, RANGE_SETS

_SUBSYSTEM: Final = 10 << 8  # NFNL_SUBSYS_NFTABLES
_GET_CHAIN, _GET_RULE, _GET_ELEMENT = _SUBSYSTEM | 4, _SUBSYSTEM | 7, _SUBSYSTEM | 13
_NETDEV: Final = struct.pack("=BBH", 5, 0, 0)  # nfgenmsg: NFPROTO_NETDEV, version, resource
_INET: Final = struct.pack("=BBH", 1, 0, 0)  # NFPROTO_INET
_TABLE: Final = attribute(
    1, NFT_TABLE.encode() + b"\0"
)  # NFTA_CHAIN_TABLE, _RULE_, _SET_ELEM_LIST_

_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK = 1, 3, 4
_SET, _ELEMENTS, _ELEMENT = 2, 3, 1  # NFTA_SET_ELEM_LIST_SET, _ELEMENTS; NFTA_LIST_ELEM
_KEY, _DATA, _FLAGS, _EXPRESSION = 1, 2, 3, 7  # NFTA_SET_ELEM_*
_VALUE = 1  # NFTA_DATA_VALUE
_INTERVAL_END = 1
_EXPRESSION_DATA = 2  # NFTA_EXPR_DATA
_BYTES, _PACKETS = 1, 2  # NFTA_COUNTER_*
_ATTRIBUTE = struct.Struct("=HH")


class Element(NamedTuple):
    """An element, with its key as nft takes it: an address, or ``first-last``."""

    key: str
    value: int
    """The class that a map leads to, by its handle; 0 in a set."""
    passed: Count
    """What it has matched, in bytes of IP packets; 0 where nothing is counted."""


def read(kernel: NetlinkSocket, name: str) -> list[Element]:
    """The elements of one of `ADDRESS_SETS` or `COUNT_SETS`; none if it isn't there.

    Raises OSError.
    """
    pick = _picker().pick
    found = [pick(element) for element in _dump(kernel, name)]
    if name in RANGE_SETS:
        return _ranges(found)
    return [_element(inet_ntoa(fields[0]), fields) for fields in found]


def read_devices(kernel: NetlinkSocket, name: str) -> dict[int, int]:
    """The elements of a map of devices: handle -> interface index. Raises OSError."""
    found = (_picker().pick(element) for element in _dump(kernel, name))
    return {number(key): number(value) for key, value, *_ in found}


def count(
    kernel: NetlinkSocket, name: str, addresses: Iterable[str]
) -> Iterator[tuple[str, Count]]:
    """What the elements of these addresses have matched, of those that are there.

    Raises OSError.
    """
    for address in addresses:
        key = nest(_KEY, attribute(_VALUE, inet_aton(address)))
        which = _string(_SET, name) + nest(_ELEMENTS, nest(_ELEMENT, key))
        try:
            (body,) = kernel.request(_GET_ELEMENT, _header(name) + _TABLE + which)
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            continue
        (found,) = _elements(body)
        yield address, _element(address, _picker().pick(found)).passed


def base_chains() -> list[str]:
    """The names of the table's chains that hook an interface, or did so while it was there."""
    with NetlinkSocket(NETFILTER) as kernel:
        chains = [attributes(body, len(_NETDEV)) for body in kernel.dump(_GET_CHAIN, _NETDEV)]
    return [
        text(found[_CHAIN_NAME])
        for found in chains
        if text(found[_CHAIN_TABLE]) == NFT_TABLE and _CHAIN_HOOK in found
    ]


def rules() -> list[bytes]:
    """The table's rules as the kernel writes them: equal answers mean equal rules."""
    with NetlinkSocket(NETFILTER) as kernel:
        try:
            # Before the attributes stands the number of the last transaction, whoever's it was.
            return [body[len(_NETDEV) :] for body in kernel.dump(_GET_RULE, _NETDEV + _TABLE)]
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            return []


def _dump(kernel: NetlinkSocket, name: str) -> Iterator[bytes]:
    """The elements of a set; none if it isn't there."""
    try:
        bodies = kernel.dump(_GET_ELEMENT, _header(name) + _TABLE + _string(_SET, name))
    except NetlinkError as error:
        if error.errno != errno.ENOENT:
            raise
        return
    for body in bodies:
        yield from _elements(body)


def _elements(body: bytes) -> Iterator[bytes]:
    """The elements in a message, each without its header."""
    listed = attributes(body, len(_NETDEV)).get(_ELEMENTS, b"")
    at = 0
    while at + _ATTRIBUTE.size <= len(listed):
        length, _ = _ATTRIBUTE.unpack_from(listed, at)
        yield listed[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def _picker() -> Picker:
    """Of an element's key, value, flags, and the bytes and packets of its counter."""
    counter = _EXPRESSION, _EXPRESSION_DATA
    return Picker(
        0, (_KEY, _VALUE), (_DATA, _VALUE), (_FLAGS,), (*counter, _BYTES), (*counter, _PACKETS)
    )


def _element(key: str, fields: list[bytes]) -> Element:
    _, value, _, size, packets = fields
    return Element(key, number(value), Count(_big(size), _big(packets)))


def _ranges(found: list[list[bytes]]) -> list[Element]:
    """Interval sets list where each range begins and, as elements of their own, where it ends:
    the first address behind it."""
    starts = {_big(fields[0]): fields for fields in found if not _big(fields[2]) & _INTERVAL_END}
    behind = dict(pairwise([*sorted({_big(fields[0]) for fields in found}), 1 << 32]))
    result = []
    for start, fields in starts.items():
        key = inet_ntoa(fields[0])
        last = behind[start] - 1
        if last > start:
            key += f"-{inet_ntoa(last.to_bytes(4, 'big'))}"
        result.append(_element(key, fields))
    return result


def _header(name: str) -> bytes:
    return _INET if name in COUNT_SETS else _NETDEV


def _string(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def _big(value: bytes) -> int:
    return int.from_bytes(value, "big")
