"""Forwarded packets (hook forward): the mark and the outgoing interface have to agree."""

from __future__ import annotations

from typing import Final

from egressd.planner import lease_rules
from egressd.planner.chains.terms import KIND
from egressd.planner.declared import Chain, base_chain, chain
from egressd.planner.registry import (
    MARK_LOCAL,
)

CHAINS: Final[dict[str, Chain]] = {
    "forward": base_chain(
        "type filter hook forward priority filter; policy accept;",
        "forwarded packets by where they come from and go to",
        "iifname @lanif goto forward_from_lan",
        "oifname @lanif goto forward_to_lan",
        "iifname @localif goto forward_from_local",
        "goto forward_from_elsewhere",
    ),
    "forward_from_elsewhere": chain(
        "from no LAN and to none: nothing between WANs, nothing of clients",
        *lease_rules.TO_LOCAL,
        # A LAN that is treated as a WAN (see topology.discover), and answers for addresses that no
        # LAN has any more: nothing is forwarded from one WAN or line to another.
        "iifname @outside oifname @outside drop",
        # It may be a LAN that netd has not looked at yet, or one that was renamed.
        "iifname != @seen drop",
        # A client with a rule, on a LAN that the configuration does not name.
        "meta nfproto ipv4 meta mark set ip saddr map @hosts drop",
    ),
    "forward_from_local": chain(
        "from a local network: mark and outgoing interface have to agree",
        "oifname @localif ip daddr @localnet accept",
        f"{KIND} {{ 0, {MARK_LOCAL:#x} }} goto forward_from_elsewhere",
        "meta mark . oifname vmap @pairs",
        "drop",
    ),
    "forward_from_lan": chain(
        "from a LAN: mark and outgoing interface have to agree",
        "meta mark . oifname vmap @pairs",
        "oifname @lanif ip daddr @lannet goto between_lans",
        "oifname @localif ip daddr @localnet accept",
        "drop",
    ),
    "between_lans": chain(
        "from LAN to LAN; in one-arm use also answers from outside",
        "ip saddr @lannet accept",
        # In one-arm use answers from outside come in by the LAN.
        "goto to_client",
    ),
    "to_narrow": chain(
        "out by a smaller MTU: lower the MSS in the SYN",
        # Announce an MSS that fits, because ICMP errors do not reach every far end (RFC 2923, 2.1).
        "tcp flags syn tcp option maxseg size set rt mtu",
        "accept",
    ),
    "forward_to_lan": chain(
        "to a LAN: answers, port forwards, local networks, routed multicast",
        *lease_rules.TO_LAN,
        "ct state established,related goto to_client",
        "ct status dnat goto to_client",
        "iifname @localif ip saddr @localnet accept",
        *lease_rules.INTO_LAN,
        "ip daddr 224.0.0.0/4 iifname @multicast accept",
        "drop",
    ),
    "to_client": chain(
        "count the bytes that a client receives, accept",
        *lease_rules.TO_CLIENT,
        "ip daddr @received accept",
        "ip daddr @received_nets accept",
        "accept",
    ),
}
