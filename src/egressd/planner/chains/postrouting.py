"""Packets that leave (hook postrouting): source NAT, and the last check."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import ROUTED
from egressd.planner.declared import Chain, base_chain, chain

CHAINS: Final[dict[str, Chain]] = {
    "postrouting_nat": base_chain(
        "type nat hook postrouting priority srcnat; policy accept;",
        "source NAT of clients, and of redirected DNS questions",
        f"meta mark {ROUTED} ip saddr @lannet fib saddr type != local goto source_of_clients",
        f"meta mark {ROUTED} ip saddr @localnet fib saddr type != local goto source_of_clients",
        # A question that output_dns redirected bears the source address for its former destination.
        "ct status dnat ct direction original meta l4proto { tcp, udp } th dport 53"
        " fib saddr type local fib saddr . oif type != local masquerade",
    ),
    "source_of_clients": chain(
        "source NAT of clients: the configured address that the interface has, or its own",
        # Such flows outlive the removal of the address; masqueraded ones do not.
        "snat ip to oifname map @snat_sources",
        "masquerade",
    ),
    "postrouting_last": base_chain(
        "type filter hook postrouting priority 300; policy accept;",
        "last check: no client address leaves, redirected DNS by its egress",
        # A client's own address never shows outside.
        "ip saddr @lannet ip daddr != @lannet ip daddr != @localnet fib saddr type != local drop",
        f"meta mark {ROUTED} ip saddr @localnet fib saddr type != local drop",
        # Flows that got a configured address, which the interface has no more; an entry of another
        # box of a pair that was translated for another WAN; and packets of this machine from such
        # an address, before netd knows that it is here.
        "oifname @outside ip saddr @wan_sources fib saddr . oif type != local drop",
        f"ct status dnat ct direction original meta mark {ROUTED} meta l4proto {{ tcp, udp }}"
        " th dport 53 goto to_resolver_instead",
    ),
    "to_resolver_instead": chain(
        "redirected questions: check mark and interface once more",
        "meta mark . oifname vmap @pairs",
        'oifname "lo" accept',
        "goto to_neighbour",
    ),
}
