"""Packets to engine instances: the choice of a group's node, the connmark check and the port."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import GROUP, MARK_OF_FLOW, ROUTED, TO_INSTANCE
from egressd.planner.declared import Chain, chain
from egressd.planner.groups import SLOTS
from egressd.planner.registry import (
    DATAGRAM_MAX,
    HASH_SEED,
    SHORT_DATAGRAM,
)

_UDP_HEADER: Final = 8
"""Bytes, which the length of a datagram includes (RFC 768)."""

_TO_INSTANCE: Final = (
    "udp dport != 53 meta mark @noudp reject with icmpx port-unreachable",
    f"udp length > {SHORT_DATAGRAM + _UDP_HEADER} jump long",
    "jump connmark_check",
    TO_INSTANCE,
    # tproxy fails open if no socket listens: packets that get here must not go on.
    "goto deny",
)
"""The rules are in both chains: a packet may go through 16 chains at most (NFT_JUMP_STACK_SIZE)."""

CHAINS: Final[dict[str, Chain]] = {
    "engine": chain(
        "to an engine instance, or to a member of a group",
        f"{GROUP} goto member",
        *_TO_INSTANCE,
    ),
    "member": chain(
        "to the member of a group: whitelisted domains first, then kernel's routing or an instance",
        "jump group",
        # What an instance hands back is this machine's own, which the kernel does not route.
        f'meta mark {ROUTED} iifname "lo" goto deny',
        f"meta mark {ROUTED} meta l4proto . th dport @wlports meta mark set meta mark map @sniff",
        # The kernel forgets the flows of an interface that is taken down (nf_nat_masquerade.c).
        # What is still sent in one would go on by another member (nf_conntrack_tcp_loose).
        f"meta mark {ROUTED} ct state new tcp flags & (fin | syn | rst | ack) != syn goto cut",
        f"meta mark {ROUTED} goto routed",
        *_TO_INSTANCE,
    ),
    "long": chain(
        "datagrams that are too long for the node are refused",
        # The engine would send only the part of a longer datagram that fits its buffer.
        f"udp length <= {DATAGRAM_MAX + _UDP_HEADER} meta mark != @shortudp return",
        "goto deny",
    ),
    "group": chain(
        "a group's mark becomes that of one of its members",
        f"ct mark {ROUTED} meta mark . ct mark @members {MARK_OF_FLOW} return",
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
    "hashed": chain(
        "the node was chosen by hash: clear the connmark used for that", "ct mark set 0"
    ),
    "connmark_check": chain(
        "connmark check: new flows are pinned to their mark, moved ones are cut",
        "ct mark 0 goto begin",
        "ct mark . meta mark @allowed_connmarks return",
        "goto cut",
    ),
}
