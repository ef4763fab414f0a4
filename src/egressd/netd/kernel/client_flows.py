"""The live connections of one client: a list of them, and their end.

The kernel selects the entries by their source (CTA_FILTER, Linux 5.8), but passes its whole table
for that: 0.3 s of one processor with 500,000 entries. So it belongs in a thread, and
`egressd.netd.reconciler.client_connections` limits how often. Entries without a mark of egressd's
are left out: connections to this machine, and between LANs. So are those to proxy services.

A connection through the engine ends with the engine's socket: the kernel resets the client, and the
engine closes the way to the node. One that the kernel routes gets the mark of `REJECT` first. Then
the ruleset resets the client at its next packet (`connmark_check` and the chains `routed` and
`unmanaged`), which an acknowledgement of a download is, too. The fast path takes no flow whose mark
is not its client's. After `NOTICE_S` the entry is deleted, and `cut_flows` keeps the connection
from being picked up again.
"""

from __future__ import annotations

import errno
import heapq
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP, inet_aton, inet_ntoa
from typing import Final, NamedTuple

from egressd.model.connections import ConnectionState, TrackedConnection
from egressd.netd.kernel import sockets, uapi
from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.conntrack import (
    GET,
    HEADER,
    delete_entry,
    from_source,
    opener_of,
)
from egressd.netd.kernel.cut_flows import TIMEOUT_S, KeepCut, key_of
from egressd.netd.kernel.netlink import NetlinkError, NetlinkSocket, attributes, encode
from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner.registry import (
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_LOCAL,
    MARK_REJECT,
    SERVICE_MARKS,
    is_routed,
)

EXAMINED_MAX: Final = 20_000
"""Entries of a client that are read in full, 15 µs each; further ones are only counted."""
_UPDATE: Final = uapi.NFNL_SUBSYS_CTNETLINK << 8 | uapi.IPCTNL_MSG_CT_NEW
NOTICE_S: Final = 0.5
"""Seconds in which a client that receives data acknowledges some, and so learns of the end."""
_OPENING: Final = {
    uapi.TCP_CONNTRACK_SYN_SENT,
    uapi.TCP_CONNTRACK_SYN_RECV,
    uapi.TCP_CONNTRACK_SYN_SENT2,
}
_OVER: Final = {uapi.TCP_CONNTRACK_TIME_WAIT, uapi.TCP_CONNTRACK_CLOSE}


class FoundFlows(NamedTuple):
    """The connections of a client, those of the most bytes first."""

    total: int
    first: list[TrackedConnection]


class EndedFlows(NamedTuple):
    """The result of `close`."""

    closed: int
    left: int
    """Connections that are still open, since they were too many for one call."""


class _Live(NamedTuple):
    entry: Mapping[int, bytes]
    shown: TrackedConnection


def listed(client: str, lans: Ranges, most: int, *, is_counted: bool) -> FoundFlows:
    """Return the live connections of `client`, an address, in the LANs `lans`: their number, and
    `most` of them. Without `is_counted` the kernel sees few packets of its routed ones, and their
    bytes are unknown. Raises OSError.
    """
    rows: list[TrackedConnection] = []
    more = 0
    for entry in _entries(client, lans):
        if len(rows) >= EXAMINED_MAX:
            more += 1
        elif live := _live(entry, client, is_counted=is_counted):
            rows.append(live.shown)
    return FoundFlows(len(rows) + more, heapq.nsmallest(most, rows, key=_rank))


def close(
    client: str,
    lans: Ranges,
    most: int,
    *,
    wanted: int | None,
    own: Collection[IPv4Address],
    keep_cut: KeepCut,
) -> EndedFlows:
    """End the connection `wanted` of `client`, or `most` of all. `own` are this machine's
    addresses. Blocks for `NOTICE_S` besides. Raises OSError.
    """
    ended: list[_Live] = []
    left = 0
    for entry in _entries(client, lans):
        if wanted is not None and _id_of(attributes(entry, len(HEADER))) != wanted:
            continue
        if len(ended) >= most:
            left += 1
        elif live := _live(entry, client, is_counted=False):
            ended.append(live)
    if not ended:
        return EndedFlows(0, left)
    _end_sockets(client, [live.shown for live in ended], own)
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as told:
        refused = [live for live in ended if _is_reset_by_rules(live.shown)]
        for live in refused:
            _refuse(told, live.entry)
        if refused:
            time.sleep(NOTICE_S)
        # An answer would be led to the client again by the port forward: its entry stays refused.
        gone = [live for live in ended if not (live.shown.is_inbound and live in refused)]
        for at in range(0, len(gone), SWAPPED_MAX):
            _forget(told, gone[at : at + SWAPPED_MAX], keep_cut)
    return EndedFlows(len(ended), left)


def _entries(client: str, lans: Ranges) -> Iterator[bytes]:
    """Yield the entries that `client` has opened, or answers."""
    source = inet_aton(client)
    if source not in lans:
        return
    with NetlinkSocket(uapi.NETLINK_NETFILTER) as asked:
        for side in (uapi.CTA_TUPLE_ORIG, uapi.CTA_TUPLE_REPLY):
            # The table may grow meanwhile, which moves entries: one may be missing, or come twice.
            with suppress(InterruptedError):
                for body in asked.stream(GET, HEADER + from_source(side, source)):
                    if side == uapi.CTA_TUPLE_ORIG or opener_of(body) not in lans:
                        yield body


def _live(body: bytes, client: str, *, is_counted: bool) -> _Live | None:
    """Return the connection of an entry; None if it is over, or not sent by egressd."""
    entry = attributes(body, len(HEADER))
    mark = int.from_bytes(entry.get(uapi.CTA_MARK, b""), "big")
    if not mark or mark & MARK_KIND_MASK in (MARK_LOCAL, MARK_REJECT) or mark in SERVICE_MARKS:
        return None
    is_inbound = opener_of(body) != inet_aton(client)
    original = attributes(entry[uapi.CTA_TUPLE_ORIG])
    protocol = attributes(original[uapi.CTA_TUPLE_PROTO])
    number = protocol[uapi.CTA_PROTO_NUM][0]
    state = _state(entry, number)
    if state is None:
        return None
    addresses = attributes(original[uapi.CTA_TUPLE_IP])
    answer = attributes(attributes(entry[uapi.CTA_TUPLE_REPLY])[uapi.CTA_TUPLE_PROTO])
    opener_port = _port(protocol, uapi.CTA_PROTO_SRC_PORT)
    has_bytes = is_counted or not is_routed(mark)
    counts = [_bytes(entry, kind) if has_bytes else None for kind in _COUNTERS]
    if is_inbound:
        counts.reverse()
    far = uapi.CTA_IP_V4_SRC if is_inbound else uapi.CTA_IP_V4_DST
    return _Live(
        entry,
        TrackedConnection(
            id=_id_of(entry),
            protocol=number,
            state=state,
            mark=mark,
            is_inbound=is_inbound,
            client_port=_port(answer, uapi.CTA_PROTO_SRC_PORT) if is_inbound else opener_port,
            far=inet_ntoa(addresses[far]),
            far_port=opener_port if is_inbound else _port(protocol, uapi.CTA_PROTO_DST_PORT),
            sent=counts[0],
            received=counts[1],
            age_s=_age_s(entry),
        ),
    )


_COUNTERS: Final = (uapi.CTA_COUNTERS_ORIG, uapi.CTA_COUNTERS_REPLY)


def _state(entry: Mapping[int, bytes], protocol: int) -> ConnectionState | None:
    """Return the state of a connection; None if it is over."""
    details = attributes(entry.get(uapi.CTA_PROTOINFO, b"")).get(uapi.CTA_PROTOINFO_TCP, b"")
    state = attributes(details).get(uapi.CTA_PROTOINFO_TCP_STATE)
    if protocol == IPPROTO_TCP and state is not None:
        if state[0] in _OVER:
            return None
        if state[0] in _OPENING:
            return "opening"
        return "open" if state[0] == uapi.TCP_CONNTRACK_ESTABLISHED else "closing"
    status = int.from_bytes(entry.get(uapi.CTA_STATUS, b""), "big")
    return "open" if status & uapi.IPS_SEEN_REPLY else "unanswered"


def _id_of(entry: Mapping[int, bytes]) -> int:
    return int.from_bytes(entry.get(uapi.CTA_ID, b""), "big")


def _port(protocol: Mapping[int, bytes], side: int) -> int:
    return int.from_bytes(protocol.get(side, b""), "big")


def _bytes(entry: Mapping[int, bytes], kind: int) -> int | None:
    counted = attributes(entry.get(kind, b"")).get(uapi.CTA_COUNTERS_BYTES)
    return None if counted is None else int.from_bytes(counted, "big")


def _age_s(entry: Mapping[int, bytes]) -> int | None:
    start = attributes(entry.get(uapi.CTA_TIMESTAMP, b"")).get(uapi.CTA_TIMESTAMP_START)
    if start is None:
        return None
    return max(0, time.time_ns() - int.from_bytes(start, "big")) // 1_000_000_000


def _rank(row: TrackedConnection) -> tuple[int, int]:
    """Sort by the bytes of both directions, the most first, then by age, the latest first."""
    return -((row.sent or 0) + (row.received or 0)), row.age_s or 0


def _is_reset_by_rules(row: TrackedConnection) -> bool:
    return row.protocol == IPPROTO_TCP and is_routed(row.mark)


def _end_sockets(
    client: str, rows: Iterable[TrackedConnection], own: Collection[IPv4Address]
) -> None:
    """End the engine's sockets of these connections: the kernel resets the client."""
    ways = {_way(row) for row in rows if row.mark & MARK_KIND_MASK == MARK_ENGINE}
    if not ways:
        return
    found = [
        each
        for each in sockets.of_clients([client])
        if not each.local[0].is_loopback and each.local[0] not in own
        if _way_of_socket(each) in ways
    ]
    sockets.destroy(found)


_Way = tuple[int, int, str, int]
"""Protocol, client's port, and the far end. One port of a client may have many peers over UDP."""


def _way(row: TrackedConnection) -> _Way:
    far = (row.far, row.far_port) if row.protocol != IPPROTO_UDP else ("", 0)
    return row.protocol, row.client_port, *far


def _way_of_socket(found: sockets.ClientSocket) -> _Way:
    far = (str(found.local[0]), found.local[1]) if found.protocol != IPPROTO_UDP else ("", 0)
    return found.protocol, found.remote[1], *far


def _refuse(told: NetlinkSocket, entry: Mapping[int, bytes]) -> None:
    """Give a flow the mark that no client's packets have, for as long as `cut_flows` has others:
    an entry that no packet comes for would expire, and the next packet begin the flow anew.
    """
    key = [(kind, entry[kind]) for kind in (uapi.CTA_TUPLE_ORIG, uapi.CTA_ZONE) if kind in entry]
    values = [
        (uapi.CTA_MARK, MARK_REJECT.to_bytes(4, "big")),
        (uapi.CTA_TIMEOUT, TIMEOUT_S.to_bytes(4, "big")),
    ]
    try:
        told.request(_UPDATE, HEADER + encode([*key, *values]))
    except NetlinkError as error:
        if error.errno != errno.ENOENT:
            raise


def _forget(told: NetlinkSocket, some: Collection[_Live], keep_cut: KeepCut) -> None:
    """Delete entries. Those of TCP stay, refused, if they cannot be kept from being picked up."""
    keys = {key for live in some if not live.shown.is_inbound and (key := key_of(live.entry))}
    are_cut = not keys or keep_cut(keys)
    for live in some:
        if are_cut or live.shown.protocol != IPPROTO_TCP:
            delete_entry(told, live.entry)
