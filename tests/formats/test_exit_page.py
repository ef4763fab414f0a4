"""Pages that say where they are asked from: the two forms, and all that is refused."""

from __future__ import annotations

from ipaddress import IPv4Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from egressd.formats.exit_page import EXIT_PAGE_MAX, UnreadableExit, read_exit
from egressd.model.exits import SeenExit

TRACE = b"""fl=123abc
h=www.cloudflare.com
ip=203.0.113.7
ts=1764370000.123
visit_scheme=https
uag=egressd
colo=NRT
sliver=none
http=http/1.1
loc=JP
tls=TLSv1.3
sni=plaintext
warp=off
gateway=off
rbi=off
kex=X25519
"""


def refusal(page: bytes) -> str:
    with pytest.raises(UnreadableExit) as caught:
        read_exit(page)
    return caught.value.reason.code


@pytest.mark.parametrize(
    ("page", "ip", "country"),
    [
        (TRACE, "203.0.113.7", "JP"),
        (TRACE.replace(b"\n", b"\r\n"), "203.0.113.7", "JP"),
        (b"203.0.113.7", "203.0.113.7", ""),
        (b"203.0.113.7\n", "203.0.113.7", ""),
        (b"2001:DB8:0:0::1\n", "2001:db8::1", ""),
        (b"::ffff:203.0.113.7", "203.0.113.7", ""),
        (b"ip=203.0.113.7\nloc=XX\n", "203.0.113.7", ""),
        (b"ip=203.0.113.7\nloc=T1\n", "203.0.113.7", "T1"),
        (b"ip=203.0.113.7\nloc=<b>\n", "203.0.113.7", ""),
        (b"ip=203.0.113.7\n\n\n", "203.0.113.7", ""),
    ],
)
def test_pages_with_an_address_are_read(page: bytes, ip: str, country: str) -> None:
    assert read_exit(page) == SeenExit(ip=ip, country=country)


@pytest.mark.parametrize(
    ("page", "code"),
    [
        (b"", "exit-page-form"),
        (b"\n", "exit-page-form"),
        (b'{"ip": "203.0.113.7"}', "exit-page-form"),
        (b"<html>203.0.113.7</html>", "exit-page-form"),
        (b"your address is 203.0.113.7", "exit-page-form"),
        (b"203.0.113.7\n203.0.113.8\n", "exit-page-form"),
        (b"ip=203.0.113.7\nip=203.0.113.8\n", "exit-page-form"),
        (b"ip=203.0.113.7\nloc=JP\nloc=HK\n", "exit-page-form"),
        (b"loc=JP\n", "exit-page-form"),
        (b"ip=203.0.113.7\nand more\n", "exit-page-form"),
        (b"ip=203.0.113.7\x1b[2J\n", "exit-page-form"),
        (b"ip=203.0.113.7\nx=\x00\n", "exit-page-form"),
        (b"ip=203.0.113.7\nx=\xff\n", "exit-page-form"),
        (b" 203.0.113.7", "exit-page-form"),
        (b"ip=", "exit-page-address"),
        (b"ip=203.0.113.7 ", "exit-page-address"),
        (b"ip=fe80::1%eth0", "exit-page-address"),
        (b"ip=example.com", "exit-page-address"),
        (b"203.0.113.777", "exit-page-address"),
        (b"0203.0.113.7", "exit-page-address"),
        (b"0.0.0.0", "exit-page-address"),
        (b"127.0.0.1", "exit-page-address"),
        (b"::ffff:127.0.0.1", "exit-page-address"),
        (b"224.0.0.1", "exit-page-address"),
        (b"fe80::1", "exit-page-address"),
        (b"::", "exit-page-address"),
        (TRACE + b"x=" + b"a" * 513, "exit-page-form"),
        (TRACE + b"\n" * 65536, "exit-page-long"),
        (b"A" * (EXIT_PAGE_MAX + 1), "exit-page-long"),
    ],
)
def test_all_other_pages_are_refused_with_a_reason(page: bytes, code: str) -> None:
    assert refusal(page) == code


@given(st.binary(max_size=2 * EXIT_PAGE_MAX) | st.text(max_size=200).map(str.encode))
@example(b"ip=\n" * 1000)
@example(b"=" * EXIT_PAGE_MAX)
def test_any_page_is_refused_or_has_an_address_in_its_usual_form(page: bytes) -> None:
    reason = ""
    try:
        seen = read_exit(page)
    except UnreadableExit as unreadable:
        reason = str(unreadable.reason)
    if reason:
        assert reason.startswith("the page")
        assert reason.isprintable()
    else:
        assert str(ip_address(seen.ip)) == seen.ip
        assert seen.country == "" or (len(seen.country) == 2 and seen.country.isalnum())


NAMES = st.from_regex(r"[a-z0-9_-]{1,32}", fullmatch=True).filter(lambda n: n not in ("ip", "loc"))
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)


@given(
    address=st.ip_addresses(v=4),
    others=st.lists(st.tuples(NAMES, VALUES), max_size=20),
    place=st.integers(0, 20),
)
def test_an_address_is_found_among_any_other_lines(
    address: IPv4Address, others: list[tuple[str, str]], place: int
) -> None:
    lines = [f"{name}={value}" for name, value in others]
    lines.insert(place, f"ip={address}")
    page = "\n".join(lines).encode()
    if (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    ):
        assert refusal(page) == "exit-page-address"
    else:
        assert read_exit(page).ip == str(address)
