"""Packets to engine instances: the choice of a group's node, the connmark check and the port."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import TO_INSTANCE
from egressd.planner.declared import Chain, chain
from egressd.planner.groups import SLOTS
from egressd.planner.registry import (
    DATAGRAM_MAX,
    HASH_SEED,
    MARK_GROUP,
    MARK_GROUP_MASK,
    SHORT_DATAGRAM,
)

_UDP_HEADER: Final = 8
"""Bytes, which the length of a datagram includes (RFC 768)."""

CHAINS: Final[dict[str, Chain]] = {
    "engine": chain(
        "to an engine instance: group choice, size, connmark check, TPROXY, else deny",
        f"meta mark & {MARK_GROUP_MASK:#x} == {MARK_GROUP:#x} jump group",
        "udp dport != 53 meta mark @noudp reject with icmpx port-unreachable",
        f"udp length > {SHORT_DATAGRAM + _UDP_HEADER} jump long",
        "jump connmark_check",
        TO_INSTANCE,
        # tproxy fails open if no socket listens: packets that get here must not go on.
        "goto deny",
    ),
    "long": chain(
        "datagrams that are too long for the node are refused",
        # The engine would send only the part of a longer datagram that fits its buffer.
        f"udp length <= {DATAGRAM_MAX + _UDP_HEADER} meta mark != @shortudp return",
        "goto deny",
    ),
    "group": chain(
        "a group's mark becomes that of one of its nodes",
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
