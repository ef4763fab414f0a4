"""Forwarded packets: the mark and the outgoing interface have to agree."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import KIND, ROUTED
from egressd.planner.registry import MARK_LOCAL

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "forward": (
        "type filter hook forward priority filter; policy accept;",
        "iifname @lanif goto forward_from_lan",
        "oifname @lanif goto forward_to_lan",
        "iifname @localif goto forward_from_local",
        "goto forward_from_elsewhere",
    ),
    "forward_from_elsewhere": (
        # A LAN that is treated as a WAN (see topology.discover), and answers for addresses that no
        # LAN has any more: nothing is forwarded from one WAN or line to another.
        "iifname @outside oifname @outside drop",
        # It may be a LAN that netd has not looked at yet, or one that was renamed.
        "iifname != @seen drop",
        # A client with a rule, on a LAN that the configuration does not name.
        "meta nfproto ipv4 meta mark set ip saddr map @hosts drop",
    ),
    "forward_from_local": (
        "oifname @localif ip daddr @localnet accept",
        f"{KIND} {{ 0, {MARK_LOCAL:#x} }} goto forward_from_elsewhere",
        "meta mark . oifname vmap @pairs",
        "drop",
    ),
    "forward_from_lan": (
        "meta mark . oifname vmap @pairs",
        "oifname @lanif ip daddr @lannet goto between_lans",
        "oifname @localif ip daddr @localnet accept",
        "drop",
    ),
    "between_lans": (
        "ip saddr @lannet accept",
        # In one-arm use answers from outside come in by the LAN.
        "goto to_client",
    ),
    "to_narrow": (
        # Announce an MSS that fits, because ICMP errors do not reach every far end (RFC 2923, 2.1).
        "tcp flags syn tcp option maxseg size set rt mtu",
        "accept",
    ),
    "forward_to_lan": (
        "ct state established,related goto to_client",
        "ct status dnat goto to_client",
        "iifname @localif ip saddr @localnet accept",
        "ip daddr 224.0.0.0/4 iifname @multicast accept",
        "drop",
    ),
    "to_client": (
        "ip daddr @received accept",
        "ip daddr @received_nets accept",
        "accept",
    ),
    "postrouting_nat": (
        "type nat hook postrouting priority srcnat; policy accept;",
        f"meta mark {ROUTED} ip saddr @lannet fib saddr type != local masquerade",
        f"meta mark {ROUTED} ip saddr @localnet fib saddr type != local masquerade",
        # A question that output_dns redirected bears the source address for its former destination.
        "ct status dnat ct direction original meta l4proto { tcp, udp } th dport 53"
        " fib saddr type local fib saddr . oif type != local masquerade",
    ),
    "postrouting_last": (
        "type filter hook postrouting priority 300; policy accept;",
        # A client's own address never shows outside.
        "ip saddr @lannet ip daddr != @lannet ip daddr != @localnet fib saddr type != local drop",
        f"meta mark {ROUTED} ip saddr @localnet fib saddr type != local drop",
        f"ct status dnat ct direction original meta mark {ROUTED} meta l4proto {{ tcp, udp }}"
        " th dport 53 goto to_resolver_instead",
    ),
}
