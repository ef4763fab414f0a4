"""Packets to this machine (hook input), those to instances of the engine included."""

from __future__ import annotations

import sys
from ipaddress import IPv4Address
from typing import Final

from egressd.planner import api_guard, lease_rules, proxy_service_rules
from egressd.planner.chains.terms import KIND, ROUTED
from egressd.planner.declared import Chain, base_chain, chain
from egressd.planner.lines import line_rules as lines_guard
from egressd.planner.registry import (
    ANSWER_PORT,
    APART,
    MARK_ENGINE,
    MARK_UNMANAGED,
)

_ERRORS: Final = "{ destination-unreachable, time-exceeded, parameter-problem }"
_ERRORS6: Final = "{ destination-unreachable, packet-too-big, time-exceeded, parameter-problem }"
_QUOTES_UDP: Final = "@th,136,8 17"
"""The protocol in the IPv4 header that begins 8 bytes behind the error's own (RFC 792)."""
_QUOTES_UDP6: Final = "@th,112,8 17"
"""The same of an IPv6 header without extensions (RFC 4443, 3; RFC 8200, 3)."""


def _as_hashed(address: IPv4Address) -> int:
    """Return an address as a number in the byte order of the machine, as hashes are."""
    return int.from_bytes(address.packed, sys.byteorder)


_LOOKED_INTO: Final = (
    # The whitelist does not apply to clients without a rule.
    f"iifname @lanif {KIND} {MARK_ENGINE:#x} meta mark != {MARK_UNMANAGED:#x}"
    " meta l4proto udp meta l4proto . th dport @wlports"
)

CHAINS: Final[dict[str, Chain]] = {
    "input": base_chain(
        "type filter hook input priority filter; policy accept;",
        "packets to this machine: engine, VPN lines, ICMP errors, UDP",
        # On its way to an instance: the port is not one of this machine's.
        f"{KIND} {MARK_ENGINE:#x} iifname @lanif accept",
        f"{KIND} {MARK_ENGINE:#x} iifname @localif accept",
        f"iifname @localif meta mark {ROUTED} goto from_local_to_router",
        "meta l4proto tcp goto input_tcp",
        *lines_guard.INPUT,
        f"icmp type {_ERRORS} {_QUOTES_UDP} jump about_datagram",
        "meta nfproto ipv6 jump input6",
        "udp dport { 53, 853 } iifname @lanif jump dns_to_router",
        *proxy_service_rules.INPUT,
        *lines_guard.STRANGERS,
        # Sockets of the engine's answers read nothing.
        f"udp dport {ANSWER_PORT} drop",
        "meta l4proto udp goto unknown_flow",
    ),
    "input_tcp": chain(
        "TCP to this machine: proxy services, API, DNS, resets of unknown flows",
        *lease_rules.TO_SERVICE,
        "tcp dport @services jump to_service",
        *api_guard.INPUT,
        "tcp dport { 53, 853 } iifname @lanif jump dns_to_router",
        *lines_guard.STRANGERS,
        "tcp flags & (fin | syn | rst | ack) != syn goto unknown_flow",
    ),
    "input6": chain(
        "IPv6 to this machine: only accepted routers configure it",
        # Answers of DHCPv6 (RFC 8415, 7.2: port 546) name no router, but resolvers and addresses.
        "icmpv6 type { nd-router-advert, nd-redirect } iifname @unheard goto router_of_ours",
        "udp dport 546 iifname @unheard goto router_of_ours",
        f"icmpv6 type {_ERRORS6} {_QUOTES_UDP6} jump about_datagram",
    ),
    "about_datagram": chain(
        "ICMP errors that quote UDP: is it about an engine socket?",
        # An ICMP error that quotes the addresses and ports of an engine's datagram may be forged,
        # and would end the session. A node that has gone is noticed by its silence.
        f"socket mark {ROUTED} goto about_engines_datagram",
    ),
    "about_engines_datagram": chain(
        "about an engine socket: only path MTU errors are accepted",
        # Only these errors report the path MTU. They end no session
        # (`egressd.netd.engine.fragments`), and reduce no path below 1,280 bytes: for IPv4 see
        # sysctls, for IPv6 RFC 8200, 5.
        "icmp type destination-unreachable icmp code frag-needed ct state related accept",
        "icmpv6 type packet-too-big ct state related accept",
        "drop",
    ),
    "router_of_ours": chain(
        "accept the routers of the set routers6, remember and drop others",
        "iifname . ip6 saddr @routers6 accept",
        "update @advertised { iifname . ip6 saddr }",
        "drop",
    ),
    "unknown_flow": chain(
        "packets from WANs and lines for no socket are dropped without an answer",
        # An answer to a client whose flow conntrack has lost looks like a packet for this machine.
        # A reset or an ICMP error would end a flow that continues once the client sends again, and
        # a flow that begins in the wrong direction would take its place.
        "meta nfproto ipv6 accept",
        "iifname != @outside accept",
        "socket wildcard { 0, 1 } accept",
        "drop",
    ),
    "from_local_to_router": chain(
        "from local clients to this machine: only DNS for a server here",
        "meta l4proto { tcp, udp } th dport 53 meta mark . ip daddr @here accept",
        "drop",
    ),
    "dns_to_router": chain(
        "DNS to this machine: only for clients whose DNS server is here",
        # The resolver of the client's questions may be on this machine.
        "meta mark . ip daddr @here return",
        # A kernel-routed client's question without a resolver of its own stops here.
        f"meta mark {ROUTED} th dport 53 drop",
        "meta nfproto ipv6 reject",
    ),
    "input_apart": base_chain(
        "type nat hook input priority 100; policy accept;",
        "UDP with domain look-up: source NAT, so that each destination is a session",
        # To the engine all UDP from one address and port is one session, with the destination of
        # its first packet. On ports where domains are looked for, each destination must be a
        # session of its own: its packets get a source address of their own.
        f"{_LOOKED_INTO} snat ip to (jhash ip saddr . ip daddr . udp dport mod {0xFFFF_FFFF})"
        f" & {_as_hashed(APART.hostmask):#x} | {_as_hashed(APART[0]):#x} fully-random",
    ),
    "input_apart_last": base_chain(
        "type filter hook input priority 200; policy accept;",
        "flows from before their port was listed are dropped",
        # A flow from before its port was listed; the tidier ends it.
        f"{_LOOKED_INTO} ip saddr != {APART} drop",
    ),
}
