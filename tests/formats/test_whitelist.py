"""The whitelist's text; every bad entry is named."""

from ipaddress import IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.whitelist import DomainEntry, WhitelistEntries, parse_whitelist
from egressd.model.errors import Invalid


def problems(domains: str = "", ips: str = "") -> tuple[str, ...]:
    with pytest.raises(Invalid) as caught:
        parse_whitelist(domains, ips)
    return caught.value.problems


def test_empty_texts_have_no_entries() -> None:
    assert parse_whitelist("", " \n,, \r\n") == WhitelistEntries()


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("example.com", DomainEntry("example.com")),
        ("*.example.com", DomainEntry("example.com")),
        ("+.Example.COM.", DomainEntry("example.com")),
        ("例子.中国", DomainEntry("xn--fsqu00a.xn--fiqs8s")),
        ("*.bücher.example", DomainEntry("xn--bcher-kva.example")),
        ("http://example.com:8081", DomainEntry("example.com", "http", 8081)),
        ("HTTPS://*.example.com:8443", DomainEntry("example.com", "https", 8443)),
        ("quic://example.com", DomainEntry("example.com", "quic", 443)),
        ("http://example.com", DomainEntry("example.com", "http", 80)),
    ],
)
def test_domain_entries_are_parsed(text: str, entry: DomainEntry) -> None:
    assert parse_whitelist(text, "").domains == (entry,)


def test_commas_newlines_and_duplicates_are_handled() -> None:
    entries = parse_whitelist(
        "b.example, *.a.example\r\n\nB.example,https://b.example,https://b.example:443",
        "192.0.2.1,192.0.2.0/24\n192.0.2.1/32\n",
    )
    assert entries == WhitelistEntries(
        (
            DomainEntry("b.example"),
            DomainEntry("a.example"),
            DomainEntry("b.example", "https", 443),
        ),
        (IPv4Network("192.0.2.1/32"), IPv4Network("192.0.2.0/24")),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("*", "'*' must be a domain name"),
        ("a b", "'a b' must be a domain name"),
        ("*.*.example", "'*.*.example' must be a domain name"),
        ("https://example.com/path", "'https://example.com/path' must be a domain name"),
        ("example.com:8443", "'example.com:8443' must be a domain name"),
        ("ftp://a.example:21", "'ftp://a.example:21' must begin with http://, https://, quic://"),
        ("https://a.example:0", "'https://a.example:0' must end with a port from 1 to 65535"),
        ("https://a.example:65536", "'https://a.example:65536' must end with a port"),
        ("https://a.example:", "'https://a.example:' must end with a port"),
        ("https://:443", "'https://:443' must be a domain name"),
        ("192.0.2.1", "'192.0.2.1' must be a domain name; addresses belong in ips"),
        ("https://[::1]:443", "'https://[::1]:443' must end with a port"),
        ("-a.example", "'-a.example' must be a domain name"),
        ("a\x00.example", "'a\\x00.example' must be a domain name"),
        ("x" * 65_536, f"'{'x' * 80}…' must be a domain name"),
    ],
)
def test_invalid_domains_have_a_reason(text: str, problem: str) -> None:
    (told,) = problems(domains=text)
    assert told.startswith(f"domains: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("example.com", "'example.com' must be an IPv4 address or CIDR"),
        ("192.0.2.0/33", "'192.0.2.0/33' must be an IPv4 address or CIDR"),
        ("192.0.2.256", "'192.0.2.256' must be an IPv4 address or CIDR"),
        ("192.0.2.1/24", "'192.0.2.1/24' must not have host bits: 192.0.2.0/24"),
        ("2001:db8::/32", "'2001:db8::/32' must be IPv4: clients' IPv6 is not routed"),
        ("1.2.3.4-1.2.3.9", "'1.2.3.4-1.2.3.9' must be an IPv4 address or CIDR"),
        ("1.2.3.0/255.255.255.0x", "'1.2.3.0/255.255.255.0x' must be an IPv4 address or CIDR"),
    ],
)
def test_invalid_addresses_have_a_reason(text: str, problem: str) -> None:
    assert problems(ips=text) == (f"ips: {problem}",)


def test_every_invalid_entry_of_both_texts_is_named() -> None:
    assert problems("a b,ok.example\nc d", "x,192.0.2.1,y") == (
        "domains: 'a b' must be a domain name, alone or as <scheme>://<domain>:<port>",
        "domains: 'c d' must be a domain name, alone or as <scheme>://<domain>:<port>",
        "ips: 'x' must be an IPv4 address or CIDR",
        "ips: 'y' must be an IPv4 address or CIDR",
    )


def test_ten_thousand_entries_are_accepted() -> None:
    domains = "\n".join(f"*.host{n}.example.com" for n in range(10_000))
    ips = ",".join(f"10.{n >> 8}.{n & 255}.0/24" for n in range(10_000))
    entries = parse_whitelist(domains, ips)
    assert len(entries.domains) == len(entries.networks) == 10_000


pieces = st.text(alphabet="ab.*+-:/,\n1280hqtpsuic ü", max_size=40)


@given(st.text() | pieces, st.text() | pieces)
def test_any_text_is_read_or_invalid(domains: str, ips: str) -> None:
    told: tuple[str, ...] = ("domains: ",)
    try:
        entries = parse_whitelist(domains, ips)
        assert all(entry.domain.isascii() for entry in entries.domains)
    except Invalid as invalid:
        told = invalid.problems
    assert told
    assert all(problem.startswith(("domains: ", "ips: ")) for problem in told)


labels = st.from_regex(r"[a-z][a-z0-9]{0,9}", fullmatch=True)
entries = st.builds(
    lambda parts, where: DomainEntry(".".join(parts), *where),
    st.lists(labels, min_size=1, max_size=3),
    st.just(("", 0)) | st.tuples(st.sampled_from(["http", "https", "quic"]), st.integers(1, 65535)),
)


@given(st.lists(entries, unique=True), st.booleans(), st.sampled_from([",", "\n", " ,\r\n"]))
def test_written_entries_are_read_back(
    listed: list[DomainEntry], wildcard: bool, separator: str
) -> None:
    def written(entry: DomainEntry) -> str:
        name = f"*.{entry.domain}" if wildcard else entry.domain
        return f"{entry.scheme}://{name}:{entry.port}" if entry.scheme else name

    assert parse_whitelist(separator.join(map(written, listed)), "").domains == tuple(listed)
