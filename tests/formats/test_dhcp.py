"""Requests of DHCP clients: what is read, and that no bytes do any harm."""

from __future__ import annotations

import struct
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.dhcp import NAME_MAX, DhcpClient, clean_text, read_request
from tests.support.dhcp import request

MAC = "02:00:5e:00:53:01"


def test_a_client_tells_its_names() -> None:
    options = {
        53: b"\x01",
        12: b"anna-phone",
        60: b"android-dhcp-13",
        61: b"\x01\x02\0\x5e\0\x53\1",
    }
    assert read_request(request(MAC, options)) == DhcpClient(
        mac=MAC, hostname="anna-phone", vendor_class="android-dhcp-13"
    )


def test_a_client_without_a_host_name_is_named_by_its_identifier() -> None:
    assert read_request(request(MAC, {61: b"\0printer"})) == DhcpClient(mac=MAC, hostname="printer")
    assert read_request(request(MAC, {61: b"\xff\0\0\0\0duid"})) == DhcpClient(mac=MAC)
    assert read_request(request(MAC, {12: b"tv", 61: b"\0printer"})) == DhcpClient(
        mac=MAC, hostname="tv"
    )


def test_parts_of_a_split_option_are_joined() -> None:
    packet = request(MAC, [(12, b"anna-"), (60, b"x"), (12, b"phone")])
    assert read_request(packet) == DhcpClient(mac=MAC, hostname="anna-phone", vendor_class="x")


def test_only_whole_requests_of_clients_on_the_link_are_read() -> None:
    good = request(MAC, {12: b"tv"})
    assert read_request(good) is not None
    assert read_request(good + b"\0" * 18) is not None, "Ethernet pads short frames"
    for changed in (
        request(MAC, {12: b"tv"}, op=2),
        request(MAC, {12: b"tv"}, relay="10.0.0.9"),
        request(MAC, {12: b"tv"}, port=68),
        request("01:00:5e:00:53:01", {12: b"tv"}),
        request("00:00:00:00:00:00", {12: b"tv"}),
        good.replace(b"\x63\x82\x53\x63", bytes(4)),
        good[:6] + b"\x20\x00" + good[8:],  # more fragments follow
        good[:9] + b"\x06" + good[10:],
        b"\x65" + good[1:],
        b"\x44" + good[1:],
        b"\x4f" + good[1:],
    ):
        assert read_request(changed) is None
    for length in range(len(good)):
        assert read_request(good[:length]) is None


def test_an_option_that_goes_beyond_the_end_ends_the_list() -> None:
    assert read_request(request(MAC, [(60, b"x")], rest=b"\x0c\xfftv")) == DhcpClient(
        mac=MAC, vendor_class="x"
    )
    assert read_request(request(MAC, [(60, b"x")], rest=b"\x0c")) == DhcpClient(
        mac=MAC, vendor_class="x"
    )
    assert read_request(request(MAC, [], rest=b"\0\0\xff\x0c\x02tv")) == DhcpClient(mac=MAC)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b"Anna's iPhone (2)", "Anna's iPhone (2)"),
        ("客厅电视".encode(), "客厅电视"),
        (b"\x1b[2J\x1b]0;owned\x07tv", "tv"),
        (b"\x1b[31;1mred\x1b[0m", "red"),
        (b"a\r\nb\0c\td", "a b c d"),
        (b"<script>alert(1)</script>", "scriptalert(1)script"),
        (b'"; DROP TABLE devices; --', "DROP TABLE devices --"),
        (b"$(reboot)`id`|&", "(reboot)id"),
        (b"=1+1", "1+1"),
        ("\u202egnp.exe".encode(), "gnp.exe"),
        ("a\u3164\u200bb".encode(), "ab"),
        (("z" + "\u0335" * 120).encode(), "z\u0335\u0335"),
        (b"\xff\xfe\xc3(x", "(x"),
        (b"x" * 255, "x" * NAME_MAX),
        (b"   ", ""),
    ],
)
def test_texts_of_clients_are_cleaned(sent: bytes, kept: str) -> None:
    assert clean_text(sent) == kept
    found = read_request(request(MAC, {12: sent}))
    assert found is not None
    assert found.hostname == kept


@given(st.one_of(st.binary(max_size=600), st.text(max_size=600)))
def test_a_cleaned_text_is_short_visible_and_clean_already(sent: bytes | str) -> None:
    text = clean_text(sent)
    assert len(text) <= NAME_MAX
    assert text == text.strip()
    assert not set(text) & set('<>&"`$\\|;{}[]%\x1b')
    assert all(unicodedata.category(each)[0] not in "CZ" or each == " " for each in text)
    assert clean_text(clean_text(text)) == clean_text(text)


@given(st.binary(max_size=700))
def test_no_bytes_raise_an_error(packet: bytes) -> None:
    read_request(packet)


@given(st.lists(st.tuples(st.integers(1, 254), st.binary(max_size=255)), max_size=8), st.data())
def test_no_damaged_request_raises_an_error(
    options: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    packet = bytearray(request(MAC, options))
    for at in data.draw(st.lists(st.integers(0, len(packet) - 1), max_size=4)):
        packet[at] = data.draw(st.integers(0, 255))
    struct.pack_into("!H", packet, 2, data.draw(st.sampled_from([len(packet), 0xFFFF, 28])))
    read_request(bytes(packet))


@given(st.lists(st.tuples(st.sampled_from([12, 60, 61, 7]), st.binary(max_size=255)), max_size=4))
def test_every_well_formed_request_has_its_sender(options: list[tuple[int, bytes]]) -> None:
    found = read_request(request(MAC, options))
    assert found is not None
    assert found.mac == MAC
