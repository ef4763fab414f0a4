"""Host names and addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.hosts import (
    address_of,
    dialled_address,
    join_host_port,
    parse_domain,
    parse_host,
    parse_port,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("Example.COM.", "example.com"),
        ("localhost", "localhost"),
        ("_srv.a-b.example", "_srv.a-b.example"),
        ("1.2.3.example", "1.2.3.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("例子.中国", "xn--fsqu00a.xn--fiqs8s"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
    ],
)
def test_valid_hosts_are_accepted_in_their_normal_form(text: str, host: str) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        "-a.example",
        "a-.example",
        "--help",
        "@/etc/shadow",
        "../x",
        "a b",
        "a\nb",
        "a;b",
        "$(id)",
        "`id`",
        "256.1.1.1",
        "1.2.3",
        "0x7f.1",
        "0x7f000001",
        "0X7F000001.",
        "127.0.0.0x1",
        "1.0x",
        "2130706433",
        "017700000001",
        "127.1",
        "127.0.0.1.",
        "\uff11\uff12\uff17.0.0.1",
        "01.2.3.4",
        "1.2.3.4:5",
        "[1.2.3.4]",
        "[example.com]",
        "[::1",
        "fe80::1%eth0",
        ":::",
        "a" * 64 + ".example",
        "a." * 130 + "example",
        "ü" * 300,
        "example.com\x00",
        "\ud800",
    ],
)
def test_invalid_hosts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (the text varies)
        parse_host(text)


@pytest.mark.parametrize("text", [":", ".", "1.", "a", "ü", "[::"])
def test_a_too_long_text_is_refused_without_parsing(text: str) -> None:
    for read in (parse_host, parse_domain):
        with pytest.raises(ValueError, match=r"^not a ") as refused:
            read(text * 1000)
        assert len(str(refused.value)) < 100


@pytest.mark.parametrize(
    ("host", "dialled", "meant"),
    [
        ("10.0.0.7", "10.0.0.7", "10.0.0.7"),
        ("::ffff:10.0.0.7", "10.0.0.7", "10.0.0.7"),
        ("::10.0.0.7", "::a00:7", "10.0.0.7"),
        ("2002:a00:7::1", "2002:a00:7::1", "10.0.0.7"),
        ("64:ff9b::a00:7", "64:ff9b::a00:7", "10.0.0.7"),
        ("::1", "::1", "::1"),
        ("example.com", "None", "None"),
    ],
)
def test_mapped_and_translated_ipv6_addresses_are_resolved(
    host: str, dialled: str, meant: str
) -> None:
    normal = parse_host(host)
    assert (str(dialled_address(normal)), str(address_of(normal))) == (dialled, meant)


@given(st.text() | st.text(alphabet="0123456789.:[]%abcxn-ü", max_size=30))
def test_a_host_is_plain_ascii_or_a_value_error(text: str) -> None:
    try:
        host = parse_host(text)
    except ValueError:
        return
    assert host.isascii()
    assert all(c.isalnum() or c in "-._:" for c in host)
    assert not host.startswith("-")
    assert parse_host(host) == host


@given(st.text(max_size=300))
def test_parsing_a_domain_is_idempotent(text: str) -> None:
    try:
        domain = parse_domain(text)
    except ValueError:
        return
    assert parse_domain(domain) == domain


def test_ports_are_from_1_to_65535() -> None:
    assert (parse_port("1"), parse_port("65535")) == (1, 65535)
    for text in ("0", "65536", "", "+1", "1 ", "٣", "1e3", "-1", "000001"):
        with pytest.raises(ValueError, match="not a port"):
            parse_port(text)


def test_host_and_port_are_joined_with_brackets_for_ipv6() -> None:
    assert join_host_port("::1", 80) == "[::1]:80"
    assert join_host_port("a.example", 80) == "a.example:80"
