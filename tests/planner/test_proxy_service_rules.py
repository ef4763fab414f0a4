"""The bytes of handshakes with proxy services that the rules read (docs/proxy-handshake.md)."""

from __future__ import annotations

import re
import struct
from ipaddress import IPv4Address

import pytest

from egressd.planner.proxy_service_rules import CHAINS, INPUT

RELAY, PORT = IPv4Address("192.0.2.1"), 40_000
METHOD_NONE, METHOD_PASSWORD = bytes((5, 0)), bytes((5, 2))
RIGHT, WRONG = bytes((1, 0)), bytes((1, 1))
GRANTED = bytes((5, 0, 0, 1)) + RELAY.packed + PORT.to_bytes(2, "big")
REFUSED = bytes((5, 2, 0, 1)) + bytes(6)
GRANTED_IPV6 = bytes((5, 0, 0, 4)) + bytes(18)

_BYTES = re.compile(r"@(\w+),(\d+),(\d+) (!= )?(\{[^}]*\}|\S+)")


def _field(packet: bytes, offset: int, length: int) -> int | None:
    """Return `length` bits at a place; None if the packet is too short, as the kernel has it."""
    end = offset + length
    if end > len(packet) * 8:
        return None
    return int.from_bytes(packet, "big") >> (len(packet) * 8 - end) & ((1 << length) - 1)


def _is_match(rule: str, payload: bytes) -> bool:
    """Return True if the payload has the bytes that a rule compares; other conditions are taken as
    true.
    """
    for base, offset, length, other, operand in _BYTES.findall(rule):
        assert base == "ih"
        found = _field(payload, int(offset), int(length))
        wanted = operand.strip("{} ").split(", ")
        if found is None or (found in {int(one, 16) for one in wanted}) == bool(other):
            return False
    return True


def _chain(name: str, payload: bytes) -> str:
    """Return the chain that a payload is sent to by the rules that read it, or ``none``."""
    for rule in CHAINS[name].rules:
        target = re.search(r"goto (\w+)$", rule)
        if _BYTES.search(rule) and target and _is_match(rule, payload):
            return target[1]
    return "none"


@pytest.mark.parametrize(
    ("payload", "chain"),
    [
        (WRONG, "guessed"),
        (METHOD_PASSWORD + WRONG, "guessed"),
        (RIGHT, "signed_in"),
        (METHOD_NONE, "signed_in"),
        (METHOD_PASSWORD + RIGHT, "signed_in"),
        (GRANTED, "associated"),
        (RIGHT + GRANTED, "associated_after_2"),
        (METHOD_NONE + GRANTED, "associated_after_2"),
        (METHOD_PASSWORD + RIGHT + GRANTED, "associated_after_4"),
        (REFUSED, "past"),
        (GRANTED_IPV6, "past"),
        (struct.pack(">BBH4s", 0, 0x5A, 0, bytes(4)), "past"),
        (METHOD_PASSWORD, "none"),
    ],
)
def test_a_socks_reply_is_recognised(payload: bytes, chain: str) -> None:
    assert _chain("from_service", payload) == chain


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize(
    ("status", "chain"),
    [(b"407 Proxy Authentication Required", "guessed"), (b"200 OK", "past"), (b"502 Bad", "past")],
)
def test_an_http_reply_is_recognised(version: bytes, status: bytes, chain: str) -> None:
    payload = b"HTTP/" + version + b" " + status + b"\r\n\r\n"
    assert _chain("from_service", payload) == "answered_by_http"
    assert _chain("answered_by_http", payload) == ("past" if chain == "past" else "none")
    assert CHAINS["answered_by_http"].rules[-1] == "goto guessed"


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("associated", b""),
        ("associated_after_2", RIGHT),
        ("associated_after_4", METHOD_PASSWORD + RIGHT),
    ],
)
def test_the_port_of_a_relay_is_read_after_the_preceding_replies(name: str, before: bytes) -> None:
    places = set(re.findall(r"@ih,(\d+),16", " ".join(CHAINS[name].rules)))
    (place,) = places
    assert _field(before + GRANTED, int(place), 16) == PORT


@pytest.mark.parametrize("words", range(5, 16))
def test_the_port_of_a_datagram_is_read_after_the_ip_header(words: int) -> None:
    rules = INPUT if words == 5 else CHAINS["behind_options"].rules
    said = f"@nh,0,8 {0x40 | words:#x} " if words == 5 else f"ip hdrlength {words} "
    (rule,) = (rule for rule in rules if said in rule)
    place = re.search(r"meta mark set @nh,(\d+),16 map", rule)
    header = bytes((0x40 | words,)) + bytes(words * 4 - 1)
    datagram = header + struct.pack(">HHHH", 1234, PORT, 8, 0)
    assert place is not None
    assert _field(datagram, int(place[1]), 16) == PORT
