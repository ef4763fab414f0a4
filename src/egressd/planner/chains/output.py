"""Packets of this machine (hook output): they leave by the interface whose address they bear, and
those of the engine by an egress of their mark, or not at all.
"""

from __future__ import annotations

from typing import Final

from egressd.planner import api_guard, lease_rules
from egressd.planner.chains.terms import KIND, MARK_OF_FLOW, ROUTED
from egressd.planner.declared import Chain, base_chain, chain
from egressd.planner.lines import line_rules as lines_guard
from egressd.planner.registry import (
    MARK_ANSWER,
    MARK_DIRECT,
)

_OF_ANOTHER_WAN: Final = "oifname @outside ip saddr @own fib saddr . oif type != local drop"
"""The rule that drops packets of this machine that leave by a WAN other than that of their source
address. Policy rules route them to the right one; this rule is for packets that were routed before
they had an address (raw sockets), and for policy rules that are still missing."""

CHAINS: Final[dict[str, Chain]] = {
    "output": base_chain(
        "type filter hook output priority filter; policy accept;",
        "packets of this machine leave by the interface of their address or not at all",
        "meta l4proto tcp goto output_tcp",
        *lines_guard.OUTPUT,
        f"meta mark {ROUTED} goto from_engine",
        f"{KIND} {MARK_ANSWER:#x} goto answer_in_a_name",
        *lease_rules.FROM_RELAY,
        # The engine's answers to clients bear the address that the client asked.
        "oifname @lanif ip daddr @lannet ip saddr != @lannet goto answer",
        # No IPv6 is forwarded, so these errors concern clients, and quote their packets. A LAN that
        # was down has lost its IPv6 addresses: the route to its clients is then by a WAN.
        'icmpv6 type < 128 oifname != @lanif oifname != "lo" drop',
        f"meta l4proto icmp ct state related ct mark {ROUTED} ip daddr != @lannet goto about_flow",
        "icmp type { destination-unreachable, time-exceeded, parameter-problem } goto own_error",
        # Answers to an address of input_apart have just been translated back to the client's
        # address; their interface is still the old one.
        'oifname "lo" ct direction reply ct status snat goto to_client',
        _OF_ANOTHER_WAN,
    ),
    "output_tcp": chain(
        "TCP of this machine leaves by the interface of its address or not at all",
        f"meta mark {ROUTED} goto from_engine",
        *api_guard.OUTPUT,
        # Clients may use any address of this machine; instances answer at each.
        *lease_rules.FROM_SERVICE,
        "tcp sport @services fib saddr type local jump from_service",
        # The engine's answers to clients bear the address that the client asked.
        "oifname @lanif ip daddr @lannet ip saddr != @lannet goto to_client",
        _OF_ANOTHER_WAN,
    ),
    "about_flow": chain(
        "ICMP errors about a kernel-routed flow leave by its egress",
        # An error of this machine to a far end about a client's flow (its answer could not be
        # delivered) quotes the flow, and bears its address: it leaves by the same interface.
        MARK_OF_FLOW,
        "goto from_engine",
    ),
    "own_error": chain(
        "other ICMP errors: to LANs, or by the interface of their address",
        # An error about a flow of the engine, whose socket has gone, quotes a packet for a client.
        # It leaves by the interface that has its address or not at all.
        "ip daddr @lannet accept",
        'oifname "lo" accept',
        "fib saddr . oif type != local drop",
    ),
    "from_engine": chain(
        "sockets of the engine leave by an egress of their mark or not at all",
        *lease_rules.FROM_ENGINE,
        # The engine's own sockets, bound to one interface or to none (DIRECT), leave by an egress
        # of their mark or not at all, regardless of the routers that this machine listens to.
        "oifname @lanif ip daddr @lannet meta skuid != 0 goto to_inner",
        "oifname @lanif ip6 daddr { fe80::/10, fc00::/7 } meta skuid != 0 drop",
        "meta mark . oifname vmap @pairs",
        "goto to_inner",
    ),
    "to_inner": chain(
        "engine to a LAN or local host: DNS and configured nodes only",
        "meta l4proto { tcp, udp } th dport 53 ip daddr @resolvers goto to_resolver",
        # A node's server may be a neighbour only if the node's configuration has its address: the
        # owner of a name can change its address at any time. netd asks the servers that it was
        # configured to ask.
        f"{KIND} {MARK_DIRECT:#x} ip daddr @neighbours goto to_neighbour",
        f"{KIND} {MARK_DIRECT:#x} meta skuid 0 goto to_neighbour",
        "drop",
    ),
    "to_neighbour": chain(
        "to a host in a LAN or local network",
        "oifname @lanif ip daddr @lannet accept",
        "oifname @localif ip daddr @localnet accept",
        "drop",
    ),
    "to_resolver": chain(
        "engine to a DNS server in a LAN, local network or on this machine",
        # If output_dns has replaced the resolver that was asked, this hook still names the
        # interface of the old route. The chain postrouting_last checks again.
        "ct status dnat accept",
        # A resolver on this machine or on a network behind it is asked there.
        'oifname "lo" accept',
        "goto to_neighbour",
    ),
    "output_dns": base_chain(
        "type nat hook output priority -100; policy accept;",
        "questions of the engine: DNAT to the DNS server in use",
        # The engine's own questions, such as the names of nodes' servers. netd's own questions,
        # which check that resolvers answer, keep their destination.
        "meta skuid != 0 meta l4proto { tcp, udp } th dport 53 goto engines_question",
    ),
    "engines_question": chain(
        "DNAT of the engine's question if its DNS server does not answer",
        f"meta mark {ROUTED} update @questions {{ meta mark }}",
        "dnat ip to meta mark . ip daddr map @substitutes",
    ),
}
