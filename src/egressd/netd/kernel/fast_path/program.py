"""The classifier, for the running kernel."""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from egressd.netd.kernel.ebpf.assembler import (
    FP,
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    Program,
)
from egressd.netd.kernel.fast_path.elements import APART, WAY
from egressd.netd.kernel.fast_path.tracking import Kernel
from egressd.planner.fast_path import APART_MAX

# struct __sk_buff (linux/bpf.h)
_LENGTH, _KIND, _VLAN_PRESENT, _INTERFACE, _DATA, _DATA_END = 0, 4, 20, 40, 76, 80
# Offsets in an Ethernet frame of IPv4 without options, and TCP or UDP.
_ETHERNET_BYTES: Final = 14
_SHORTEST: Final = 46
"""Minimum length of an Ethernet frame in bytes, without its header."""
_IP_LENGTH: Final = 16
_PROTOCOL_OF_FRAME, _VERSION, _FRAGMENT, _TTL, _PROTOCOL, _CHECKSUM = 12, 14, 20, 22, 23, 24
_SOURCE, _DESTINATION, _PORTS, _TCP_FLAGS = 26, 30, 34, 47
_READ: Final = 54
"""Bytes that must be present: up to the end of TCP's header without options."""
_TCP_CHECKSUM, _UDP_CHECKSUM = 50, 40
_IPV4, _NO_OPTIONS, _FRAGMENT_MASK = 0x0800, 0x45, 0x3FFF
_TCP, _UDP = 6, 17
_FIN_SYN_RST: Final = 0x07
_DNS_PORT: Final = 53

# Offsets on the stack, below its end.
_TUPLE: Final = -16  # struct bpf_sock_tuple: addresses, ports
_OPTIONS, _OPTIONS_BYTES = -32, 12  # struct bpf_ct_opts: namespace, error, protocol, direction
_OPTIONS_PROTOCOL, _OPTIONS_DIRECTION = _OPTIONS + 8, _OPTIONS + 9
_NEW: Final = -48  # addresses and ports after translation, as in _TUPLE
_CLIENT, _MARK = -52, -56
_NEXT, _NEXT_BYTES = -80, 20  # struct bpf_redir_neigh: family, address
_STATUS, _FLOW_MARK, _TIMEOUT, _OUT = -88, -92, -96, -100
_TUPLE_BYTES: Final = 12
_ADDRESSES_AND_PORTS: Final = ((4, 0), (4, 4), (2, 8), (2, 10))
"""Size and offset of each in a tuple."""

# enum ip_conntrack_status (linux/netfilter/nf_conntrack_common.h)
_EXPECTED, _SEEN_REPLY, _ASSURED, _CONFIRMED = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_SEQUENCE_ADJUSTED, _DYING, _FIXED_TIMEOUT, _TEMPLATE, _HELPER = (
    1 << 6,
    1 << 9,
    1 << 10,
    1 << 11,
    1 << 13,
)
_UNUSUAL: Final = _EXPECTED | _SEQUENCE_ADJUSTED | _DYING | _FIXED_TIMEOUT | _TEMPLATE | _HELPER

# bpf-helpers(7)
_MAP_LOOK_UP, _L4_CHECKSUM, _TICKS, _REDIRECT = 1, 11, 118, 152
_PSEUDO_HEADER, _UNLESS_ZERO = 1 << 4, 1 << 5
_HAND_ON: Final = -1  # TC_ACT_UNSPEC
_AF_INET: Final = 2


class Maps(NamedTuple):
    """Descriptors of the maps in which the classifier looks up values."""

    clients: int
    ways: int
    counts: int


def assemble(kernel: Kernel, maps: Maps, *, lan_only: bool) -> bytes:
    """Return the program. With `lan_only` it is for an interface by which no packets return: it
    looks up the client first.
    """
    it = Program()
    it.register(R6, "=", R1)
    _look_at_the_packet(it)
    if lan_only:
        _look_up(it, maps.clients, _TUPLE)
        it.go_if(R0, "==", 0, "hand on")
    _find_the_flow(it, kernel)
    _see_that_it_is_usual(it, kernel)
    _see_where_it_goes(it, maps)
    _count(it, maps)
    _translate(it)
    _send_on(it)
    it.label("hand on")
    it.number(R0, "=", _HAND_ON)
    it.exit()
    return it.assembled()


def _look_at_the_packet(it: Program) -> None:
    """Check the packet. R7: the frame; R8: the protocol. On the stack: the flow's tuple."""
    for field in (_KIND, _VLAN_PRESENT):  # to this machine (PACKET_HOST is 0), without a VLAN
        it.load(4, R2, R6, field)
        it.go_if(R2, "!=", 0, "hand on")
    it.load(4, R7, R6, _DATA)
    it.load(4, R3, R6, _DATA_END)
    it.register(R2, "=", R7)
    it.number(R2, "+", _READ)
    it.go_if_register(R2, ">", R3, "hand on")
    it.load(2, R2, R7, _PROTOCOL_OF_FRAME)
    it.go_if(R2, "!=", _network_order(_IPV4), "hand on")
    it.load(1, R2, R7, _VERSION)
    it.go_if(R2, "!=", _NO_OPTIONS, "hand on")
    it.load(2, R2, R7, _FRAGMENT)
    it.go_if(R2, "&", _network_order(_FRAGMENT_MASK), "hand on")
    it.load(1, R2, R7, _TTL)
    it.go_if(R2, "<", 2, "hand on")
    it.load(1, R8, R7, _PROTOCOL)
    it.go_if(R8, "==", _UDP, "known protocol")
    it.go_if(R8, "!=", _TCP, "hand on")
    it.load(1, R2, R7, _TCP_FLAGS)
    it.go_if(R2, "&", _FIN_SYN_RST, "hand on")  # connection tracking has to see these
    it.label("known protocol")
    for size, at in _ADDRESSES_AND_PORTS:
        it.load(size, R2, R7, _SOURCE + at)
        it.store(size, FP, _TUPLE + at, R2)
    it.go_if(R2, "==", _network_order(_DNS_PORT), "hand on")  # each query is metered


def _find_the_flow(it: Program, kernel: Kernel) -> None:
    """Look up the flow. On the stack: fields of its entry, and the tuple after translation. R9: the
    direction.
    """
    it.store_number(4, FP, _OPTIONS, -1)  # BPF_F_CURRENT_NETNS
    it.store_number(4, FP, _OPTIONS + 4, 0)
    it.store_number(4, FP, _OPTIONS + 8, 0)
    it.store(1, FP, _OPTIONS_PROTOCOL, R8)
    it.register(R1, "=", R6)
    _point(it, R2, _TUPLE)
    it.number(R3, "=", _TUPLE_BYTES)
    _point(it, R4, _OPTIONS)
    it.number(R5, "=", _OPTIONS_BYTES)
    it.call_kernel(kernel.look_up, 1 if kernel.module else 0)
    it.go_if(R0, "==", 0, "hand on")
    flow = kernel.flow
    for size, at, to in (
        (8, flow.status, _STATUS),
        (4, flow.mark, _FLOW_MARK),
        (4, flow.timeout, _TIMEOUT),
        (4, flow.source[0], _CLIENT),
    ):
        it.load(size, R2, R0, at)
        it.store(size, FP, to, R2)
    it.load(1, R9, FP, _OPTIONS_DIRECTION)
    # The tuple after translation is the reverse of the other direction's.
    it.go_if(R9, "!=", 0, "answer")
    for other, label in ((1, "answer"), (0, "translated")):
        fields = (flow.destination, flow.source, flow.destination_port, flow.source_port)
        for (size, to), places in zip(_ADDRESSES_AND_PORTS, fields, strict=True):
            it.load(size, R2, R0, places[other])
            it.store(size, FP, _NEW + to, R2)
        if other:
            it.go("translated")
        it.label(label)
    it.register(R1, "=", R0)
    it.call_kernel(kernel.release, 1 if kernel.module else 0)


def _see_that_it_is_usual(it: Program, kernel: Kernel) -> None:
    """Continue only if the flow is an ordinary one and conntrack refreshed the entry's timeout
    within the last second; otherwise use the slow path, which refreshes it.

    An entry that is about to be closed has less time left than any of these.
    """
    it.load(8, R1, FP, _STATUS)
    it.go_if(R1, "&", _UNUSUAL, "hand on")
    # Until a reply was seen, accelerate the original direction only; the first reply must pass
    # through conntrack.
    it.number(R1, "&", _SEEN_REPLY | _CONFIRMED)
    it.go_if(R1, "==", _SEEN_REPLY | _CONFIRMED, "both ways")
    it.go_if(R1, "!=", _CONFIRMED, "hand on")
    it.go_if(R9, "!=", 0, "hand on")
    it.label("both ways")
    it.call(_TICKS)
    it.load(4, R1, FP, _TIMEOUT)
    it.register(R1, "-", R0, bits=32)  # R1: the ticks that it has left
    allowed = kernel.timeouts_s
    within = (
        (_TCP, 0, allowed.established),
        # The time-out while data is unacknowledged, which is the case most of the time.
        (_TCP, 0, allowed.unacknowledged),
        (_UDP, _ASSURED, allowed.stream),
        (_UDP, 0, allowed.udp),
    )
    for number, (protocol, status, timeout_s) in enumerate(within):
        following = f"timeout {number + 1}"
        it.go_if(R8, "!=", protocol, following)
        if status:
            it.load(8, R2, FP, _STATUS)
            it.number(R2, "&", status)
            it.go_if(R2, "==", 0, following)
        it.register(R2, "=", R1)
        it.number(R2, "-", (timeout_s - 1) * kernel.tick_hz, bits=32)
        it.go_if(R2, "<=", kernel.tick_hz, "recent", bits=32)
        it.label(following)
    it.go("hand on")
    it.label("recent")


def _see_where_it_goes(it: Program, maps: Maps) -> None:
    """Look up the egress; afterwards the packet leaves by ``_OUT`` for ``_NEXT``."""
    _look_up(it, maps.clients, _CLIENT)
    it.go_if(R0, "==", 0, "hand on")
    it.load(4, R2, R0, 0)
    it.store(4, FP, _MARK, R2)
    it.load(4, R8, R0, 4)  # the client's LAN
    _look_up(it, maps.ways, _MARK)
    it.go_if(R0, "==", 0, "hand on")
    it.load(4, R1, R0, 0)
    it.load(4, R2, FP, _FLOW_MARK)
    it.go_if_register(R1, "!=", R2, "hand on")
    it.load(4, R3, R6, _INTERFACE)
    it.load(4, R4, R0, 4)  # the way's interface
    it.load(4, R5, FP, _NEW + 4)
    it.store_number(4, FP, _NEXT, _AF_INET)
    for unused in range(8, _NEXT_BYTES, 4):
        it.store_number(4, FP, _NEXT + unused, 0)
    it.go_if(R9, "!=", 0, "to the client")

    it.go_if_register(R3, "!=", R8, "hand on")
    # A flow that began by another WAN has that WAN's address.
    it.load(4, R1, R0, 12)
    it.load(4, R2, FP, _NEW)
    it.go_if_register(R1, "!=", R2, "hand on")
    for number in range(APART_MAX):
        at = WAY.size + number * APART.size
        it.load(4, R1, R0, at + 4)
        it.register(R1, "&", R5)
        it.load(4, R2, R0, at)
        it.go_if_register(R1, "==", R2, "hand on")
    it.store(4, FP, _OUT, R4)
    it.load(4, R1, R0, 8)
    it.store(4, FP, _NEXT + 4, R1)
    it.go("decided")

    it.label("to the client")
    it.go_if_register(R3, "!=", R4, "hand on")
    it.load(4, R1, R0, 12)
    it.load(4, R2, FP, _TUPLE + 4)
    it.go_if_register(R1, "!=", R2, "hand on")
    it.store(4, FP, _OUT, R8)
    it.store(4, FP, _NEXT + 4, R5)
    it.label("decided")


def _count(it: Program, maps: Maps) -> None:
    """Count bytes of IP, and packets; in the order of `COUNT`."""
    _look_up(it, maps.counts, _CLIENT)
    it.go_if(R0, "==", 0, "hand on")
    it.load(4, R1, R6, _LENGTH)
    it.number(R1, "-", _ETHERNET_BYTES)
    # The shortest frames are padded: the length of the IP packet counts.
    it.go_if(R1, ">", _SHORTEST, "as long as its frame")
    it.load(1, R1, R7, _IP_LENGTH)
    it.number(R1, "<<", 8)
    it.load(1, R2, R7, _IP_LENGTH + 1)
    it.register(R1, "|", R2)
    it.go_if(R1, ">", _SHORTEST, "hand on")
    it.label("as long as its frame")
    it.number(R2, "=", 1)
    it.go_if(R9, "==", 0, "sent")
    it.number(R0, "+", 16)
    it.label("sent")
    it.add_to(R0, 0, R1)
    it.add_to(R0, 8, R2)


def _translate(it: Program) -> None:
    """Translate addresses, ports and TTL, and update the checksums (RFC 1624)."""
    it.load(1, R8, R7, _PROTOCOL)
    it.load(2, R1, R7, _CHECKSUM)
    it.number(R1, "^", 0xFFFF)
    it.load(2, R2, R7, _TTL)  # with the protocol beside it
    it.load(1, R3, R7, _TTL)
    it.number(R3, "-", 1)
    it.store(1, R7, _TTL, R3)
    it.load(2, R3, R7, _TTL)
    _add_difference(it, R2, R3)
    for at in (0, 2, 4, 6):
        it.load(2, R2, FP, _TUPLE + at)
        it.load(2, R3, FP, _NEW + at)
        _add_difference(it, R2, R3)
    for _ in range(2):
        it.register(R2, "=", R1)
        it.number(R2, ">>", 16)
        it.number(R1, "&", 0xFFFF)
        it.register(R1, "+", R2)
    it.number(R1, "^", 0xFFFF)
    it.store(2, R7, _CHECKSUM, R1)
    for size, at in _ADDRESSES_AND_PORTS:
        it.load(size, R1, FP, _NEW + at)
        it.store(size, R7, _SOURCE + at, R1)

    # R7: the offset of TCP's or UDP's checksum; R9: the flags for its update. The frame is not
    # accessed any more.
    it.number(R7, "=", _TCP_CHECKSUM)
    it.number(R9, "=", 0)
    it.go_if(R8, "==", _TCP, "checksum")
    it.number(R7, "=", _UDP_CHECKSUM)
    it.number(R9, "=", _UNLESS_ZERO)
    it.label("checksum")
    for size, at in _ADDRESSES_AND_PORTS:
        same = f"same at {at}"
        it.load(size, R3, FP, _TUPLE + at)
        it.load(size, R4, FP, _NEW + at)
        it.go_if_register(R3, "==", R4, same)
        it.register(R1, "=", R6)
        it.register(R2, "=", R7)
        it.register(R5, "=", R9)
        it.number(R5, "|", size | (_PSEUDO_HEADER if size == 4 else 0))
        it.call(_L4_CHECKSUM)
        it.label(same)


def _add_difference(it: Program, old: int, new: int) -> None:
    """Emit R1 += ~old + new, of 16 bits."""
    it.number(old, "^", 0xFFFF)
    it.register(R1, "+", old)
    it.register(R1, "+", new)


def _send_on(it: Program) -> None:
    """Send the packet to the neighbour's link address, which the kernel knows or resolves."""
    it.load(4, R1, FP, _OUT)
    _point(it, R2, _NEXT)
    it.number(R3, "=", _NEXT_BYTES)
    it.number(R4, "=", 0)
    it.call(_REDIRECT)
    it.exit()


def _look_up(it: Program, descriptor: int, key: int) -> None:
    """Set R0 to the address of the value for a key on the stack, or 0."""
    it.set_map(R1, descriptor)
    _point(it, R2, key)
    it.call(_MAP_LOOK_UP)


def _point(it: Program, register: int, at: int) -> None:
    it.register(register, "=", FP)
    it.number(register, "+", at)


def _network_order(number: int) -> int:
    """Return a number of 16 bits as it is read from a packet."""
    return int.from_bytes(number.to_bytes(2, "big"), sys.byteorder)
