"""Packets to instances of the engine and back: the choice of a group's node, its port, and the
answers, which bear the address that a client asked.
"""

from __future__ import annotations

import sys
from ipaddress import IPv4Address
from typing import Final

from egressd.planner.chains.terms import KIND, TO_INSTANCE
from egressd.planner.groups import SLOTS
from egressd.planner.registry import (
    APART,
    DATAGRAM_MAX,
    HASH_SEED,
    MARK_ANSWER,
    MARK_ENGINE,
    MARK_GROUP,
    MARK_GROUP_MASK,
    MARK_UNMANAGED,
    SHORT_DATAGRAM,
)

_UDP_HEADER: Final = 8
"""Bytes, which the length of a datagram includes (RFC 768)."""


def _as_hashed(address: IPv4Address) -> int:
    """Return an address as a number in the byte order of the machine, as hashes are."""
    return int.from_bytes(address.packed, sys.byteorder)


_LOOKED_INTO: Final = (
    # The whitelist does not apply to clients without a rule.
    f"iifname @lanif {KIND} {MARK_ENGINE:#x} meta mark != {MARK_UNMANAGED:#x}"
    " meta l4proto udp meta l4proto . th dport @wlports"
)

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "engine": (
        f"meta mark & {MARK_GROUP_MASK:#x} == {MARK_GROUP:#x} jump group",
        "udp dport != 53 meta mark @noudp reject with icmpx port-unreachable",
        f"udp length > {SHORT_DATAGRAM + _UDP_HEADER} jump long",
        "jump seal",
        TO_INSTANCE,
        # tproxy fails open if no socket listens: packets that get here must not go on.
        "goto deny",
    ),
    "long": (
        # The engine would send only the part of a longer datagram that fits its buffer.
        f"udp length <= {DATAGRAM_MAX + _UDP_HEADER} meta mark != @shortudp return",
        "goto deny",
    ),
    "group": (
        "meta mark . ct mark @members meta mark set ct mark return",
        "meta mark set meta mark map @elected return",
        "meta mark set meta mark . ip saddr map @kept return",
        "ct mark != 0 goto deny",
        # nftables 1.0.6 cannot use a hash in a key of several parts: the hash is passed in a mark.
        "ct mark set meta mark",
        # Packets that an instance hands back differ only by their destination.
        f'iifname "lo" meta mark set jhash ip saddr . ip daddr mod {SLOTS} seed {HASH_SEED:#x}',
        f'iifname != "lo" meta mark set jhash ip saddr mod {SLOTS} seed {HASH_SEED:#x}',
        "meta mark set ct mark . meta mark map @slots goto hashed",
        "ct mark set 0",
        "goto deny",
    ),
    "hashed": ("ct mark set 0",),
    "seal": (
        "ct mark 0 goto begin",
        "ct mark . meta mark @same return",
        "goto cut",
    ),
    "input_apart": (
        "type nat hook input priority 100; policy accept;",
        # To the engine all UDP from one address and port is one session, with the destination of
        # its first packet. On ports where domains are looked for, each destination must be a
        # session of its own: its packets get a source address of their own.
        f"{_LOOKED_INTO} snat ip to (jhash ip saddr . ip daddr . udp dport mod {0xFFFF_FFFF})"
        f" & {_as_hashed(APART.hostmask):#x} | {_as_hashed(APART[0]):#x} fully-random",
    ),
    "input_apart_last": (
        "type filter hook input priority 200; policy accept;",
        # A flow from before its port was listed; the tidier ends it.
        f"{_LOOKED_INTO} ip saddr != {APART} drop",
    ),
    "output_answers": (
        # Ahead of connection tracking (priority -200), which must see the port of the far end.
        "type filter hook output priority raw; policy accept;",
        f"{KIND} {MARK_ANSWER:#x} goto from_far_end",
    ),
    "from_far_end": (
        # nftables cannot write a mark into a port, but it can set single bits of one.
        "udp sport set 0",
        *(
            f"meta mark & {1 << bit:#x} != 0 udp sport set udp sport | {1 << bit:#x}"
            for bit in range(16)
        ),
        f"meta mark set {MARK_ANSWER:#x}",
    ),
    "answer_in_a_name": (
        # A node chooses the source address of its answers. This machine and hosts in its LANs do
        # not answer through nodes, except that DNS addressed to them is answered on their behalf.
        "udp sport != 53 ip saddr @lannet drop",
        "udp sport != 53 ip saddr @own drop",
        "ct state new ip saddr @lannet drop",
        "ct state new fib saddr type != unicast drop",
        "goto answer",
    ),
    "answer": (
        "meta l4proto udp ct state new goto unasked",
        "goto to_client",
    ),
    "unasked": (
        # A node's client may receive packets from a peer that it has not contacted.
        "fib saddr type local goto to_client",
        "meta mark set ip daddr map @hosts goto unasked_of",
        "meta mark set ip daddr map @nets goto unasked_of",
        "meta mark set oifname map @dflt goto unasked_of",
        "drop",
    ),
    "unasked_of": (
        # The client has moved away from its node: the flow would begin in the wrong direction, and
        # the client's packets would count as answers, which are not translated and get lost.
        f"{KIND} != {MARK_ENGINE:#x} drop",
        "meta mark set 0",
        "goto to_client",
    ),
}
