"""TCP flows that were cut and must not go on by another egress: the set `cut_flows`.

A client whose target has changed is reset at its next packet, since that packet's mark differs from
the flow's. Once the flow's conntrack entry is gone, nothing would tell the packet from one of a
flow whose entry another program has removed: conntrack would pick it up as a new flow
(nf_conntrack_tcp_loose, nf_conntrack-sysctl.rst), and the far end would see one connection from two
addresses. So the flow is put in this set before its entry is deleted, and the chains `routed` and
`unmanaged` reset what the client still sends in it.

The set goes with the table when another program flushes the ruleset. So netd remembers what is in
it, and each load of the table puts that in, in the same transaction.
"""

from __future__ import annotations

import errno
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from socket import IPPROTO_TCP, inet_ntoa
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import KeptSocket, NetlinkError, attributes
from egressd.netd.kernel.set_elements import INET, SWAPPED_MAX, expirations, replace_timed
from egressd.planner.chains import CUT_FLOWS_MAX

NAME: Final = "cut_flows"
TIMEOUT_S: Final = 86_400
"""Seconds after which no application is expected to use a silent connection again: the kernel's
keepalive sends a packet after 2 hours (tcp(7))."""
_LEFT_MIN_MS: Final = 100
"""Milliseconds that a flow is put in for at least. A time-out of less than a tick of the kernel
(10 ms at most) would be none: the element would stay for ever."""
_SAME_S: Final = 1.0
"""Seconds by which the end of a flow may be later at the other box of a pair, and is the same one:
it was under way."""
_SENDING: Final = {
    *range(uapi.TCP_CONNTRACK_SYN_RECV, uapi.TCP_CONNTRACK_LAST_ACK + 1),
    uapi.TCP_CONNTRACK_CLOSE,
}
"""The states of a connection in which its client may still send data: a reset may be lost."""
_UNAVAILABLE: Final = {errno.ENOENT, errno.ENFILE}
"""There is no table (then no client's packets pass), or the set is full."""

KeepCut = Callable[[Collection[bytes]], bool]
"""`CutFlows.put`, as those know it that delete entries."""


def key_of(entry: Mapping[int, bytes]) -> bytes:
    """Return the set's key for a conntrack entry: its opener's address and port, and the far end's.

    It is empty if the entry needs none: nothing more is sent in it, or it is not of TCP.
    """
    original = attributes(entry[uapi.CTA_TUPLE_ORIG])
    protocol = attributes(original[uapi.CTA_TUPLE_PROTO])
    if protocol[uapi.CTA_PROTO_NUM][0] != IPPROTO_TCP:
        return b""
    # The kernel does not tell the state of a flow in another program's flowtable.
    details = attributes(entry.get(uapi.CTA_PROTOINFO, b"")).get(uapi.CTA_PROTOINFO_TCP, b"")
    state = attributes(details).get(uapi.CTA_PROTOINFO_TCP_STATE)
    if state is not None and state[0] not in _SENDING:
        return b""
    addresses = attributes(original[uapi.CTA_TUPLE_IP])
    return b"".join(
        part.ljust(4, b"\0")  # each part of a key takes whole words (nft_set_ext_key)
        for part in (
            addresses[uapi.CTA_IP_V4_SRC],
            protocol[uapi.CTA_PROTO_SRC_PORT],
            addresses[uapi.CTA_IP_V4_DST],
            protocol[uapi.CTA_PROTO_DST_PORT],
        )
    )


class CutFlows:
    """The set in the kernel, and what netd remembers of it. Methods may be called from any thread,
    and wait for each other.
    """

    def __init__(self) -> None:
        # A socket that stays: netd takes changes from sockets that it no longer has for those of
        # another program (`nft_events`).
        self._socket = KeptSocket(uapi.NETLINK_NETFILTER)
        self._turn = threading.Lock()
        self._ends = OrderedDict[bytes, float]()
        """Key -> the end of its time, of the monotonic clock. The first ones end first."""
        self._on_put: Callable[[Collection[bytes]], object] | None = None

    def load_previous(self) -> None:
        """Remember what an earlier netd has put in. Raises OSError."""
        with self._turn:
            now = time.monotonic()  # before the look, so that no end is later than in the kernel
            with self._socket as kernel:
                found = expirations(kernel, INET, NAME)
            ends = {key: now + left_ms / 1000 for key, left_ms in found.items()}
            self._ends = OrderedDict(sorted(ends.items(), key=_end))

    def put(self, keys: Collection[bytes]) -> bool:
        """Have what clients still send in these flows reset; False if that cannot be.

        Takes `set_elements.SWAPPED_MAX` keys at most. Raises NetlinkError.
        """
        with self._turn:
            now = time.monotonic()
            try:
                with self._socket as kernel:
                    replace_timed(kernel, INET, NAME, dict.fromkeys(keys, TIMEOUT_S * 1000))
            except NetlinkError as error:
                if error.errno not in _UNAVAILABLE:
                    raise
                return False
            for key in keys:
                self._ends[key] = now + TIMEOUT_S
                self._ends.move_to_end(key)
            self._forget(now)
            if (on_put := self._on_put) is not None:
                on_put(keys)
        return True

    def follow(self, on_put: Callable[[Collection[bytes]], object] | None) -> None:
        """Call `on_put` with the keys of each `put` that succeeds, in its thread."""
        self._on_put = on_put

    def left_ms(self) -> dict[bytes, int]:
        """Return the keys that are in the set, with the milliseconds that are left."""
        with self._turn:
            return self._left_ms()

    def adopt(self, left_ms: Mapping[bytes, int]) -> None:
        """Put in what the other box of a pair has put in, for what is left of its time, or have the
        next load do so. Raises NetlinkError.
        """
        with self._turn:
            now = time.monotonic()
            fresh = {
                key: min(left, TIMEOUT_S * 1000)
                for key, left in left_ms.items()
                if left >= _LEFT_MIN_MS and now + left / 1000 > self._ends.get(key, 0.0) + _SAME_S
            }
            ends = self._ends | {key: now + left / 1000 for key, left in fresh.items()}
            self._ends = OrderedDict(sorted(ends.items(), key=_end))
            self._forget(now)
            items = iter(fresh.items())
            try:
                with self._socket as kernel:
                    while some := dict(islice(items, SWAPPED_MAX)):
                        replace_timed(kernel, INET, NAME, some)
            except NetlinkError as error:
                if error.errno not in _UNAVAILABLE:
                    raise

    @contextmanager
    def held(self) -> Iterator[list[str]]:
        """Put nothing in during a load of the table; yield the elements that it has to put in, in
        nft's notation.
        """
        with self._turn:
            yield [_timed(key, left) for key, left in self._left_ms().items()]

    def _left_ms(self) -> dict[bytes, int]:
        now = time.monotonic()
        left = ((key, int((end - now) * 1000)) for key, end in self._ends.items())
        return {key: left_ms for key, left_ms in left if left_ms >= _LEFT_MIN_MS}

    def _forget(self, now: float) -> None:
        """Forget what has ended, and the first ones of more than the set has room for: another
        program may have emptied it.
        """
        while self._ends:
            first = next(iter(self._ends))
            if self._ends[first] > now and len(self._ends) <= CUT_FLOWS_MAX:
                return
            del self._ends[first]


def _end(item: tuple[bytes, float]) -> float:
    return item[1]


def _timed(key: bytes, left_ms: int) -> str:
    """Return an element in nft's notation."""
    near, near_port = inet_ntoa(key[:4]), int.from_bytes(key[4:6], "big")
    far, far_port = inet_ntoa(key[8:12]), int.from_bytes(key[12:14], "big")
    return f"{near} . {near_port} . {far} . {far_port} timeout {left_ms}ms"
