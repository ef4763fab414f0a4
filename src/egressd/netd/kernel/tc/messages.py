"""Queueing disciplines and HTB classes as rtnetlink messages.

The formats are those of linux/pkt_sched.h, linux/rtnetlink.h and linux/gen_stats.h. A *handle* is a
32-bit number, written ``major:minor``: a qdisc's has the minor number 0, and its classes share the
major number.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.attribute_picker import AttributePicker
from egressd.netd.kernel.netlink import attribute, attributes, nest, number, text, u32
from egressd.planner.shaping import FRAME_BYTES, Shape

_HEADER = struct.Struct("=BxxxiIII")
"""tcmsg: family, interface index, handle, parent, info."""

_HTB_GLOBAL = struct.Struct("=5I")
"""tc_htb_glob: version, rate to quantum, default class, debugging, packets sent directly."""
_HTB_OPTIONS = struct.Struct("=BBHhHI BBHhHI 5I")
"""tc_htb_opt: rate and ceiling, each a tc_ratespec (cell size, link layer, overhead, cell
alignment, least packet, bytes per second; with TC_LINKLAYER_ETHERNET the kernel computes times
itself and takes no table of them); then buffer and ceiling's buffer in ticks, quantum,
level, priority."""

_TBF_OPTIONS = struct.Struct("=BBHhHI BBHhHI 3I")
"""tc_tbf_qopt: rate and peak rate as above; limit, buffer and peak's buffer."""
_SPLITTER_RATE: Final = 1 << 40
"""Bytes per second: no packet takes longer than two nanoseconds."""
_NS_PER_TICK: Final = 64  # PSCHED_SHIFT, include/net/pkt_sched.h

_BASIC_STATISTICS = struct.Struct("=QI")

FQ_CODEL: Final = "fq_codel"
_PFIFO, _BFIFO = "pfifo", "bfifo"
_FQ_FLOWS_NUMBER: Final = 64
"""Flows that a rule's queue separates: 4 KiB of memory. The kernel's own default of 1,024 takes 70
KiB, and cake 1 MiB: with 10,000 rules, both ways, that is gigabytes."""
_MEMORY_A_BYTE: Final = 2
"""Bytes of memory that fq_codel may hold for each that may wait: it counts buffers as a whole."""
_FQ_TARGET_US, _FQ_INTERVAL_US = 5_000, 100_000
"""The defaults of fq_codel (tc-fq_codel(8))."""


class QdiscMessage(NamedTuple):
    """A queueing discipline as the kernel lists it."""

    ifindex: int
    """Index of the interface that it is on."""
    handle: int
    parent: int
    kind: str
    limit: int
    """Packets that a leaf of ours may hold, or bytes, if it is a bfifo; 0 for any other."""


class Class(NamedTuple):
    """An HTB class: the kernel's form of a `Shape`."""

    rate: int
    """Bytes per second."""
    buffer: int
    """Burst, in ticks of 64 ns at that rate."""


class Count(NamedTuple):
    """Traffic that has passed."""

    bytes: int
    """Bytes of IP packets."""
    packets: int

    def plus(self, other: Count) -> Count:
        """Return the sum of this and `other`."""
        return Count(self.bytes + other.bytes, self.packets + other.packets)

    def minus(self, other: Count) -> Count:
        """Return the difference of this and `other`."""
        return Count(self.bytes - other.bytes, self.packets - other.packets)


def class_of(shape: Shape) -> Class:
    """Return the class that limits to `shape`."""
    return Class(shape.rate, shape.burst * 1_000_000_000 // shape.rate // _NS_PER_TICK)


def address(index: int, handle: int = 0, parent: int = 0) -> bytes:
    """Return the header that identifies a qdisc or class of an interface."""
    return _HEADER.pack(0, index, handle, parent, 0)


def splitter(index: int, handle: int, frame_bytes: int) -> bytes:
    """Return the body of a request for a first qdisc that splits joined packets.

    An arriving packet may be 40 packets joined to one by the network card or the kernel (GRO, TSO),
    64 KiB, which at 256 Kbps takes two seconds: HTB would let it pass at once and then nothing for
    that time, and the queues count it as one packet. Of the qdiscs that are always available only
    TBF splits: packets larger than its burst. Its rate is one that delays nothing. A packet larger
    than `frame_bytes` that was never joined is dropped.
    """
    rate = (0, uapi.TC_LINKLAYER_ETHERNET, 0, 0, 0, 0)
    parameters = _TBF_OPTIONS.pack(*rate, *rate, 0, 0, 0)
    options = (
        attribute(uapi.TCA_TBF_PARMS, parameters),
        attribute(uapi.TCA_TBF_RATE64, _SPLITTER_RATE.to_bytes(8, sys.byteorder)),
        attribute(uapi.TCA_TBF_BURST, u32(frame_bytes)),
    )
    return address(index, handle, uapi.TC_H_ROOT) + _kind("tbf") + nest(uapi.TCA_OPTIONS, *options)


def htb_root(index: int, handle: int, parent: int) -> bytes:
    """Return the body of a request for an HTB qdisc. Packets without a class pass unlimited."""
    parameters = _HTB_GLOBAL.pack(uapi.TC_HTB_PROTOVER, 10, 0, 0, 0)
    options = nest(uapi.TCA_OPTIONS, attribute(uapi.TCA_HTB_INIT, parameters))
    return address(index, handle, parent) + _kind("htb") + options


def htb_class(index: int, handle: int, wanted: Class) -> bytes:
    """Return the body of a request for a class at the top of its tree."""
    rate = (0, uapi.TC_LINKLAYER_ETHERNET, 0, 0, 0, wanted.rate)
    parameters = _HTB_OPTIONS.pack(*rate, *rate, wanted.buffer, wanted.buffer, FRAME_BYTES, 0, 0)
    return (
        address(index, handle, uapi.TC_H_ROOT)
        + _kind("htb")
        + nest(uapi.TCA_OPTIONS, attribute(uapi.TCA_HTB_PARMS, parameters))
    )


def decode_classes(bodies: Iterable[bytes]) -> Iterator[tuple[int, Class]]:
    """Yield handle and parameters of each HTB class that the kernel lists."""
    picker = AttributePicker(_HEADER.size, (uapi.TCA_OPTIONS, uapi.TCA_HTB_PARMS))
    for body in bodies:
        (parameters,) = picker.pick(body)
        options = _HTB_OPTIONS.unpack_from(parameters)
        yield _HEADER.unpack_from(body)[2], Class(rate=options[5], buffer=options[12])


def decode_counts(bodies: Iterable[bytes]) -> Iterator[tuple[int, Count]]:
    """Yield the handle of each HTB class that the kernel lists, and the traffic it has let pass."""
    picker = AttributePicker(
        _HEADER.size,
        (uapi.TCA_STATS2, uapi.TCA_STATS_BASIC),
        (uapi.TCA_STATS2, uapi.TCA_STATS_PKT64),
    )
    for body in bodies:
        basic, packets_64 = picker.pick(body)
        size, packets = _BASIC_STATISTICS.unpack_from(basic)
        yield _HEADER.unpack_from(body)[2], Count(size, number(packets_64) or packets)


def fq_codel(shape: Shape, *, is_new: bool) -> bytes:
    """Return kind and options of a leaf that shares a rule's limit among its flows.

    At a low rate one packet takes longer than fq_codel lets any wait, so both its times grow with
    that. Its number of flows can only be set when it is made.
    """
    packet_us = FRAME_BYTES * 1_000_000 * 3 // (shape.rate * 2)
    target = max(_FQ_TARGET_US, packet_us)
    options = [
        attribute(uapi.TCA_FQ_CODEL_TARGET, u32(target)),
        attribute(uapi.TCA_FQ_CODEL_INTERVAL, u32(_FQ_INTERVAL_US - _FQ_TARGET_US + target)),
        attribute(uapi.TCA_FQ_CODEL_LIMIT, u32(shape.queue)),
        attribute(uapi.TCA_FQ_CODEL_QUANTUM, u32(FRAME_BYTES)),
    ]
    if shape.queue_bytes:
        memory = shape.queue_bytes * _MEMORY_A_BYTE
        options.append(attribute(uapi.TCA_FQ_CODEL_MEMORY_LIMIT, u32(memory)))
    if is_new:
        options.append(attribute(uapi.TCA_FQ_CODEL_FLOWS, u32(_FQ_FLOWS_NUMBER)))
    return _kind(FQ_CODEL) + nest(uapi.TCA_OPTIONS, *options)


def fifo(shape: Shape, *, is_new: bool) -> bytes:
    """Return kind and options of a leaf that drops arriving packets when it is full."""
    kind, limit = fifo_of(shape)
    return _kind(kind) + attribute(uapi.TCA_OPTIONS, u32(limit))


def fifo_of(shape: Shape) -> tuple[str, int]:
    """Return the kind of such a leaf and its limit: packets, or bytes where sizes differ much."""
    return (_BFIFO, shape.queue_bytes) if shape.queue_bytes else (_PFIFO, shape.queue)


def decode_qdiscs(bodies: Iterable[bytes]) -> Iterator[QdiscMessage]:
    """Yield the qdiscs that the kernel lists."""
    picker = AttributePicker(_HEADER.size, (uapi.TCA_KIND,), (uapi.TCA_OPTIONS,))
    for body in bodies:
        _, index, handle, parent, _ = _HEADER.unpack_from(body)
        found, options = picker.pick(body)
        kind = text(found)
        limit = 0
        if kind == FQ_CODEL:
            limit = number(attributes(options).get(uapi.TCA_FQ_CODEL_LIMIT))
        elif kind in (_PFIFO, _BFIFO):
            limit = number(options)
        yield QdiscMessage(index, handle, parent, kind, limit)


def interface_of(body: bytes) -> int:
    """Return the interface index in a message about a qdisc, class or filter."""
    index: int = _HEADER.unpack_from(body)[1]
    return index


def _kind(name: str) -> bytes:
    return attribute(uapi.TCA_KIND, name.encode() + b"\0")
