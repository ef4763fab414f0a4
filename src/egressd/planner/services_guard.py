"""Sets and chains of local proxy services: who may call them, and whose their UDP is.

`planner.chains` has the rest of the table, and jumps here: from ``input`` with what comes for a
service or for a relay, from ``output`` with what a service answers. ``docs/proxy-services.md``
tells what operators should know of it.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.registry import HASH_SEED, MARK_PAST, MARK_SIGNED_IN

_GUESSES: Final = "10/minute burst 10 packets"
"""Wrong passwords that one source may send to proxy services before it is made to wait."""
_HTTP: Final = f"0x{b'HTTP/'.hex()}"
_PROXY_AUTHENTICATION_REQUIRED: Final = f"0x{b' 407'.hex()}"


def _associated(place: int) -> tuple[str, ...]:
    """The rules for a service's answer that a UDP relay listens: whose it is.

    `place`: where the relay's port is, in bits. Who had the port before has it no more, since the
    number that an association goes by is another each time.
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
    """What stands for caller, port and the number in the mark. nftables 1.0.6 cannot have bytes of
    a payload in a key of several parts."""
    return f"jhash {caller_and_port} . meta mark mod {0xFFFF_FFFF} seed {HASH_SEED:#x}"


SETS: Final = {
    "services": "type inet_service",
    "lanonly": "type inet_service",
    "guesses": "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 10m",
    "guessers": "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m",
    "associations": "type mark; size 65535; flags dynamic,timeout; timeout 1h",
}
MAPS: Final = {
    # No element ever expires: a relay may wait for its first datagram for days. Rules fill it from
    # the payload of an answer. nftables 1.1 takes bytes of a payload for a key of no other type,
    # and 1.0.6 makes the same of this: two bytes, in network byte order.
    "relay_ports": "typeof @ih,64,16 : meta mark; size 131072; flags dynamic,timeout",
}
_UDP_PORT: Final = 16
"""Offset of the destination port in a UDP header, in bits (RFC 768)."""


def _by_port(header_words: int) -> str:
    """Return the statement that looks a datagram's destination port up in `relay_ports`.

    `header_words`: the length of the IPv4 header in words of 32 bits. The port is read by its
    place behind that header, since ``udp dport`` has a type that is not the map's.
    """
    return f"meta mark set @nh,{header_words * 32 + _UDP_PORT},16 map @relay_ports"


_WITHOUT_OPTIONS: Final = 5
INPUT: Final = (
    # An IPv4 header without options, as nearly every one is. Packets from the loopback may be on
    # their way to an instance, too.
    f'meta l4proto udp @nh,0,8 {0x40 | _WITHOUT_OPTIONS:#x} iifname != "lo"'
    f" {_by_port(_WITHOUT_OPTIONS)} jump to_relay",
    f'meta l4proto udp ip hdrlength > {_WITHOUT_OPTIONS} iifname != "lo" jump behind_options',
)
CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "to_service": (
        # A proxy service that asks for no password is for LAN clients.
        'tcp dport @lanonly ip saddr != @lannet iifname != "lo" reject with tcp reset',
        # Who guesses passwords has to wait, and so have connections that were opened beforehand.
        f"ct mark != {{ {MARK_SIGNED_IN:#x}, {MARK_PAST:#x} }} ip saddr @guessers"
        " reject with tcp reset",
        # CONNECT, with an address of either kind: what is answered to it tells of no relay.
        f"ct mark {MARK_SIGNED_IN:#x} @ih,0,32 {{ 0x05010001, 0x05010003, 0x05010004 }} goto past",
    ),
    "from_service": (
        # What a tunnel's far end sends is not looked at.
        f"ct mark {MARK_PAST:#x} return",
        # Guesses that came all at once are not told what became of them: no answer begins so.
        f"ct mark != {MARK_SIGNED_IN:#x} ip daddr @guessers @ih,0,8 != 0xff drop",
        # What it answers to a wrong password: status 1 (RFC 1929), or HTTP's 407. Answers to who
        # does not wait for them may leave together: here the one to the greeting is before it.
        "@ih,0,16 0x0101 goto guessed",
        "@ih,0,32 0x05020101 goto guessed",
        f"@ih,0,40 {_HTTP} goto answered_by_http",
        # Status 0, or no password wanted; then, if not before, that the request is granted.
        "@ih,0,48 { 0x010005000001, 0x050005000001 } goto associated_after_2",
        "@ih,0,64 0x0502010005000001 goto associated_after_4",
        "@ih,0,32 0x05000001 goto associated",
        "@ih,0,8 0x05 @ih,16,8 0x00 goto past",
        f"@ih,0,16 {{ 0x0100, 0x0500 }} ct mark set {MARK_SIGNED_IN:#x}",
        f"@ih,0,32 0x05020100 ct mark set {MARK_SIGNED_IN:#x}",
        # SOCKS4, which asks for no password.
        "@ih,0,16 0x005a goto past",
    ),
    "answered_by_http": (
        # Whichever version the request was of, the answer is of it.
        f"@ih,64,32 != {_PROXY_AUTHENTICATION_REQUIRED} goto past",
        "goto guessed",
    ),
    "associated": _associated(64),
    "associated_after_2": _associated(80),
    "associated_after_4": _associated(96),
    "past": (f"ct mark set {MARK_PAST:#x}",),
    "to_relay": (
        # Of another program's own flow, whose socket has the port now.
        "ct direction reply meta mark set 0 return",
        f"meta mark set {_association('ip saddr . udp dport')}",
        # A relay takes what anybody sends it, and asks for no password. It is bound to an address.
        "meta mark != @associations socket wildcard 0 drop",
        "meta mark @associations update @associations { meta mark }",
        "meta mark set 0",
    ),
    "behind_options": tuple(
        f"ip hdrlength {words} {_by_port(words)} goto to_relay"
        for words in range(_WITHOUT_OPTIONS + 1, 16)
    ),
    "guessed": (f"update @guesses {{ ip daddr limit rate over {_GUESSES} }} goto wait",),
    "wait": ("update @guessers { ip daddr }",),
}
