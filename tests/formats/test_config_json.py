"""A node's configuration: every fault is named, and settings are kept beside other keys."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.config_json import (
    NodeSettings,
    parse_dns_servers,
    read_config,
    read_entry,
    read_settings,
    with_settings,
)
from egressd.formats.entries import PROTOCOLS
from egressd.formats.fields import Table
from egressd.model.errors import Invalid

SOCKS = '{"server": "192.0.2.1", "port": 1080}'


def problems(protocol: str, config: dict[str, Any] | str) -> tuple[str, ...]:
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(Invalid) as caught:
        read_config(protocol, text)
    return caught.value.problems


def test_fields_are_normalised() -> None:
    config = read_config(
        "vless",
        '{"server": "[2001:DB8::1]", "port": 443, "uuid": "B831381D63244D53AD4F8CDA48B30811",'
        ' "network": "WS", "ws-opts": {"path": "chat"}, "sni": ""}',
    )
    assert config.fields == {
        "server": "2001:db8::1",
        "port": 443,
        "uuid": "b831381d-6324-4d53-ad4f-8cda48b30811",
        "network": "ws",
        "ws-opts": {"path": "/chat"},
    }
    assert config.unknown == ()


def test_either_spelling_of_clash_gives_the_same_fields() -> None:
    common = '"server": "a.example", "port": 1, "password": "p"'
    options = '"path": "/u", "v2ray-http-upgrade": true'
    old = read_config(
        "trojan", f'{{{common}, "sni": "b.example", "network": "ws", "ws-opts": {{{options}}}}}'
    )
    new = read_config(
        "trojan",
        f'{{{common}, "servername": "b.example", "network": "httpupgrade",'
        ' "ws-opts": {"path": "/u"}}',
    )
    assert old == new
    (problem,) = problems("trojan", f'{{{common}, "sni": "a.example", "servername": "b.example"}}')
    assert problem == "config_json.servername must be the same as sni when both are given"


@pytest.mark.parametrize(
    ("network", "path", "options"),
    [
        (
            "ws",
            "/w?ed=2048",
            {
                "path": "/w",
                "max-early-data": 2048,
                "early-data-header-name": "Sec-WebSocket-Protocol",
            },
        ),
        ("httpupgrade", "/w?a=b&ed=2048&c=d", {"path": "/w?a=b&c=d"}),
        ("ws", "/w?feed=1", {"path": "/w?feed=1"}),
    ],
)
def test_early_data_in_a_path_becomes_options(
    network: str, path: str, options: dict[str, Any]
) -> None:
    config = {"server": "a.example", "port": 1, "password": "p", "network": network}
    text = json.dumps({**config, "ws-opts": {"path": path}})
    assert read_config("trojan", text).fields["ws-opts"] == options


def test_every_fault_is_reported_at_once() -> None:
    config = {"server": "a b", "port": "443", "udp": 1, "dns-profile": "x", "dns-servers": ["y"]}
    assert problems("socks5", config) == (
        "config_json.server must be a host name or an IP address",
        "config_json.port must be a whole number from 1 to 65535",
        "config_json.udp must be true or false",
        "config_json.dns-profile must be one of auto, domestic, outbound, return, custom",
        "config_json.dns-servers must be at most 8 IPv4 addresses",
    )


@pytest.mark.parametrize("port", [0, 65536, -1, 1.5, True, "1080", [1080], {}])
def test_an_invalid_port_is_refused(port: object) -> None:
    assert problems("socks5", {"server": "192.0.2.1", "port": port}) == (
        "config_json.port must be a whole number from 1 to 65535",
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_empty_object_names_the_required_fields(protocol: str) -> None:
    told = problems(protocol, {})
    assert "config_json.server must be a host name or an IP address" in told
    assert any(problem.startswith("config_json.port must be") for problem in told)


def test_an_unknown_protocol_is_refused() -> None:
    assert problems("snell", SOCKS) == (f"protocol must be one of {', '.join(PROTOCOLS)}",)
    assert len(problems("snell", "[]")) == 2


def test_unknown_keys_are_kept_and_named() -> None:
    config = read_config(
        "trojan",
        '{"server": "a.example", "port": 1, "password": "p", "tfo": true, "smux": {"enabled": 1},'
        ' "ws-opts": {"x": 1}}',
    )
    assert config.unknown == ("tfo", "smux", "ws-opts.x")


@pytest.mark.parametrize(
    "key",
    [
        "ca",
        "certificate",
        "private-key",
        "certificate_path",
        "ech-key-path",
        "config-file",
        "path",
        "routing-mark",
        "detour",
        "bind_interface",
        "interface_name",
        "fingerprint",
    ],
)
def test_dangerous_keys_are_refused(key: str) -> None:
    config = {"server": "a.example", "port": 1, key: "x"}
    (problem,) = problems("socks5", config)
    assert problem.startswith(f"config_json.{key} must not be given: ")


def test_a_dangerous_key_inside_a_known_object_is_refused() -> None:
    options = {"path": "/x", "cert_path": "/etc/shadow"}
    config = {"server": "a.example", "port": 1, "password": "p", "ws-opts": options}
    (problem,) = problems("trojan", config)
    assert problem.startswith("config_json.ws-opts.cert_path must not be given")


def test_repr_shows_no_secret() -> None:
    text = '{"server": "a.example", "port": 1, "password": "hunter2"}'
    assert "hunter2" not in repr(read_config("trojan", text))


# --- Settings. ------------------------------------------------------------------------------


def test_settings_are_read() -> None:
    text = json.dumps(
        {
            "server": "a.example",
            "interface-name": "wan2",
            "dns-profile": "custom",
            "dns-servers": ["192.0.2.53", "192.0.2.54"],
        }
    )
    assert read_settings(text) == NodeSettings(
        interface_name="wan2",
        dns_profile="custom",
        dns_servers=("192.0.2.53", "192.0.2.54"),
    )
    assert read_settings(SOCKS) == NodeSettings()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"interface-name": "wan2;"}, "interface-name must be an interface name"),
        ({"interface-name": 7}, "interface-name must be an interface name"),
        ({"dialer-proxy": "DIRECT"}, "dialer-proxy must be a node's name"),
        ({"dialer-proxy": "Group_a"}, "dialer-proxy must be a node's name"),
        (
            {"interface-name": "wan2", "dialer-proxy": "hop"},
            "interface-name and dialer-proxy must not both be given",
        ),
        ({"dns-profile": ["auto"]}, "dns-profile must be one of"),
        ({"dns-profile": "custom"}, "dns-servers must not be empty when dns-profile is custom"),
        ({"dns-servers": "192.0.2.53"}, "dns-servers must be at most 8 IPv4 addresses"),
        ({"dns-servers": ["::1"]}, "dns-servers must be at most 8 IPv4 addresses"),
        ({"dns-servers": [{}]}, "dns-servers must be at most 8 IPv4 addresses"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], problem: str) -> None:
    (told,) = problems("socks5", {"server": "a.example", "port": 1, **settings})
    assert told.startswith(f"config_json.{problem}")
    with pytest.raises(Invalid):
        read_settings(json.dumps(settings))


def test_settings_are_written_and_removed_among_the_other_keys() -> None:
    text = '{"server": "a.example", "interface-name": "wan1", "x": {"b": 1, "a": 2}, "port": 1}'
    moved = with_settings(text, interface_name="", dialer_proxy="hop")
    assert moved == (
        '{"server": "a.example", "x": {"b": 1, "a": 2}, "port": 1, "dialer-proxy": "hop"}'
    )
    renamed = with_settings(moved, dialer_proxy="hop ü", dns_profile="return")
    assert list(json.loads(renamed)) == ["server", "x", "port", "dialer-proxy", "dns-profile"]
    assert read_settings(renamed).dialer_proxy == "hop ü"


def test_unchanged_settings_leave_the_text_unchanged() -> None:
    text = ' {"server":"a.example",\n "port":1.0, "interface-name": "wan1"} '
    assert with_settings(text, dialer_proxy="", dns_servers=()) == text
    assert with_settings(text, interface_name="wan1") == text


def test_settings_that_exclude_each_other_are_refused() -> None:
    text = with_settings(SOCKS, interface_name="wan1")
    with pytest.raises(Invalid, match="must not both be given"):
        with_settings(text, dialer_proxy="hop")
    with pytest.raises(Invalid, match="dns-servers must not be empty"):
        with_settings(SOCKS, dns_profile="custom")


names = st.sampled_from(["", "wan1", "eth0.2"])
profiles = st.sampled_from(["", "auto", "domestic", "outbound", "return"])
addresses = st.lists(st.ip_addresses(v=4).map(str).filter(lambda a: a[0] == "1"), max_size=3)
others = st.dictionaries(st.sampled_from(["server", "x", "ws-opts"]), st.integers(0, 99))


@given(others, names, profiles, addresses)
def test_written_settings_are_read_back(
    other: dict[str, int], interface: str, profile: str, servers: list[str]
) -> None:
    text = with_settings(
        json.dumps(other),
        interface_name=interface,
        dns_profile=profile,
        dns_servers=tuple(servers),
    )
    expected = NodeSettings(
        interface_name=interface, dns_profile=profile, dns_servers=tuple(servers)
    )
    assert read_settings(text) == expected
    cleared = with_settings(text, interface_name="", dns_profile="", dns_servers=())
    assert json.loads(cleared) == other
    assert list(json.loads(cleared)) == list(other)


def test_dns_servers_are_parsed_from_text() -> None:
    assert parse_dns_servers(" 192.0.2.1,\r\n192.0.2.2\n\n192.0.2.1") == ("192.0.2.1", "192.0.2.2")
    assert parse_dns_servers("") == ()
    for text in ("dns.example", "0.0.0.0", "192.0.2.1;192.0.2.2", "239.0.0.1"):
        with pytest.raises(Invalid, match="dns_servers must be at most 8 IPv4 addresses"):
            parse_dns_servers(text)


# --- Hostile input. -------------------------------------------------------------------------

HOSTILE = [
    "a\nb",
    "a\rb",
    "a\x00b",
    '"',
    "'",
    "`id`",
    "\\",
    "; pty /bin/sh",
    "# x",
    "$(id)",
    "%s%n",
    "{{x}}",
    "[x]",
    "@/etc/shadow",
    "-x",
    "../../etc/passwd",
    "\u202e\u2028",
    "💥" * 10,
    "x" * 65_536,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: repr(t)[:20])
@pytest.mark.parametrize("key", ["server", "interface-name", "cipher", "plugin"])
def test_hostile_text_for_an_enumerated_value_is_refused(key: str, text: str) -> None:
    config = {"server": "a.example", "port": 1, "cipher": "none", "password": "p", key: text}
    assert problems("ss", config)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
keys = sorted({key for entry in PROTOCOLS.values() for key in entry.table.keys})
configs = st.dictionaries(st.sampled_from(keys) | st.text(max_size=8), values, max_size=8)


@given(st.sampled_from(sorted(PROTOCOLS)), configs)
def test_any_object_is_read_or_invalid(protocol: str, config: dict[str, Any]) -> None:
    told: tuple[str, ...] = ("config_json",)
    try:
        read = read_config(protocol, json.dumps(config))
        assert set(read.fields) <= set(PROTOCOLS[protocol].table.keys)
    except Invalid as invalid:
        told = invalid.problems
    assert told
    assert all(problem.startswith(("config_json", "a key of config_json")) for problem in told)


ODD: list[Any] = [True, False, 0, -1, 1.5, 10**30, " ", ",", "\u0000", "é" * 70_000]
ODD += [*([odd] for odd in ODD), [None], [[]], [{}], {}, {"a": 1}, {"a": None}, {"a": [{}]}, []]


def paths(table: Table) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a table's keys, and of those in tables within it."""
    for key, kind in table.keys.items():
        yield (key,)
        if isinstance(kind, Table):
            yield from ((key, *below) for below in paths(kind))


@pytest.mark.parametrize("protocol", sorted(PROTOCOLS))
def test_every_field_accepts_or_refuses_every_kind_of_value(protocol: str) -> None:
    for path in paths(PROTOCOLS[protocol].table):
        for odd in ODD:
            value: Any = odd
            for key in reversed(path):
                value = {key: value}
            reading = read_entry(protocol, value)
            assert reading.problems, "server, at least, must be given"


@given(st.text())
def test_any_text_is_read_or_invalid(text: str) -> None:
    with suppress(Invalid):
        read_settings(text)
    with suppress(Invalid):
        with_settings(text, dialer_proxy="n")


@pytest.mark.parametrize("absent", ["", None])
def test_forbidden_keys_may_be_empty(absent: str | None) -> None:
    given = {"server": "a.example", "port": 1, "password": "p", "fingerprint": absent, "ca": absent}
    assert read_config("trojan", json.dumps(given)).unknown == ()
    with pytest.raises(Invalid, match=r"config_json\.ca must not be given"):
        read_config("trojan", json.dumps(given | {"ca": "/etc/passwd"}))
