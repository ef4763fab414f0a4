"""Packets from and to this machine itself.

Its own packets leave by the interface whose address they bear, or not at all.
"""

from __future__ import annotations

from typing import Final

from egressd.planner import api_guard, services_guard
from egressd.planner.chains.terms import KIND, NO_EPOCH, ROUTED
from egressd.planner.lines import guard as lines_guard
from egressd.planner.registry import ANSWER_PORT, MARK_ANSWER, MARK_DIRECT, MARK_ENGINE

_ERRORS: Final = "{ destination-unreachable, time-exceeded, parameter-problem }"
_ERRORS6: Final = "{ destination-unreachable, packet-too-big, time-exceeded, parameter-problem }"
_QUOTES_UDP: Final = "@th,136,8 17"
"""The protocol in the IPv4 header that begins 8 bytes behind the error's own (RFC 792)."""
_QUOTES_UDP6: Final = "@th,112,8 17"
"""The same of an IPv6 header without extensions (RFC 4443, 3; RFC 8200, 3)."""
_OF_ANOTHER_WAN: Final = "oifname @outside ip saddr @own fib saddr . oif type != local drop"
"""The rule that drops packets of this machine that leave by a WAN other than that of their source
address. Policy rules route them to the right one; this rule is for packets that were routed before
they had an address (raw sockets), and for policy rules that are still missing."""

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "input": (
        "type filter hook input priority filter; policy accept;",
        # On its way to an instance: the port is not one of this machine's.
        f"{KIND} {MARK_ENGINE:#x} iifname @lanif accept",
        f"{KIND} {MARK_ENGINE:#x} iifname @localif accept",
        f"iifname @localif meta mark {ROUTED} goto from_local_to_router",
        "meta l4proto tcp goto input_tcp",
        *lines_guard.INPUT,
        f"icmp type {_ERRORS} {_QUOTES_UDP} jump about_datagram",
        "meta nfproto ipv6 jump input6",
        "udp dport { 53, 853 } iifname @lanif jump dns_to_router",
        *services_guard.INPUT,
        *lines_guard.STRANGERS,
        # Sockets of the engine's answers read nothing.
        f"udp dport {ANSWER_PORT} drop",
        "meta l4proto udp goto unknown_flow",
    ),
    "input_tcp": (
        "tcp dport @services jump to_service",
        *api_guard.INPUT,
        "tcp dport { 53, 853 } iifname @lanif jump dns_to_router",
        *lines_guard.STRANGERS,
        "tcp flags & (fin | syn | rst | ack) != syn goto unknown_flow",
    ),
    "input6": (
        # Answers of DHCPv6 (RFC 8415, 7.2: port 546) name no router, but resolvers and addresses.
        "icmpv6 type { nd-router-advert, nd-redirect } iifname @unheard goto router_of_ours",
        "udp dport 546 iifname @unheard goto router_of_ours",
        f"icmpv6 type {_ERRORS6} {_QUOTES_UDP6} jump about_datagram",
    ),
    "about_datagram": (
        # An ICMP error that quotes the addresses and ports of an engine's datagram may be forged,
        # and would end the session. A node that has gone is noticed by its silence.
        f"socket mark {ROUTED} goto about_engines_datagram",
    ),
    "about_engines_datagram": (
        # Only these errors report the path MTU. They end no session
        # (`egressd.netd.engine.fragments`), and reduce no path below 1,280 bytes: for IPv4 see
        # sysctls, for IPv6 RFC 8200, 5.
        "icmp type destination-unreachable icmp code frag-needed ct state related accept",
        "icmpv6 type packet-too-big ct state related accept",
        "drop",
    ),
    "router_of_ours": (
        "iifname . ip6 saddr @routers6 accept",
        "update @advertised { iifname . ip6 saddr }",
        "drop",
    ),
    "unknown_flow": (
        # An answer to a client whose flow conntrack has lost looks like a packet for this machine.
        # A reset or an ICMP error would end a flow that continues once the client sends again, and
        # a flow that begins in the wrong direction would take its place.
        "meta nfproto ipv6 accept",
        "iifname != @outside accept",
        "socket wildcard { 0, 1 } accept",
        "drop",
    ),
    "output": (
        "type filter hook output priority filter; policy accept;",
        "meta l4proto tcp goto output_tcp",
        *lines_guard.OUTPUT,
        f"meta mark {ROUTED} goto from_engine",
        f"{KIND} {MARK_ANSWER:#x} goto answer_in_a_name",
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
    "output_tcp": (
        f"meta mark {ROUTED} goto from_engine",
        *api_guard.OUTPUT,
        # Clients may use any address of this machine; instances answer at each.
        "tcp sport @services fib saddr type local jump from_service",
        # The engine's answers to clients bear the address that the client asked.
        "oifname @lanif ip daddr @lannet ip saddr != @lannet goto to_client",
        _OF_ANOTHER_WAN,
    ),
    "about_flow": (
        # An error of this machine to a far end about a client's flow (its answer could not be
        # delivered) quotes the flow, and bears its address: it leaves by the same interface.
        f"meta mark set ct mark & {NO_EPOCH:#x}",
        "goto from_engine",
    ),
    "own_error": (
        # An error about a flow of the engine, whose socket has gone, quotes a packet for a client.
        # It leaves by the interface that has its address or not at all.
        "ip daddr @lannet accept",
        'oifname "lo" accept',
        "fib saddr . oif type != local drop",
    ),
    "from_engine": (
        # The engine's own sockets, bound to one interface or to none (DIRECT), leave by an egress
        # of their mark or not at all, regardless of the routers that this machine listens to.
        "oifname @lanif ip daddr @lannet meta skuid != 0 goto to_inner",
        "oifname @lanif ip6 daddr { fe80::/10, fc00::/7 } meta skuid != 0 drop",
        "meta mark . oifname vmap @pairs",
        "goto to_inner",
    ),
    "to_inner": (
        "meta l4proto { tcp, udp } th dport 53 ip daddr @resolvers goto to_resolver",
        # A node's server may be a neighbour only if the node's configuration has its address: the
        # owner of a name can change its address at any time. netd asks the servers that it was
        # configured to ask.
        f"{KIND} {MARK_DIRECT:#x} ip daddr @neighbours goto to_neighbour",
        f"{KIND} {MARK_DIRECT:#x} meta skuid 0 goto to_neighbour",
        "drop",
    ),
    "to_neighbour": (
        "oifname @lanif ip daddr @lannet accept",
        "oifname @localif ip daddr @localnet accept",
        "drop",
    ),
}
