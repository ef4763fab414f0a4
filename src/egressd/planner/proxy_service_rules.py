"""Sets and chains of local proxy services: access control, and the owners of UDP associations.

`planner.chains` has the rest of the table, and jumps here: from ``input`` with packets for a
service or a relay, from ``output`` with answers of a service. ``docs/proxy-services.md`` describes
the service for operators, ``docs/proxy-handshake.md`` the bytes that the rules read.
"""

from __future__ import annotations

from typing import Final

from egressd.planner import lease_rules
from egressd.planner.declared import Chain, SetSpec, chain
from egressd.planner.registry import (
    HASH_SEED,
    MARK_ASKING,
    MARK_ASKING_BY_HTTP,
    MARK_CALLER,
    MARK_PAST,
    MARK_SIGNED_IN,
)

_GUESSES: Final = "10/minute burst 9 packets"
"""Wrong passwords that a source may send to proxy services: the tenth makes it wait."""
_TRIES: Final = "10/minute burst 10 packets"
"""Connections of a source whose first packet with data is accepted before one of them
authenticates. Data on all others waits, so that a burst of guesses reaches the throttle before it
is evaluated."""
_STRANGERS: Final = "60/minute burst 60 packets"
"""Connections of a source that has not authenticated for ten minutes. Each is ended after
`HANDSHAKE_S`, so that there are some 70 at most."""
_OF_A_NETWORK: Final = "120/minute burst 120 packets"
"""Connections of all such sources outside of LANs in one /24."""
_AT_A_SERVICE: Final = "20/second burst 200 packets"
"""Connections of all such sources to one service: some 400 at most."""
_AT_ALL: Final = "50/second burst 500 packets"
"""Connections of all such sources to all services: some 1,000 at most."""

HANDSHAKE_S: Final = 10.0
"""Seconds within which a client has to authenticate, or be granted its request."""
_HTTP: Final = f"0x{b'HTTP/'.hex()}"
_REQUEST: Final = f"@ih,0,8 {ord('A'):#x}-{ord('Z'):#x}"
"""A packet that begins with an upper-case letter, as the method of a request does. SOCKS begins
with its version."""
_PROXY_AUTHENTICATION_REQUIRED: Final = f"0x{b' 407'.hex()}"


def _associated(place: int) -> tuple[str, ...]:
    """Return the rules for a service's answer that announces a UDP relay: they record its owner.

    `place`: the offset of the relay's port, in bits. A previous owner of the port loses it, because
    each association has a new number.
    """
    port = f"@ih,{place},16"
    return (
        f"meta mark set numgen random mod {0xFFFF_FFFF}",
        f"delete @relay_ports {{ {port} : meta mark }}",
        f"update @relay_ports {{ {port} : meta mark }}",
        f"meta mark set {_association(f'ip daddr . {port}')}",
        "update @associations { meta mark }",
        "meta mark set 0",
        "goto past",
    )


def _association(caller_and_port: str) -> str:
    """Return the expression for client, port and the number in the mark. nftables 1.0.6 cannot have
    bytes of a payload in a key of several parts."""
    return f"jhash {caller_and_port} . meta mark mod {0xFFFF_FFFF} seed {HASH_SEED:#x}"


_FOR_A_WHILE: Final = "flags dynamic,timeout; timeout"
SETS: Final = {
    "services": SetSpec("type inet_service", "TCP ports of proxy services"),
    "lanonly": SetSpec(
        "type inet_service", "TCP ports of proxy services without a password: for LAN clients only"
    ),
    "guesses": SetSpec(
        "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 10m",
        "rate of wrong proxy passwords by source; filled by packets",
    ),
    "guessers": SetSpec(
        "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m",
        "sources that sent too many wrong proxy passwords; filled by packets",
    ),
    # Clients that have authenticated lately, and clients that are about to.
    "callers": SetSpec(
        "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 10m",
        "proxy clients that have authenticated lately; filled by packets",
    ),
    "tries": SetSpec(
        f"type ipv4_addr; size 65535; {_FOR_A_WHILE} 1m",
        "rate of first packets of unauthenticated proxy clients; filled by packets",
    ),
    "strangers": SetSpec(
        f"type ipv4_addr; size 65535; {_FOR_A_WHILE} 1m",
        "rate of connections of unauthenticated proxy clients; filled by packets",
    ),
    "strangers_of_networks": SetSpec(
        f"type ipv4_addr; size 65535; {_FOR_A_WHILE} 1m",
        "rate of connections of unauthenticated proxy clients by /24, outside of LANs",
    ),
    "strangers_at": SetSpec(
        f"type inet_service; size 65535; {_FOR_A_WHILE} 1m",
        "rate of connections of unauthenticated proxy clients by service",
    ),
    "all_strangers": SetSpec(
        f"type inet_proto; size 16; {_FOR_A_WHILE} 1m",
        "rate of connections of unauthenticated proxy clients to all services",
    ),
    # Filled by netd: clients that have reached the limit of connections.
    "busy_callers": SetSpec(
        "type ipv4_addr", "proxy clients at their limit of connections; filled by netd"
    ),
    "busy_outside": SetSpec(
        "type inet_proto",
        "has tcp while proxy clients outside of LANs are at their limit; filled by netd",
    ),
    # Clients that have reached a bound, with the number of packets beyond it.
    "full_strangers": SetSpec(
        f"type ipv4_addr . inet_service; size 65535; counter; {_FOR_A_WHILE} 10s",
        "unauthenticated proxy clients beyond a limit, with refused packets",
    ),
    "full_callers": SetSpec(
        f"type ipv4_addr; size 65535; counter; {_FOR_A_WHILE} 2s",
        "proxy clients beyond their limit of connections, with refused packets",
    ),
    "full_services": SetSpec(
        f"type inet_service; size 65535; counter; {_FOR_A_WHILE} 10s",
        "proxy services beyond their limit, with refused packets",
    ),
    "full_outside": SetSpec(
        f"type inet_proto; size 16; counter; {_FOR_A_WHILE} 2s",
        "has tcp after a refusal by the limit of proxy clients outside of LANs",
    ),
    "associations": SetSpec(
        "type mark; size 65535; flags dynamic,timeout; timeout 1h",
        "UDP associations of proxy services: hash of client, port and number",
    ),
}
MAPS: Final = {
    # No element ever expires: a relay may wait for its first datagram for days. Rules fill it from
    # the payload of an answer. nftables 1.1 takes bytes of a payload for a key of no other type,
    # and 1.0.6 compiles it to the same: two bytes, in network byte order.
    "relay_ports": SetSpec(
        "typeof @ih,64,16 : meta mark; size 131072; flags dynamic,timeout",
        "UDP relay port of a proxy service to the number of its association",
    ),
}
_UDP_PORT: Final = 16
"""Offset of the destination port in a UDP header, in bits (RFC 768)."""


def _by_port(header_words: int) -> str:
    """Return the statement that looks a datagram's destination port up in `relay_ports`.

    `header_words`: the length of the IPv4 header in words of 32 bits. The port is read by its place
    behind that header, because ``udp dport`` has a type that is not the map's.
    """
    return f"meta mark set @nh,{header_words * 32 + _UDP_PORT},16 map @relay_ports"


_WITHOUT_OPTIONS: Final = 5  # words of 32 bits (IHL, RFC 791, 3.1)
INPUT: Final = (
    # An IPv4 header without options, as nearly every one is. Packets from the loopback may be on
    # their way to an instance, too.
    f'meta l4proto udp @nh,0,8 {0x40 | _WITHOUT_OPTIONS:#x} iifname != "lo"'
    f" {_by_port(_WITHOUT_OPTIONS)} jump to_relay",
    f'meta l4proto udp ip hdrlength > {_WITHOUT_OPTIONS} iifname != "lo" jump behind_options',
)
CHAINS: Final[dict[str, Chain]] = {
    "to_service": chain(
        "packets to a proxy service: LAN only, waiting sources, limits",
        # A proxy service that asks for no password is for LAN clients.
        'tcp dport @lanonly ip saddr != @lannet iifname != "lo" reject with tcp reset',
        # The resets by which `from_service` ends a connection.
        'iifname "lo" tcp flags rst return',
        # Sources that guess passwords have to wait, and so do connections that were opened
        # beforehand.
        f"ct mark != {{ {MARK_SIGNED_IN:#x}, {MARK_PAST:#x} }} ip saddr @guessers"
        " reject with tcp reset",
        f"ct mark {MARK_PAST:#x} return",
        # CONNECT, with an address of either kind: the answer to it announces no relay.
        f"ct mark {MARK_SIGNED_IN:#x} @ih,0,32 {{ 0x05010001, 0x05010003, 0x05010004 }}"
        f" ct mark set {MARK_PAST:#x} return",
        f"ct mark {{ {MARK_ASKING:#x}, {MARK_ASKING_BY_HTTP:#x}, {MARK_SIGNED_IN:#x} }} return",
        # Only established connections are counted, because a SYN may have a forged source.
        "tcp flags & (syn | rst) != 0 return",
        f"ct mark != {MARK_CALLER:#x} jump let_in",
        # A packet with data in it: the two rules together match any first byte.
        "@ih,0,8 != 0xff goto first_words",
        "@ih,0,8 0xff goto first_words",
    ),
    "let_in": chain(
        "limits on connections of unauthenticated proxy clients",
        "tcp dport @lanonly goto let_in_inside",
        "ip saddr @callers goto let_in_known",
        f"update @strangers {{ ip saddr limit rate over {_STRANGERS} }} goto too_many_strangers",
        'iifname "lo" goto let_in_inside',
        "ip saddr @lannet goto let_in_inside",
        "update @strangers_of_networks"
        f" {{ ip saddr & 255.255.255.0 limit rate over {_OF_A_NETWORK} }} goto too_many_strangers",
        f"update @strangers_at {{ tcp dport limit rate over {_AT_A_SERVICE} }} goto full_service",
        f"update @all_strangers {{ meta l4proto limit rate over {_AT_ALL} }} goto full_service",
        "goto let_in_known",
    ),
    "let_in_known": chain(
        "limit on connections of proxy clients outside of LANs",
        'iifname "lo" goto let_in_inside',
        "ip saddr @lannet goto let_in_inside",
        # This limit does not apply to LAN clients.
        "meta l4proto @busy_outside update @full_outside { meta l4proto } goto no_place",
        "goto let_in_inside",
    ),
    # A chain of its own, because nftables 1.1 refuses it beside a look-up of the protocol.
    "no_place": chain(
        "refuse: proxy clients outside of LANs are at their limit", "reject with tcp reset"
    ),
    "let_in_inside": chain(
        "limit on connections of one proxy client; mark the connection",
        "ip saddr @busy_callers update @full_callers { ip saddr } reject with tcp reset",
        f"ct mark set {MARK_CALLER:#x}",
    ),
    "too_many_strangers": chain(
        "refuse, and remember source and service",
        "update @full_strangers { ip saddr . tcp dport }",
        "reject with tcp reset",
    ),
    "full_service": chain(
        "refuse, and remember the service",
        "update @full_services { tcp dport }",
        "reject with tcp reset",
    ),
    "first_words": chain(
        "first packet with data of a proxy client: rate limit, SOCKS or HTTP",
        # A dropped packet is sent again, until it is this connection's turn.
        f"tcp dport != @lanonly update @tries {{ ip saddr limit rate over {_TRIES} }} drop",
        f"{_REQUEST} ct mark set {MARK_ASKING_BY_HTTP:#x} return",
        f"ct mark set {MARK_ASKING:#x}",
    ),
    "from_service": chain(
        "answers of a proxy service: wrong password, authenticated, granted",
        # Data from a tunnel's far end is not inspected.
        f"ct mark {MARK_PAST:#x} return",
        # Guesses sent all at once get no result: their connections end before that, right guess or
        # wrong.
        f"ct mark != {MARK_SIGNED_IN:#x} ip daddr @guessers tcp flags & rst == 0"
        " reject with tcp reset",
        # The answer to a wrong password: status 1 (RFC 1929), or HTTP's 407. If the client does not
        # wait for each answer, several may leave together: here the answer to the greeting precedes
        # it.
        "@ih,0,16 0x0101 goto guessed",
        "@ih,0,32 0x05020101 goto guessed",
        f"@ih,0,40 {_HTTP} goto answered_by_http",
        # Status 0, or no password required; then, or already in the same packet, the request is
        # granted.
        "@ih,0,48 { 0x010005000001, 0x050005000001 } goto associated_after_2",
        "@ih,0,64 0x0502010005000001 goto associated_after_4",
        "@ih,0,32 0x05000001 goto associated",
        "@ih,0,8 0x05 @ih,16,8 0x00 goto past",
        "@ih,0,16 { 0x0100, 0x0500 } goto signed_in",
        "@ih,0,32 0x05020100 goto signed_in",
        # SOCKS4, which asks for no password.
        "@ih,0,16 0x005a goto past",
    ),
    "answered_by_http": chain(
        "HTTP answer: status 407 is a wrong password, all else a grant",
        # The answer has the HTTP version of the request.
        f"@ih,64,32 != {_PROXY_AUTHENTICATION_REQUIRED} goto past",
        "goto guessed",
    ),
    "associated": chain("SOCKS5 reply: record the owner of the UDP relay port", *_associated(64)),
    "associated_after_2": chain(
        "SOCKS5 reply behind an authentication status (2 bytes) in one packet", *_associated(80)
    ),
    "associated_after_4": chain(
        "SOCKS5 reply behind method and status (4 bytes) in one packet", *_associated(96)
    ),
    "past": chain(
        "the handshake is over: its packets are not inspected any more",
        f"ct mark set {MARK_PAST:#x}",
        "goto known_caller",
    ),
    "signed_in": chain(
        "the client has authenticated",
        f"ct mark set {MARK_SIGNED_IN:#x}",
        "goto known_caller",
    ),
    "known_caller": chain(
        "remember an authenticated proxy client",
        # Clients that need no password do not authenticate.
        "tcp sport @lanonly return",
        "delete @tries { ip daddr }",
        "update @callers { ip daddr }",
    ),
    "to_relay": chain(
        "datagrams to a UDP relay: only from the owner of the association",
        # An answer to another program's own flow, whose socket has the port now.
        "ct direction reply meta mark set 0 return",
        *lease_rules.TO_RELAY,
        f"meta mark set {_association('ip saddr . udp dport')}",
        # A relay accepts datagrams of any sender, and asks for no password. It is bound to an
        # address.
        "meta mark != @associations socket wildcard 0 drop",
        "meta mark @associations update @associations { meta mark }",
        "meta mark set 0",
    ),
    "behind_options": chain(
        "datagrams with IPv4 options to a UDP relay: read the port behind them",
        *(
            f"ip hdrlength {words} {_by_port(words)} goto to_relay"
            for words in range(_WITHOUT_OPTIONS + 1, 16)
        ),
    ),
    "guessed": chain(
        "count a wrong password; beyond the rate the source has to wait",
        f"update @guesses {{ ip daddr limit rate over {_GUESSES} }} goto wait",
    ),
    "wait": chain("remember a source that has to wait", "update @guessers { ip daddr }"),
}
