"""The classifier, for the running kernel."""

from __future__ import annotations

import sys
from enum import Enum
from socket import AF_INET, IPPROTO_TCP, IPPROTO_UDP
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
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
    Register,
)
from egressd.netd.kernel.fast_path.elements import APART, EGRESS, PLACE
from egressd.netd.kernel.fast_path.tracking import Kernel
from egressd.planner.fast_path import APART_MAX

# struct __sk_buff (linux/bpf.h)
_LEN, _PKT_TYPE, _PROTOCOL_OF_SKB, _VLAN_PRESENT, _IFINDEX = 0, 4, 16, 20, 40
_DATA, _DATA_END, _GSO_SIZE = 76, 80, 176
# Offsets in an Ethernet frame of IPv4 without options, and TCP or UDP.
_SHORTEST: Final = 46
"""Minimum length of an Ethernet frame in bytes, without its header. Shorter ones are padded."""
_LEAST: Final = 28
"""Length of IP's and UDP's headers in bytes."""
# Offsets of the headers' fields in the frame, and values of them.
_FRAME_SOURCE: Final = 6
_IP_LENGTH: Final = 16
_VERSION, _FRAGMENT, _TTL, _PROTOCOL, _CHECKSUM = 14, 20, 22, 23, 24
_SOURCE, _DESTINATION, _PORTS, _TCP_FLAGS = 26, 30, 34, 47
_READ: Final = 54
"""Bytes that must be present: up to the end of TCP's header without options."""
_TCP_CHECKSUM, _UDP_CHECKSUM = 50, 40
_NO_OPTIONS, _FRAGMENT_MASK = 0x45, 0x3FFF
_FIN_SYN_RST: Final = 0x07  # bits of the TCP flags
_DNS_PORT: Final = 53

# Offsets on the stack, below its end.
_TUPLE: Final = -16  # struct bpf_sock_tuple: addresses, ports
_OPTIONS, _OPTIONS_BYTES = -32, 12  # struct bpf_ct_opts: namespace, error, protocol, direction
_OPTIONS_PROTOCOL, _OPTIONS_DIRECTION = _OPTIONS + 8, _OPTIONS + 9
_NEW: Final = -48  # addresses and ports after translation, as in _TUPLE
_CLIENT: Final = -52
_IP_BYTES: Final = -56  # the length of the packet, without padding
_CHECKED_BYTES: Final = -60  # the length that is compared with the MTU
_NEXT, _NEXT_BYTES = -80, 20  # struct bpf_redir_neigh: family, address
_STATUS, _TIMEOUT, _OUT = -88, -96, -100
_LEASE_KEY: Final = -104
_WAY: Final = -112  # the marks of the client and of the flow, as in WAY
_MARK, _FLOW_MARK = _WAY, _WAY + 4
_RULE: Final = -120  # the number of the client's CIDR rule; 0 if it has a rule of its own
_PREFIX: Final = -128  # the key of the map of networks, as in PREFIX
_TUPLE_BYTES: Final = 12
_ADDRESSES_AND_PORTS: Final = ((4, 0), (4, 4), (2, 8), (2, 10))
"""Size and offset of each in a tuple."""

_UNUSUAL: Final = (
    uapi.IPS_EXPECTED
    | uapi.IPS_SEQ_ADJUST
    | uapi.IPS_DYING
    | uapi.IPS_FIXED_TIMEOUT
    | uapi.IPS_TEMPLATE
    | uapi.IPS_HELPER
)
"""Flags of flows that need connection tracking for every packet."""


class Entrance(Enum):
    """The interfaces that packets come in by; each kind has a program of its own."""

    LAN = "a LAN by which no answers come: it looks up the client first"
    FRAMES = "an interface whose packets have an Ethernet header"
    NO_FRAMES = "one whose packets begin with the IP header: only answers come in by it"


class MapDescriptors(NamedTuple):
    """Descriptors of the maps in which the classifier looks up values."""

    clients: int
    networks: int
    egresses: int
    counts: int
    rule_counts: int
    lease: int | None = None
    """The map of the lease, if known flows need one."""


def assemble(kernel: Kernel, maps: MapDescriptors, entrance: Entrance) -> bytes:
    """Return the program for one kind of interface."""
    has_frames = entrance is not Entrance.NO_FRAMES
    it = Program()
    it.mov(R6, R1)
    _look_at_the_packet(it, has_frames=has_frames)
    if entrance is Entrance.LAN:
        _look_up_client(it, maps, _TUPLE, "is a client")
        it.ldx(4, R1, R0, 0)
        it.jeq(R1, 0, "slow path")
    _find_the_flow(it, kernel)
    _see_that_it_is_usual(it, kernel)
    _measure(it, has_frames=has_frames)
    _see_where_it_goes(it, maps, has_frames=has_frames)
    if maps.lease is not None:
        _see_that_the_lease_runs(it, maps.lease)
    _count(it, maps)
    _translate(it, has_frames=has_frames)
    _send_on(it, has_frames=has_frames)
    it.label("slow path")
    it.mov(R0, uapi.TC_ACT_UNSPEC)
    it.exit()
    return it.assembled()


def _look_at_the_packet(it: Program, *, has_frames: bool) -> None:
    """Check the packet. R7: the frame, or where it would begin; R8: the protocol. On the stack: the
    flow's tuple.
    """
    for field in (_PKT_TYPE, _VLAN_PRESENT):  # to this machine (PACKET_HOST is 0), without a VLAN
        it.ldx(4, R2, R6, field)
        it.jne(R2, 0, "slow path")
    it.ldx(4, R2, R6, _PROTOCOL_OF_SKB)
    it.jne(R2, _network_order(uapi.ETH_P_IP), "slow path")
    it.ldx(4, R7, R6, _DATA)
    it.ldx(4, R3, R6, _DATA_END)
    if not has_frames:
        it.sub(R7, uapi.ETH_HLEN)
    it.mov(R2, R7)
    it.add(R2, _READ)
    it.jgt(R2, R3, "slow path")  # the verifier demands this check of what is read below
    it.ldx(1, R2, R7, _VERSION)
    it.jne(R2, _NO_OPTIONS, "slow path")
    it.ldx(2, R2, R7, _FRAGMENT)
    it.jset(R2, _network_order(_FRAGMENT_MASK), "slow path")  # only the first one has ports
    it.ldx(1, R2, R7, _TTL)
    it.jlt(R2, 2, "slow path")  # the kernel answers with an ICMP error
    it.ldx(1, R8, R7, _PROTOCOL)
    it.jeq(R8, IPPROTO_UDP, "known protocol")
    it.jne(R8, IPPROTO_TCP, "slow path")
    it.ldx(1, R2, R7, _TCP_FLAGS)
    it.jset(R2, _FIN_SYN_RST, "slow path")  # these change the state that conntrack keeps
    it.label("known protocol")
    for size, at in _ADDRESSES_AND_PORTS:
        it.ldx(size, R2, R7, _SOURCE + at)
        it.stx(size, FP, _TUPLE + at, R2)
    it.jeq(R2, _network_order(_DNS_PORT), "slow path")  # each query is metered


def _find_the_flow(it: Program, kernel: Kernel) -> None:
    """Look up the flow. On the stack: fields of its entry, and the tuple after translation. R9: the
    direction.
    """
    it.st(4, FP, _OPTIONS, uapi.BPF_F_CURRENT_NETNS)
    it.st(4, FP, _OPTIONS + 4, 0)
    it.st(4, FP, _OPTIONS + 8, 0)
    it.stx(1, FP, _OPTIONS_PROTOCOL, R8)
    it.mov(R1, R6)
    _point(it, R2, _TUPLE)
    it.mov(R3, _TUPLE_BYTES)
    _point(it, R4, _OPTIONS)
    it.mov(R5, _OPTIONS_BYTES)
    it.kfunc(kernel.look_up, 1 if kernel.module else 0)
    it.jeq(R0, 0, "slow path")
    flow = kernel.flow
    for size, at, to in (
        (8, flow.status, _STATUS),
        (4, flow.mark, _FLOW_MARK),
        (4, flow.timeout, _TIMEOUT),
        (4, flow.source[0], _CLIENT),
    ):
        it.ldx(size, R2, R0, at)
        it.stx(size, FP, to, R2)
    it.ldx(1, R9, FP, _OPTIONS_DIRECTION)
    # The tuple after translation is the reverse of the other direction's.
    it.jne(R9, 0, "answer")
    for other, label in ((1, "answer"), (0, "translated")):
        fields = (flow.destination, flow.source, flow.destination_port, flow.source_port)
        for (size, to), places in zip(_ADDRESSES_AND_PORTS, fields, strict=True):
            it.ldx(size, R2, R0, places[other])
            it.stx(size, FP, _NEW + to, R2)
        if other:
            it.ja("translated")
        it.label(label)
    it.mov(R1, R0)
    it.kfunc(kernel.release, 1 if kernel.module else 0)


def _see_that_it_is_usual(it: Program, kernel: Kernel) -> None:
    """Continue only if the flow is an ordinary one and conntrack refreshed the entry's timeout
    within the last second; otherwise use the slow path, which refreshes it.

    An entry that is about to be closed has less time left than any of these.
    """
    it.ldx(8, R1, FP, _STATUS)
    it.jset(R1, _UNUSUAL, "slow path")
    # Until a reply was seen, accelerate the original direction only; the first reply must pass
    # through conntrack.
    it.and_(R1, uapi.IPS_SEEN_REPLY | uapi.IPS_CONFIRMED)
    it.jeq(R1, uapi.IPS_SEEN_REPLY | uapi.IPS_CONFIRMED, "both ways")
    it.jne(R1, uapi.IPS_CONFIRMED, "slow path")
    it.jne(R9, 0, "slow path")
    it.label("both ways")
    it.call(uapi.BPF_FUNC_jiffies64)
    it.ldx(4, R1, FP, _TIMEOUT)
    it.sub(R1, R0, bits=32)  # R1: the ticks that it has left
    allowed = kernel.timeouts_s
    within = (
        (IPPROTO_TCP, 0, allowed.established),
        # The time-out while data is unacknowledged, which is the case most of the time.
        (IPPROTO_TCP, 0, allowed.unacknowledged),
        (IPPROTO_UDP, uapi.IPS_ASSURED, allowed.stream),
        (IPPROTO_UDP, 0, allowed.udp),
    )
    for number, (protocol, status, timeout_s) in enumerate(within):
        following = f"timeout {number + 1}"
        it.jne(R8, protocol, following)
        if status:
            it.ldx(8, R2, FP, _STATUS)
            it.and_(R2, status)
            it.jeq(R2, 0, following)
        it.mov(R2, R1)
        it.sub(R2, (timeout_s - 1) * kernel.tick_hz, bits=32)
        it.jle(R2, kernel.tick_hz, "recent", bits=32)
        it.label(following)
    it.ja("slow path")
    it.label("recent")


def _measure(it: Program, *, has_frames: bool) -> None:
    """Put the length of the IP packet on the stack. Continue only if its frame has just that
    length, or is one of Ethernet's shortest: the kernel trims others, and drops what was cut off.
    """
    it.ldx(4, R1, R6, _LEN)
    if has_frames:
        it.sub(R1, uapi.ETH_HLEN)
    it.ldx(4, R2, R6, _GSO_SIZE)
    it.jne(R2, 0, "measured")  # packets that were merged have no padding
    it.ldx(1, R2, R7, _IP_LENGTH)
    it.lsh(R2, 8)
    it.ldx(1, R3, R7, _IP_LENGTH + 1)
    it.or_(R2, R3)
    it.jeq(R1, R2, "measured")
    if has_frames:
        it.jgt(R1, _SHORTEST, "slow path")
        it.jgt(R2, R1, "slow path")
        it.jlt(R2, _LEAST, "slow path")
        it.mov(R1, R2)
    else:
        it.ja("slow path")
    it.label("measured")
    it.stx(4, FP, _IP_BYTES, R1)


def _see_where_it_goes(it: Program, maps: MapDescriptors, *, has_frames: bool) -> None:
    """Look up the egress; afterwards the packet leaves by ``_OUT`` for ``_NEXT``."""
    _look_up_client(it, maps, _CLIENT, "place")
    it.ldx(4, R2, R0, 0)
    it.stx(4, FP, _MARK, R2)
    it.ldx(4, R8, R0, 4)  # the client's LAN
    if has_frames:
        _see_that_it_is_the_device(it)
    else:
        it.jeq(R9, 0, "slow path")
    # The connmark check: a flow that began by an egress which its client has no more is decided by
    # the ruleset.
    _look_up(it, maps.egresses, _WAY)
    it.jeq(R0, 0, "slow path")
    it.ldx(4, R3, R6, _IFINDEX)
    it.ldx(4, R4, R0, 0)  # the egress's interface
    it.ldx(4, R5, FP, _NEW + 4)
    it.st(4, FP, _NEXT, AF_INET)
    for unused in range(8, _NEXT_BYTES, 4):
        it.st(4, FP, _NEXT + unused, 0)
    it.jne(R9, 0, "to the client")

    it.jne(R3, R8, "slow path")  # it did not come in by the client's LAN
    # A flow that began by another WAN has that WAN's address.
    it.ldx(4, R1, R0, 8)
    it.ldx(4, R2, FP, _NEW)
    it.jne(R1, R2, "slow path")
    # Destinations that the gateway does not lead to have routes of their own.
    for number in range(APART_MAX):
        at = EGRESS.size + number * APART.size
        it.ldx(4, R1, R0, at + 4)
        it.and_(R1, R5)
        it.ldx(4, R2, R0, at)
        it.jeq(R1, R2, "slow path")
    it.stx(4, FP, _OUT, R4)
    it.ldx(4, R1, R0, 4)
    it.stx(4, FP, _NEXT + 4, R1)
    it.ja("decided")

    it.label("to the client")
    it.jne(R3, R4, "slow path")  # it did not come in by the client's egress
    it.ldx(4, R1, R0, 8)
    it.ldx(4, R2, FP, _TUPLE + 4)
    it.jne(R1, R2, "slow path")
    it.stx(4, FP, _OUT, R8)
    it.stx(4, FP, _NEXT + 4, R5)
    it.label("decided")
    _see_that_it_fits(it)


def _see_that_it_fits(it: Program) -> None:
    """Continue only if the packet is not too large for the interface that it leaves by: the kernel
    answers with an ICMP error, or fragments it. R0: the egress.
    """
    it.ldx(4, R1, R0, EGRESS.size - 4)
    it.jeq(R1, 0, "it fits")
    # Of packets that were merged each one counts; the helper takes no length then.
    it.mov(R5, uapi.BPF_MTU_CHK_SEGS)
    it.st(4, FP, _CHECKED_BYTES, 0)
    it.ldx(4, R1, R6, _GSO_SIZE)
    it.jne(R1, 0, "merged")
    it.mov(R5, 0)
    it.ldx(4, R1, FP, _IP_BYTES)
    it.stx(4, FP, _CHECKED_BYTES, R1)
    it.label("merged")
    it.mov(R1, R6)
    it.ldx(4, R2, FP, _OUT)
    _point(it, R3, _CHECKED_BYTES)
    it.mov(R4, 0)
    it.call(uapi.BPF_FUNC_check_mtu)
    it.jne(R0, 0, "slow path")
    it.label("it fits")


def _look_up_client(it: Program, maps: MapDescriptors, address: int, found: str) -> None:
    """Set R0 to the place of the client whose address is on the stack; on the stack: its rule's
    number. `found` is a label of its own.

    A client has at most one place: by its own rule, else by the CIDR rule around it.
    """
    it.st(8, FP, _RULE, 0)
    _look_up(it, maps.clients, address)
    it.jne(R0, 0, found)
    it.st(4, FP, _PREFIX, 32)
    it.ldx(4, R1, FP, address)
    it.stx(4, FP, _PREFIX + 4, R1)
    _look_up(it, maps.networks, _PREFIX)
    it.jeq(R0, 0, "slow path")
    it.ldx(8, R1, R0, PLACE.size)
    it.stx(8, FP, _RULE, R1)
    it.label(found)


def _see_that_it_is_the_device(it: Program) -> None:
    """Continue only if a packet from a client whose address belongs to one device comes from that
    one. R0: the client's place.
    """
    it.jne(R9, 0, "any device")
    it.ldx(8, R1, R0, 8)  # with two zeros behind it
    it.jeq(R1, 0, "any device")
    for size, at in ((4, 0), (2, 4)):
        it.ldx(size, R1, R0, 8 + at)
        it.ldx(size, R2, R7, _FRAME_SOURCE + at)
        it.jne(R1, R2, "slow path")
    it.label("any device")


def _see_that_the_lease_runs(it: Program, lease: int) -> None:
    """Continue only before the end of the lease; after it the ruleset drops the packet."""
    it.st(4, FP, _LEASE_KEY, 0)
    _look_up(it, lease, _LEASE_KEY)
    it.jeq(R0, 0, "slow path")
    it.ldx(8, R8, R0, 0)
    it.call(uapi.BPF_FUNC_ktime_get_boot_ns)
    it.jle(R8, R0, "slow path")


def _count(it: Program, maps: MapDescriptors) -> None:
    """Count bytes of IP, and packets; in the order of `COUNT`."""
    it.ldx(8, R1, FP, _RULE)
    it.jne(R1, 0, "count of a rule")
    _look_up(it, maps.counts, _CLIENT)
    it.ja("count")
    it.label("count of a rule")
    _look_up(it, maps.rule_counts, _RULE)
    it.label("count")
    it.jeq(R0, 0, "slow path")
    it.ldx(4, R1, FP, _IP_BYTES)
    it.mov(R2, 1)
    it.jeq(R9, 0, "sent")
    it.add(R0, 16)
    it.label("sent")
    it.xadd(R0, 0, R1)
    it.xadd(R0, 8, R2)


def _translate(it: Program, *, has_frames: bool) -> None:
    """Translate addresses, ports and TTL, and update the checksums (RFC 1624)."""
    begin = 0 if has_frames else uapi.ETH_HLEN
    it.ldx(1, R8, R7, _PROTOCOL)
    it.ldx(2, R1, R7, _CHECKSUM)
    it.xor(R1, 0xFFFF)
    it.ldx(2, R2, R7, _TTL)  # with the protocol beside it
    it.ldx(1, R3, R7, _TTL)
    it.sub(R3, 1)
    it.stx(1, R7, _TTL, R3)
    it.ldx(2, R3, R7, _TTL)
    _add_difference(it, R2, R3)
    for at in (0, 2, 4, 6):
        it.ldx(2, R2, FP, _TUPLE + at)
        it.ldx(2, R3, FP, _NEW + at)
        _add_difference(it, R2, R3)
    for _ in range(2):  # add the carry, which may carry once more
        it.mov(R2, R1)
        it.rsh(R2, 16)
        it.and_(R1, 0xFFFF)
        it.add(R1, R2)
    it.xor(R1, 0xFFFF)
    it.stx(2, R7, _CHECKSUM, R1)
    for size, at in _ADDRESSES_AND_PORTS:
        it.ldx(size, R1, FP, _NEW + at)
        it.stx(size, R7, _SOURCE + at, R1)

    # R7: the offset of TCP's or UDP's checksum; R9: the flags for its update. The frame is not
    # accessed any more.
    it.mov(R7, _TCP_CHECKSUM - begin)
    it.mov(R9, 0)
    it.jeq(R8, IPPROTO_TCP, "checksum")
    it.mov(R7, _UDP_CHECKSUM - begin)
    it.mov(R9, uapi.BPF_F_MARK_MANGLED_0)  # a checksum of 0 stands for none (RFC 768), and stays
    it.label("checksum")
    for size, at in _ADDRESSES_AND_PORTS:
        same = f"same at {at}"
        it.ldx(size, R3, FP, _TUPLE + at)
        it.ldx(size, R4, FP, _NEW + at)
        it.jeq(R3, R4, same)
        it.mov(R1, R6)
        it.mov(R2, R7)
        it.mov(R5, R9)
        it.or_(R5, size | (uapi.BPF_F_PSEUDO_HDR if size == 4 else 0))
        it.call(uapi.BPF_FUNC_l4_csum_replace)
        it.label(same)


def _add_difference(it: Program, old: Register, new: Register) -> None:
    """Emit R1 += ~old + new, of 16 bits."""
    it.xor(old, 0xFFFF)
    it.add(R1, old)
    it.add(R1, new)


def _send_on(it: Program, *, has_frames: bool) -> None:
    """Send the packet to the neighbour's link address, which the kernel knows or resolves. An
    interface without frames has no neighbours: the kernel sends the packet without its header.
    """
    if has_frames:
        # Padding must not go on: it is no part of the packet, and a tunnel would carry it.
        it.ldx(4, R1, R6, _LEN)
        it.ldx(4, R2, FP, _IP_BYTES)
        it.add(R2, uapi.ETH_HLEN)
        it.jeq(R1, R2, "ready")
    else:
        # bpf_redirect_neigh drops a packet without a header, which it replaces (net/core/filter.c).
        it.mov(R2, uapi.ETH_HLEN)
    it.mov(R1, R6)
    it.mov(R3, 0)
    it.call(uapi.BPF_FUNC_skb_change_tail if has_frames else uapi.BPF_FUNC_skb_change_head)
    it.jeq(R0, 0, "ready")
    it.mov(R0, uapi.TC_ACT_SHOT)  # no memory is left
    it.exit()
    it.label("ready")
    it.ldx(4, R1, FP, _OUT)
    _point(it, R2, _NEXT)
    it.mov(R3, _NEXT_BYTES)
    it.mov(R4, 0)
    it.call(uapi.BPF_FUNC_redirect_neigh)
    it.exit()


def _look_up(it: Program, descriptor: int, key: int) -> None:
    """Set R0 to the address of the value for a key on the stack, or 0."""
    it.ld_map_fd(R1, descriptor)
    _point(it, R2, key)
    it.call(uapi.BPF_FUNC_map_lookup_elem)


def _point(it: Program, register: Register, at: int) -> None:
    """Emit register = an address on the stack."""
    it.mov(register, FP)
    it.add(register, at)


def _network_order(number: int) -> int:
    """Return a number of 16 bits as it is read from a packet."""
    return int.from_bytes(number.to_bytes(2, "big"), sys.byteorder)
