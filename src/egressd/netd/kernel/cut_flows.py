"""TCP flows that were cut and must not go on by another egress: the set `cut_flows`.

A client whose target has changed is reset at its next packet, since that packet's mark differs from
the flow's. Once the flow's conntrack entry is gone, nothing would tell the packet from one of a
flow whose entry another program has removed: conntrack would pick it up as a new flow
(nf_conntrack_tcp_loose, nf_conntrack-sysctl.rst), and the far end would see one connection from two
addresses. So the flow is put in this set before its entry is deleted, and the chains `routed` and
`unmanaged` reset what the client still sends in it.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from socket import IPPROTO_TCP
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import KeptSocket, NetlinkError, attributes
from egressd.netd.kernel.set_elements import INET, replace_timed

NAME: Final = "cut_flows"
TIMEOUT_S: Final = 86_400
"""Seconds after which no application is expected to use a silent connection again: the kernel's
keepalive sends a packet after 2 hours (tcp(7))."""
_SENDING: Final = {
    *range(uapi.TCP_CONNTRACK_SYN_RECV, uapi.TCP_CONNTRACK_LAST_ACK + 1),
    uapi.TCP_CONNTRACK_CLOSE,
}
"""The states of a connection in which its client may still send data: a reset may be lost."""
_UNAVAILABLE: Final = {errno.ENOENT, errno.ENFILE}
"""There is no table (then no client's packets pass), or the set is full."""


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
    """The set in the kernel. Not to be used by two threads at once."""

    def __init__(self) -> None:
        # A socket that stays: netd takes changes from sockets that it no longer has for those of
        # another program (`nft_events`).
        self._socket = KeptSocket(uapi.NETLINK_NETFILTER)

    def put(self, keys: Collection[bytes]) -> bool:
        """Have what clients still send in these flows reset; False if that cannot be.

        Takes `set_elements.SWAPPED_MAX` keys at most. Raises NetlinkError.
        """
        with self._socket as kernel:
            try:
                replace_timed(kernel, INET, NAME, keys, TIMEOUT_S * 1000)
            except NetlinkError as error:
                if error.errno not in _UNAVAILABLE:
                    raise
                return False
        return True

    def close(self) -> None:
        """Close the socket; the set stays."""
        self._socket.close()
