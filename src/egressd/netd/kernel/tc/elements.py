"""Reads the sets of the speed limits' table, and the sets that count the traffic of rules.

Through nfnetlink (linux/netfilter/nf_tables.h), whose numbers are big endian.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from itertools import pairwise
from socket import inet_aton, inet_ntoa
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import (
    NFGENMSG,
    NetlinkError,
    NetlinkSocket,
    attributes,
    number,
    text,
)
from egressd.netd.kernel.set_elements import (
    INET,
    NETDEV,
    SUBSYSTEM,
    TABLE,
    RawElement,
    dump,
    get,
)
from egressd.netd.kernel.tc.messages import Count
from egressd.planner.registry import NFT_TABLE
from egressd.planner.shaping import COUNT_SETS, RANGE_SETS

_GET_CHAIN: Final = SUBSYSTEM | uapi.NFT_MSG_GETCHAIN
_GET_RULE: Final = SUBSYSTEM | uapi.NFT_MSG_GETRULE


class Element(NamedTuple):
    """An element, with its key in nft's notation: an address, or ``first-last``."""

    key: str
    value: int
    """Handle of the class that a map leads to; 0 in a set."""
    passed: Count
    """Traffic that it has matched, in bytes of IP packets; 0 if nothing is counted."""


def read(kernel: NetlinkSocket, name: str) -> list[Element]:
    """Return the elements of one of `ADDRESS_SETS` or `COUNT_SETS`; none if it doesn't exist.

    Raises OSError.
    """
    found = list(dump(kernel, _family(name), name))
    if name in RANGE_SETS:
        return _ranges(found)
    return [_element(inet_ntoa(each.key), each) for each in found]


def read_devices(kernel: NetlinkSocket, name: str) -> dict[int, int]:
    """Return the elements of a map of devices: handle -> interface index. Raises OSError."""
    return {number(each.key): number(each.value) for each in dump(kernel, NETDEV, name)}


def count(
    kernel: NetlinkSocket, name: str, addresses: Iterable[str]
) -> Iterator[tuple[str, Count]]:
    """Yield the counts of the elements of these addresses, for elements that exist.

    Raises OSError.
    """
    for address in addresses:
        if (found := get(kernel, _family(name), name, inet_aton(address))) is not None:
            yield address, _element(address, found).passed


def base_chains() -> list[str]:
    """Return the names of the table's chains that hook an interface, or hooked one that is gone."""
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        chains = [attributes(body, NFGENMSG.size) for body in kernel.dump(_GET_CHAIN, NETDEV)]
    ours = [each for each in chains if text(each[uapi.NFTA_CHAIN_TABLE]) == NFT_TABLE]
    return [text(each[uapi.NFTA_CHAIN_NAME]) for each in ours if uapi.NFTA_CHAIN_HOOK in each]


def rules() -> list[bytes]:
    """Return the table's rules as the kernel writes them: equal answers mean equal rules."""
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as kernel:
        try:
            # The header is skipped: it contains the number of the last transaction of any program.
            return [body[NFGENMSG.size :] for body in kernel.dump(_GET_RULE, NETDEV + TABLE)]
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            return []


def _element(key: str, found: RawElement) -> Element:
    return Element(key, number(found.value), Count(_big(found.size), _big(found.packets)))


def _ranges(found: list[RawElement]) -> list[Element]:
    """Return elements with their ranges. Interval sets list the start of each range and, as an
    element of its own, its end: the first address behind it.
    """
    begins = [each for each in found if not _big(each.flags) & uapi.NFT_SET_ELEM_INTERVAL_END]
    starts = {_big(each.key): each for each in begins}
    behind = dict(pairwise([*sorted({_big(each.key) for each in found}), 1 << 32]))
    result = []
    for start, each in starts.items():
        key = inet_ntoa(each.key)
        last = behind[start] - 1
        if last > start:
            key += f"-{inet_ntoa(last.to_bytes(4, 'big'))}"
        result.append(_element(key, each))
    return result


def _family(name: str) -> bytes:
    return INET if name in COUNT_SETS else NETDEV


def _big(value: bytes) -> int:
    return int.from_bytes(value, "big")
