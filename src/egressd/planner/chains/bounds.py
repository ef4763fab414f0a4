"""Limits on the flows and questions that one client may have open in the engine: further ones are
refused, and only this client has fewer.

New flows are counted where they get their mark, so that packets of known flows cost nothing. Once a
client has reached a bound its new flows are refused for two seconds without being counted (`ct
count` looks at each existing one), and netd finds the client in a set for that time
(`egressd.netd.health.refused_sources`). The figures are those of `egressd.planner.bounds`.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.bounds import (
    ASKING_CONNECTIONS,
    NETWORKS_QUESTIONS_AT_ONCE,
    NETWORKS_QUESTIONS_PER_S,
    QUESTION_BYTES_AT_ONCE,
    QUESTION_BYTES_PER_S,
    QUESTIONS_AT_ONCE,
    QUESTIONS_PER_S,
    RESOLVERS_QUESTIONS_AT_ONCE,
    RESOLVERS_QUESTIONS_PER_S,
)
from egressd.planner.declared import Chain, SetSpec, chain

_COUNTED: Final = "type ipv4_addr; size 65535; flags dynamic"
_METERED: Final = "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m"
_REFUSED: Final = "type ipv4_addr; size 65535; counter; flags dynamic,timeout; timeout 2s"

_NETWORK: Final = "ip saddr & 255.255.255.0"
"""The key by which addresses without a rule of their own are metered: a host may use many of
them."""

SETS: Final = {
    # Packets fill all of these sets but `greedy`.
    "tcp_of": SetSpec(
        _COUNTED, "TCP connections in the engine by client (ct count); filled by packets"
    ),
    "udp_of": SetSpec(_COUNTED, "UDP flows in the engine by client (ct count); filled by packets"),
    "dns_of": SetSpec(
        _COUNTED, "TCP connections to resolvers by client (ct count); filled by packets"
    ),
    # Filled by netd: clients with more open sockets than flows in connection tracking.
    "greedy": SetSpec(
        "type ipv4_addr . inet_proto",
        "clients with too many engine sockets, by protocol; filled by netd",
    ),
    "sessions": SetSpec(
        "type ipv4_addr . inet_service; size 65535; flags dynamic,timeout; timeout 5m",
        "UDP sessions in the engine: client and source port; filled by packets",
    ),
    "sessions_of": SetSpec(_METERED, "rate of new UDP sessions by client; filled by packets"),
    "sessions_of_networks": SetSpec(
        _METERED, "rate of new UDP sessions by /24, of addresses without a rule of their own"
    ),
    "questions_of": SetSpec(_METERED, "rate of DNS questions by UDP, by client; filled by packets"),
    "question_bytes_of": SetSpec(
        _METERED, "rate of DNS bytes by TCP, by client; filled by packets"
    ),
    "questions_of_resolvers": SetSpec(
        _METERED, "rate of DNS questions of resolvers in a LAN; filled by packets"
    ),
    "questions_of_networks": SetSpec(
        _METERED, "rate of DNS questions by /24, of addresses without a rule of their own"
    ),
    # Clients that have reached a bound, with the number of refused packets.
    "full_tcp": SetSpec(
        _REFUSED, "clients at their bound of TCP connections, with refused packets"
    ),
    "full_udp": SetSpec(_REFUSED, "clients at their bound of UDP sessions, with refused packets"),
    "full_networks": SetSpec(
        _REFUSED, "/24 networks at their bound of UDP sessions, with refused packets"
    ),
    "full_dns": SetSpec(
        _REFUSED, "clients at their bound of connections to resolvers, with refused packets"
    ),
    "full_questions": SetSpec(
        _REFUSED, "clients beyond their rate of DNS questions, with dropped packets"
    ),
}


def _drop_beyond(per_s: str, at_once: str, meter: str, key: str = "ip saddr") -> str:
    """Return the statement that drops questions beyond a rate, for each value of `key`."""
    rate = f"limit rate over {per_s}/second burst {at_once}"
    return f"update @{meter} {{ {key} {rate} }} goto drop_question"


_BY_TCP: Final = _drop_beyond(
    f"{QUESTION_BYTES_PER_S} kbytes", f"{QUESTION_BYTES_AT_ONCE} kbytes", "question_bytes_of"
)

CHAINS: Final[dict[str, Chain]] = {
    "begin": chain(
        "new flows to the engine: the client's bounds, then pin the flow",
        # Packets that an instance hands back were counted when they came from the client.
        'iifname "lo" ct mark set meta mark return',
        "ip saddr . meta l4proto @greedy th dport != 53 goto deny",
        "meta l4proto tcp goto begin_tcp",
        # Questions are metered, not the flows that carry them.
        "udp dport 53 ct mark set meta mark return",
        "ip saddr @full_udp goto deny",
        # All datagrams from one port are one session to the engine, except on ports where domains
        # are looked for.
        "ip saddr . udp sport @sessions meta l4proto . udp dport != @wlports goto begin_udp",
        "update @sessions_of { ip saddr limit rate over $sessions_per_s/second"
        " burst $sessions packets } update @full_udp { ip saddr } goto deny",
        "jump begin_in_network",
        "update @sessions { ip saddr . udp sport }",
        "goto begin_udp",
    ),
    "begin_in_network": chain(
        "bound of UDP sessions by /24, of addresses without a rule of their own",
        # nftables looks into a map only to take its value, which overwrites the mark: it is saved
        # meanwhile.
        "ct mark set meta mark",
        "meta mark set ip saddr map @hosts goto begin_by_own_rule",
        "ct mark set 0",
        f"update @sessions_of_networks {{ {_NETWORK} limit rate over $network_sessions_per_s/second"
        f" burst $network_sessions packets }} update @full_networks {{ {_NETWORK} }} goto deny",
    ),
    "begin_by_own_rule": chain(
        "a client with a rule of its own is not counted by network",
        "meta mark set ct mark",
        "ct mark set 0",
    ),
    "begin_udp": chain(
        "bound of UDP flows by client",
        "add @udp_of { ip saddr ct count over $flows } update @full_udp { ip saddr } goto deny",
        "ct mark set meta mark",
    ),
    "begin_tcp": chain(
        "bounds of TCP connections and connections to resolvers by client",
        "tcp dport 53 ip saddr @full_dns goto deny",
        f"tcp dport 53 add @dns_of {{ ip saddr ct count over {ASKING_CONNECTIONS} }}"
        " update @full_dns { ip saddr } goto deny",
        "tcp dport 53 ct mark set meta mark return",
        "ip saddr @full_tcp goto deny",
        "add @tcp_of { ip saddr ct count over $connections }"
        " update @full_tcp { ip saddr } goto deny",
        "ct mark set meta mark",
    ),
    "metered": chain(
        "DNS questions beyond the rate of a client are dropped",
        "meta l4proto udp "
        + _drop_beyond(str(QUESTIONS_PER_S), f"{QUESTIONS_AT_ONCE} packets", "questions_of"),
        # A packet with data in it: the two rules together match any first byte.
        f"meta l4proto tcp @ih,0,8 != 0xff {_BY_TCP}",
        f"meta l4proto tcp @ih,0,8 0xff {_BY_TCP}",
    ),
    "metered_network": chain(
        "DNS questions beyond the rate of a /24, of addresses without a rule, are dropped",
        _drop_beyond(
            str(NETWORKS_QUESTIONS_PER_S),
            f"{NETWORKS_QUESTIONS_AT_ONCE} packets",
            "questions_of_networks",
            _NETWORK,
        ),
    ),
    "metered_resolver": chain(
        "DNS questions beyond the rate of a resolver in a LAN are dropped",
        _drop_beyond(
            str(RESOLVERS_QUESTIONS_PER_S),
            f"{RESOLVERS_QUESTIONS_AT_ONCE} packets",
            "questions_of_resolvers",
        ),
    ),
    "drop_question": chain(
        "DNS question beyond a rate: remember the client, drop",
        "update @full_questions { ip saddr }",
        "drop",
    ),
}
