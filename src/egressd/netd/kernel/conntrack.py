"""Tracked connections of clients, through nfnetlink (linux/netfilter/nfnetlink_conntrack.h).

A client owns an entry if it opened the connection (the source of the original direction), or if it
answers a connection from outside (the source of the reply: of a port forward to it, for example).
The destination of a client's connection does not own the entry, even if it is an address in a LAN.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network
from itertools import islice
from pathlib import Path
from socket import AF_INET, IPPROTO_TCP, IPPROTO_UDP
from typing import Final, NamedTuple

from egressd.model.wording import NONE, Sentence, say
from egressd.netd.kernel import uapi
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.cut_flows import KeepCut, key_of
from egressd.netd.kernel.netlink import (
    NFGENMSG,
    NetlinkError,
    NetlinkSocket,
    attribute,
    attributes,
    encode,
    nest,
    number,
    u32,
)
from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner.registry import MARK_ENGINE, MARK_KIND_MASK, inbound_place

GET: Final = uapi.NFNL_SUBSYS_CTNETLINK << 8 | uapi.IPCTNL_MSG_CT_GET
"""The kind of a request for entries."""
_DELETE: Final = uapi.NFNL_SUBSYS_CTNETLINK << 8 | uapi.IPCTNL_MSG_CT_DELETE
HEADER: Final = NFGENMSG.pack(AF_INET, 0, 0)
"""The beginning of each request."""
_DNS_PORT: Final = 53

_FEW: Final = 2
"""Above this many clients, dump the whole table instead of filtering per client. With 100,000
entries a filtered dump takes 66 ms per client, a full dump 450 ms; but a filtered dump does not
yield the CPU, so with four clients the p99 latency of 20 writes/s rose to 330 ms, against 180 ms
for a full dump."""

_LIMITS: Final = Path("/proc/sys/net/netfilter")
_CROWDED: Final = 0.95
"""Fraction of the limit from which the table counts as nearly full."""
_FULL: Final = 0.999
"""Fraction of the limit from which the table counts as full. Expired entries are removed at once,
so the table never stays quite full for long."""


class TrackedFlow(NamedTuple):
    """The part of an entry that describes a client's flow."""

    mark: int
    far: bytes = bytes(4)
    """Address of the client's peer, 4 bytes in network order."""
    protocol: int = 0
    """``socket.IPPROTO_*``."""
    port: int = 0
    """Port of the peer; 0 if the protocol has no ports."""
    is_source_translated: bool = False
    is_backwards: bool = False
    """True if the client is the replying side of an untranslated flow, so its packets will not be
    NATed either."""
    is_inbound: bool = False
    """True if the client is the replying side."""


class Opened(NamedTuple):
    """A client's TCP connection. Addresses have 4 bytes in network order."""

    client: bytes
    client_port: int
    far: bytes
    far_port: int


def delete_stale(
    clients: Iterable[str],
    lans: Ranges,
    is_current: Callable[[bytes, TrackedFlow], bool],
    keep_cut: KeepCut,
) -> int:
    """Delete entries of clients (addresses, networks, ``first-last`` ranges); return their number.

    `lans` holds all addresses that clients may have. Entries for which ``is_current(client, flow)``
    is true stay: `client` is the address, 4 bytes in network order. TCP flows of a target are given
    to `keep_cut` first, by their keys of `cut_flows`; they stay if it returns False. Raises OSError
    if the kernel refuses.
    """
    wanted = Ranges(lans.clip(clients))
    deleted = 0
    with (
        NetlinkSocket(uapi.NETLINK_NETFILTER) as asked,
        NetlinkSocket(uapi.NETLINK_NETFILTER) as told,
    ):
        stale = _stale(asked, wanted, lans, is_current)
        while some := [*islice(stale, SWAPPED_MAX)]:
            keys = {key for _, key in some if key}
            are_cut = not keys or keep_cut(keys)
            deleted += sum(delete_entry(told, entry) for entry, key in some if are_cut or not key)
    return deleted


def _stale(
    asked: NetlinkSocket,
    wanted: Ranges,
    lans: Ranges,
    is_current: Callable[[bytes, TrackedFlow], bool],
) -> Iterator[tuple[Mapping[int, bytes], bytes]]:
    """Yield the entries of `wanted` that are not current, each with its key of `cut_flows`, which
    is empty if it needs none.
    """
    for body in _candidates(asked, wanted):
        entry = attributes(body, len(HEADER))
        opener = source_of(entry[uapi.CTA_TUPLE_ORIG])
        answerer = source_of(entry[uapi.CTA_TUPLE_REPLY])
        is_opener = opener in lans
        client = opener if is_opener else answerer
        if client not in wanted:
            continue
        flow = _flow(entry, is_opener=is_opener)
        if not is_current(client, flow):
            yield entry, key_of(entry) if is_opener and flow.mark else b""


def forget_questions(resolver: IPv4Address) -> int:
    """Delete the UDP flows of DNS queries to a resolver, from every source, so that the next query
    of each source takes the present route; return their number. Raises OSError.
    """
    return _forget(resolver, lambda flow: (flow.protocol, flow.port) == (IPPROTO_UDP, _DNS_PORT))


def forget_own(address: IPv4Address) -> int:
    """Delete the flows that were opened to `address` while it was this machine's own address;
    return their number.

    These flows are not translated, and would stay untranslated if they continued by a WAN or line:
    their packets would never get out. The engine's own flows and flows that came in by a WAN are
    not translated either, and stay. Raises OSError.
    """

    def is_stuck(flow: TrackedFlow) -> bool:
        is_engines = flow.mark & MARK_KIND_MASK == MARK_ENGINE
        is_from_wan = inbound_place(flow.mark) is not None
        return not (flow.is_source_translated or is_engines or is_from_wan)

    return _forget(address, is_stuck)


def forget_datagrams(lans: Ranges) -> int:
    """Delete the flows of clients in `lans` that are not of TCP, so that what the far ends send in
    them reaches no client that is blocked; return their number. Raises OSError.

    A TCP connection stays, as a client may be let through again soon: if anything is sent in it
    while the client is blocked, the client's acknowledgement is refused, and that ends it. Flows
    that a WAN brought in stay, too: their port forward would let them in again.
    """

    def may_stay(_client: bytes, flow: TrackedFlow) -> bool:
        is_sent_by_rules = flow.mark != 0 and inbound_place(flow.mark) is None
        return flow.protocol == IPPROTO_TCP or not is_sent_by_rules

    return delete_stale(map(str, lans.networks()), lans, may_stay, lambda _: True)


def engine_connections() -> Iterator[Opened]:
    """Yield the TCP connections of clients that lead to the engine. Raises OSError."""
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as asked:
        for body in asked.stream(GET, HEADER):
            entry = attributes(body, len(HEADER))
            flow = _flow(entry, is_opener=True)
            if flow.protocol != IPPROTO_TCP or flow.mark & MARK_KIND_MASK != MARK_ENGINE:
                continue
            original = attributes(entry[uapi.CTA_TUPLE_ORIG])
            ports = attributes(original[uapi.CTA_TUPLE_PROTO])
            client_port = int.from_bytes(ports[uapi.CTA_PROTO_SRC_PORT], "big")
            yield Opened(opener_of(body), client_port, flow.far, flow.port)


def mark_of_caller(local: tuple[IPv4Address, int], remote: tuple[IPv4Address, int]) -> int | None:
    """Return the mark of the TCP connection from `remote` to `local`, an address and a port of this
    machine; None if the connection is not tracked. Raises OSError.
    """
    # The reply direction is what this machine sees: a port forward may have led the connection
    # here.
    addresses = attribute(uapi.CTA_IP_V4_SRC, local[0].packed)
    addresses += attribute(uapi.CTA_IP_V4_DST, remote[0].packed)
    ports = attribute(uapi.CTA_PROTO_SRC_PORT, local[1].to_bytes(2, "big"))
    ports += attribute(uapi.CTA_PROTO_DST_PORT, remote[1].to_bytes(2, "big"))
    protocol = attribute(uapi.CTA_PROTO_NUM, bytes([IPPROTO_TCP])) + ports
    parts = nest(uapi.CTA_TUPLE_IP, addresses), nest(uapi.CTA_TUPLE_PROTO, protocol)
    key = nest(uapi.CTA_TUPLE_REPLY, *parts)
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as asked:
        try:
            (body,) = asked.request(GET, HEADER + key)
        except NetlinkError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
    return int.from_bytes(attributes(body, len(HEADER)).get(uapi.CTA_MARK, b""), "big")


def count(networks: Iterable[IPv4Network]) -> int:
    """Return the number of tracked connections opened from `networks`. Raises OSError.

    Reads all entries: 0.4 s for 100,000, half of it in the kernel.
    """
    wanted = Ranges(map(str, networks))
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as asked:
        return sum(opener_of(body) in wanted for body in asked.stream(GET, HEADER))


def crowding(limits: Path = _LIMITS) -> tuple[Sentence, ...]:
    """Return a warning while the table is nearly full, else nothing: the kernel drops packets that
    would open a connection beyond its limit.
    """
    tracked, limit = fullness(limits)
    if not limit or tracked < limit * _CROWDED:
        return ()
    return (say("table-nearly-full", n=tracked, limit=limit),)


def why_full(limits: Path = _LIMITS) -> Sentence:
    """Return an explanation while the table is full; else `NONE`."""
    tracked, limit = fullness(limits)
    if not limit or tracked < limit * _FULL:
        return NONE
    return say("table-full", limit=limit)


def fullness(limits: Path = _LIMITS) -> tuple[int, int]:
    """Return the number of tracked connections and the limit; zeros if nothing is tracked yet."""
    try:
        tracked = int((limits / "nf_conntrack_count").read_text())
        return tracked, int((limits / "nf_conntrack_max").read_text())
    except FileNotFoundError:
        return 0, 0


def _forget(answerer: IPv4Address, is_meant: Callable[[TrackedFlow], bool]) -> int:
    """Delete the flows answered by an address for which `is_meant` is true; return their number.
    Raises OSError.
    """
    deleted = 0
    with (
        NetlinkSocket(uapi.NETLINK_NETFILTER) as asked,
        NetlinkSocket(uapi.NETLINK_NETFILTER) as told,
    ):
        for body in asked.stream(GET, HEADER + from_source(uapi.CTA_TUPLE_REPLY, answerer.packed)):
            entry = attributes(body, len(HEADER))
            if is_meant(_flow(entry, is_opener=True)):
                deleted += delete_entry(told, entry)
    return deleted


def delete_entry(told: NetlinkSocket, entry: Mapping[int, bytes]) -> bool:
    """Delete an entry; return False if it was already gone. The request bears the entry's id, so
    that a newer connection with the same tuple is left alone.
    """
    kinds = (uapi.CTA_TUPLE_ORIG, uapi.CTA_ID, uapi.CTA_ZONE)
    key = [(kind, entry[kind]) for kind in kinds if kind in entry]
    try:
        told.request(_DELETE, HEADER + encode(key))
    except NetlinkError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def _candidates(asked: NetlinkSocket, wanted: Ranges) -> Iterator[bytes]:
    """Yield entries that include all of `wanted`."""
    if wanted.size <= _FEW:
        for host in (address for network in wanted.networks() for address in network):
            for side in (uapi.CTA_TUPLE_ORIG, uapi.CTA_TUPLE_REPLY):
                yield from asked.stream(GET, HEADER + from_source(side, host.packed))
        return
    for body in asked.stream(GET, HEADER):
        if opener_of(body) in wanted or answerer_of(body) in wanted:
            yield body


def from_source(side: int, source: bytes) -> bytes:
    """Return attributes that make the kernel list only entries whose source in that direction is
    `source` (since Linux 5.8).
    """
    key = nest(side, nest(uapi.CTA_TUPLE_IP, attribute(uapi.CTA_IP_V4_SRC, source)))
    return key + nest(uapi.CTA_FILTER, attribute(side, u32(uapi.CTA_FILTER_F_CTA_IP_SRC)))


def _flow(entry: Mapping[int, bytes], *, is_opener: bool) -> TrackedFlow:
    original = attributes(entry[uapi.CTA_TUPLE_ORIG])
    protocol = attributes(original[uapi.CTA_TUPLE_PROTO])
    far_address = uapi.CTA_IP_V4_DST if is_opener else uapi.CTA_IP_V4_SRC
    far_port = uapi.CTA_PROTO_DST_PORT if is_opener else uapi.CTA_PROTO_SRC_PORT
    status = int.from_bytes(entry.get(uapi.CTA_STATUS, b""), "big")
    is_translated = bool(status & (uapi.IPS_SRC_NAT | uapi.IPS_DST_NAT))
    return TrackedFlow(
        mark=int.from_bytes(entry.get(uapi.CTA_MARK, b""), "big"),
        far=attributes(original[uapi.CTA_TUPLE_IP])[far_address],
        protocol=protocol[uapi.CTA_PROTO_NUM][0],
        port=int.from_bytes(protocol.get(far_port, b""), "big"),
        is_source_translated=bool(status & uapi.IPS_SRC_NAT),
        is_backwards=not is_opener and not is_translated,
        is_inbound=not is_opener,
    )


def source_of(tuple_: bytes) -> bytes:
    """Return the source address of an entry's tuple."""
    return attributes(attributes(tuple_)[uapi.CTA_TUPLE_IP])[uapi.CTA_IP_V4_SRC]


# The kernel writes an entry's two tuples first, each beginning with the source address
# (ctnetlink_fill_info). Reading only these takes a third of the time of parsing everything.


def opener_of(body: bytes) -> bytes:
    """Return the source address of the original direction."""
    return body[16:20]


def answerer_of(body: bytes) -> bytes:
    """Return the source address of the reply."""
    start = 4 + (number(body[4:6]) + 3 & ~3)
    return body[start + 12 : start + 16]
