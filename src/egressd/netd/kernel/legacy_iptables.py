"""Rules that older programs set through iptables' own kernel interface, which nftables does not
show: ``iptables-legacy``, and firewalls that come with it.

The structures are those of linux/netfilter_ipv4/ip_tables.h and linux/netfilter/x_tables.h.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

import msgspec

from egressd.netd.kernel import uapi

_NAMES: Final = Path("/proc/self/net/ip_tables_names")
"""The tables that exist. A request for another table would make the kernel create it."""
_IPT_SO_GET_INFO, _IPT_SO_GET_ENTRIES = 64, 65
_FILTER: Final = b"filter"
_INFO: Final = struct.Struct("=32sI5I5III")
"""ipt_getinfo: name, valid hooks, entry of each hook, policy of each hook, number, size."""
_HEAD: Final = struct.Struct("=32sI4x")
"""ipt_get_entries: name, size."""
_ENTRY: Final = struct.Struct("=4s4s4s4s16s16s32xHBBIHHI16x")
"""ipt_entry: source, destination, their masks, interfaces, masks of these, protocol, flags and
inverted ones; nfcache, offsets of target and next entry, comefrom, counters."""
_TARGET_BYTES: Final = 32
"""xt_entry_target, ahead of a standard target's verdict."""
_DROP: Final = -1
"""-NF_DROP - 1."""
_CHAINS: Final = {
    uapi.NF_INET_LOCAL_IN: "INPUT",
    uapi.NF_INET_FORWARD: "FORWARD",
    uapi.NF_INET_LOCAL_OUT: "OUTPUT",
}
"""The hooks of table filter."""


class IptablesFilter(msgspec.Struct, frozen=True):
    """The part of the table ``filter`` that may block clients."""

    dropping: tuple[str, ...]
    """Chains that drop packets which no rule matches."""
    interfaces: frozenset[str]
    """Interfaces that rules name."""
    networks: frozenset[IPv4Network]
    """Networks that rules name."""


def read() -> IptablesFilter | None:
    """Return the table, or None if there is none. Raises OSError."""
    try:
        names = _NAMES.read_bytes().split()
    except FileNotFoundError:
        return None
    if _FILTER not in names:
        return None
    info = _INFO.unpack(_ask(_IPT_SO_GET_INFO, _INFO.pack(_FILTER, *([0] * 13)), _INFO.size))
    policies, size = info[7:12], info[13]
    head = _HEAD.pack(_FILTER, size)
    table = _ask(_IPT_SO_GET_ENTRIES, head, _HEAD.size + size)[_HEAD.size :]
    entries = list(_entries(table))
    return IptablesFilter(
        dropping=tuple(name for hook, name in _CHAINS.items() if _drops(table, policies[hook])),
        interfaces=frozenset(name for entry in entries for name in entry[0]),
        networks=frozenset(network for entry in entries for network in entry[1]),
    )


def _drops(table: bytes, at: int) -> bool:
    target = _ENTRY.unpack_from(table, at)[10]
    (verdict,) = struct.unpack_from("=i", table, at + target + _TARGET_BYTES)
    return bool(verdict == _DROP)


def _entries(table: bytes) -> Iterator[tuple[list[str], list[IPv4Network]]]:
    """Yield the interfaces and networks of each rule."""
    at = 0
    while at < len(table):
        source, destination, source_mask, mask, into, out, *rest = _ENTRY.unpack_from(table, at)
        names = [name.rstrip(b"\0").decode(errors="replace") for name in (into, out)]
        pairs = ((source, source_mask), (destination, mask))
        networks = [
            IPv4Network((address, int.from_bytes(bits).bit_count()))
            for address, bits in pairs
            if any(bits)
        ]
        yield [name for name in names if name], networks
        at += rest[5]


def _ask(option: int, given: bytes, size: int) -> bytes:
    """Return the contents of a getsockopt(2) buffer of `size` bytes that began as `given`."""
    buffer = ctypes.create_string_buffer(given, size)
    length = ctypes.c_uint32(size)
    getsockopt = ctypes.CDLL(None, use_errno=True).getsockopt
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as asked:
        if getsockopt(asked.fileno(), socket.IPPROTO_IP, option, buffer, ctypes.byref(length)):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    return buffer.raw
