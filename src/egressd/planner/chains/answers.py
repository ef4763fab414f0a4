"""Answers of the engine to clients, which bear the address that a client asked (hook output)."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import KIND
from egressd.planner.declared import Chain, base_chain, chain
from egressd.planner.registry import (
    MARK_ANSWER,
    MARK_ENGINE,
)

CHAINS: Final[dict[str, Chain]] = {
    "output_answers": base_chain(
        # Ahead of connection tracking (priority -200), which must see the port of the far end.
        "type filter hook output priority raw; policy accept;",
        "UDP answers of the engine, before conntrack sees them",
        f"{KIND} {MARK_ANSWER:#x} goto from_far_end",
    ),
    "from_far_end": chain(
        "put the far end's port, which the mark has, into the answer",
        # nftables cannot write a mark into a port, but it can set single bits of one.
        "udp sport set 0",
        *(
            f"meta mark & {1 << bit:#x} != 0 udp sport set udp sport | {1 << bit:#x}"
            for bit in range(16)
        ),
        f"meta mark set {MARK_ANSWER:#x}",
    ),
    "answer_in_a_name": chain(
        "UDP answers of nodes must not pose as this machine or a LAN host",
        # A node chooses the source address of its answers. This machine and hosts in its LANs do
        # not answer through nodes, except that DNS addressed to them is answered on their behalf.
        "udp sport != 53 ip saddr @lannet drop",
        "udp sport != 53 ip saddr @own drop",
        "ct state new ip saddr @lannet drop",
        "ct state new fib saddr type != unicast drop",
        "goto answer",
    ),
    "answer": chain(
        "answers of the engine to clients",
        "meta l4proto udp ct state new goto unasked",
        "goto to_client",
    ),
    "unasked": chain(
        "UDP from a far end that the client has not contacted: does it use a node?",
        # A node's client may receive packets from a peer that it has not contacted.
        "fib saddr type local goto to_client",
        "meta mark set ip daddr map @hosts goto unasked_of",
        "meta mark set ip daddr map @nets goto unasked_of",
        "meta mark set oifname map @dflt goto unasked_of",
        "drop",
    ),
    "unasked_of": chain(
        "only to clients whose target is the engine",
        "meta mark set meta mark map @elected",
        "meta mark set meta mark . ip daddr map @kept",
        # The client has moved away from its node: the flow would begin in the wrong direction, and
        # the client's packets would count as answers, which are not translated and get lost.
        f"{KIND} != {MARK_ENGINE:#x} drop",
        "meta mark set 0",
        "goto to_client",
    ),
}
