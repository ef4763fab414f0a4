"""The lab's hand-made packets and DNS messages, checked against dnspython and read back."""

from __future__ import annotations

import string

import dns.flags
import dns.message
import dns.rcode
import dns.rrset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd_lab import dnswire, packets, pattern

LABELS = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=63)
NAMES = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
NUMBERS = st.integers(0, 0xFFFF)
ADDRESSES = st.ip_addresses(v=4).map(str)


@given(NUMBERS, NAMES, st.sampled_from(["A", "AAAA"]))
def test_dnspython_and_we_read_our_queries(number: int, name: str, kind: str) -> None:
    raw = dnswire.encode_query(number, name, kind)
    theirs = dns.message.from_wire(raw)
    assert (theirs.id, theirs.question[0].name.to_text(omit_final_dot=True)) == (number, name)
    ours = dnswire.decode_query(raw)
    assert (ours.number, ours.name, ours.type_name, ours.end) == (number, name, kind, len(raw))


@given(NUMBERS, NAMES, st.lists(ADDRESSES, max_size=5))
def test_dnspython_reads_our_replies(number: int, name: str, addresses: list[str]) -> None:
    query = dnswire.encode_query(number, name, "A")
    raw = dnswire.encode_reply(
        query, dnswire.decode_query(query), [*addresses, "2001:db8::1"], dnswire.NOERROR
    )
    theirs = dns.message.from_wire(raw)
    assert theirs.flags & dns.flags.QR
    assert sorted({r.address for answer in theirs.answer for r in answer}) == sorted(set(addresses))
    ours = dnswire.decode_reply(raw)
    assert (ours.number, ours.rcode, ours.addresses) == (number, "NOERROR", tuple(addresses))


@given(NAMES, st.lists(ADDRESSES, min_size=1, max_size=5, unique=True))
def test_we_read_compressed_replies_of_dnspython(name: str, addresses: list[str]) -> None:
    query = dns.message.make_query(name, "A", use_edns=True)
    reply = dns.message.make_response(query)
    reply.answer = [
        dns.rrset.from_text(name + ".", 60, "IN", "CNAME", f"alias.{name}."),
        dns.rrset.from_text(f"alias.{name}.", 60, "IN", "A", *addresses),
    ]
    ours = dnswire.decode_reply(reply.to_wire())
    assert sorted(ours.addresses) == sorted(addresses)
    assert dnswire.decode_query(query.to_wire()).name == name.lower()


def test_the_answer_for_an_unknown_name_is_nxdomain() -> None:
    query = dnswire.encode_query(1, "no.such", "A")
    raw = dnswire.encode_reply(query, dnswire.decode_query(query), [], dnswire.NXDOMAIN)
    assert dns.message.from_wire(raw).rcode() == dns.rcode.NXDOMAIN


@given(st.binary(max_size=200))
def test_invalid_messages_are_refused(raw: bytes) -> None:
    for read in (dnswire.decode_query, dnswire.decode_reply):
        try:
            read(raw)
        except ValueError:
            continue


def test_a_name_with_a_pointer_to_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="never ends"):
        dnswire.decode_query(bytes(4) + b"\0\1" + bytes(6) + b"\xc0\x0c\0\1\0\1")


@given(st.binary(max_size=200).filter(lambda raw: len(raw) % 2 == 0))
def test_a_checksum_over_data_and_its_checksum_is_zero(data: bytes) -> None:
    assert packets.checksum(data + packets.checksum(data).to_bytes(2)) == 0


@given(ADDRESSES, ADDRESSES, NUMBERS, NUMBERS, st.binary(max_size=50))
def test_headers_of_built_packets_are_read_back(
    source: str, destination: str, source_port: int, port: int, payload: bytes
) -> None:
    segments = {
        packets.UDP: packets.udp(source_port, port, payload),
        packets.TCP: packets.tcp(source, destination, source_port, port, payload),
    }
    for protocol, segment in segments.items():
        found = packets.headers(packets.ipv4(source, destination, protocol, segment))
        assert found is not None
        assert found.protocol == protocol
        assert packets.address_text(found.source) == source
        assert packets.address_text(found.destination) == destination
        assert found.port == min(source_port, port)


@given(st.binary(max_size=60))
def test_any_bytes_parse_to_headers_or_none(raw: bytes) -> None:
    found = packets.headers(raw)
    assert found is None or raw[0] >> 4 in (4, 6)


def test_tokens_differ_and_are_dns_labels() -> None:
    tokens = {packets.new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    for token in tokens:
        assert packets.TOKEN.fullmatch(token.encode())
        dnswire.encode_query(1, f"{token}.test", "A")


@given(st.integers(0, 5_000_000), st.integers(0, 1 << 20))
def test_pieces_of_the_pattern_are_contiguous(offset: int, size: int) -> None:
    half = size // 2
    assert pattern.piece(offset, size) == pattern.piece(offset, half) + pattern.piece(
        offset + half, size - half
    )


def test_a_body_equals_its_concatenated_pieces() -> None:
    size = 2 * len(pattern.PATTERN) + 5
    body = b"".join(pattern.pieces(size))
    assert (len(body), body[-5:]) == (size, pattern.PATTERN[:5])
