"""Outbounds, checked with the real engine: sing-box starts with those that are built here."""

import json
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest
import singbox
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.formats.config_json import SETTINGS_KEYS
from egressd.formats.entries import PROTOCOLS
from egressd.formats.share_links import parse_link
from egressd.model.errors import Invalid
from egressd.model.names import has_control_characters
from egressd.planner.options import ENDPOINTS, carrier_of, ech_name, options_of
from egressd.planner.outbounds import build
from tests.support.nodes.configs import (
    ACCEPTED,
    FOREIGN,
    GRPC,
    H2,
    HTTP,
    REALITY,
    SSH_HOST_KEY,
    SSH_KEY,
    TLS,
    TUNNEL,
    UPGRADE,
    UUID,
    WS,
    key,
    node,
)


def options(protocol: str, **config: Any) -> dict[str, Any]:
    fields = {name.replace("_", "-"): value for name, value in config.items()}
    return options_of(build(node(protocol, fields)))


def list_of(options: dict[str, Any]) -> str:
    """Return the name of the document's list that these options belong into."""
    return "endpoints" if options["type"] in ENDPOINTS else "outbounds"


def engine_problem(outbound: dict[str, Any]) -> str:
    """Return why the engine refuses the outbound, or an empty string."""
    document = {
        "log": {"disabled": True},
        "dns": {"servers": [{"type": "local", "tag": "device"}]},
        list_of(outbound): [{**outbound, "tag": "target", "routing_mark": 1}],
        "route": {"final": "target", "default_domain_resolver": "device"},
    }
    instance = singbox.SingBox()
    try:
        instance.startFromJSON(json.dumps(document))
    except singbox.SingBoxError as error:
        return str(error)
    instance.stop()
    return ""


@pytest.mark.parametrize(("protocol", "config"), ACCEPTED, ids=lambda v: json.dumps(v)[:60])
def test_the_engine_starts_with_each_outbound(protocol: str, config: dict[str, Any]) -> None:
    for udp in (True, False):
        outbound = build(node(protocol, {"udp": udp, **config}))
        assert engine_problem(options_of(outbound)) == ""


def test_the_engine_check_can_fail() -> None:
    assert "unknown method" in engine_problem(
        {**options("ss", cipher="none", password="p"), "method": "rot13"}
    )


SHADOW_TLS: dict[str, Any] = {
    "plugin": "shadow-tls",
    "plugin-opts": {"host": "a.example", "password": "s", "version": 3},
}

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("ss", {"cipher": "rot13", "password": "p"}, "config_json.cipher must be one of"),
    (
        "ss",
        {"cipher": "2022-blake3-aes-256-gcm", "password": key(16)},
        "config_json.password must be a key of 32 bytes in base64 with this cipher",
    ),
    (
        "ss",
        {"cipher": "2022-blake3-chacha20-poly1305", "password": f"{key(32)}:{key(32)}"},
        "config_json.password must be one key",
    ),
    (
        "ss",
        {"cipher": "none", "password": "p", "plugin": "kcptun"},
        "config_json.plugin must be one of obfs, v2ray-plugin",
    ),
    (
        "ss",
        {"cipher": "none", "password": "p", "plugin": "obfs", "plugin-opts": {"mode": "websocket"}},
        "config_json.plugin-opts.mode must be http or tls with obfs",
    ),
    ("vmess", {"uuid": "not-a-uuid-and-of-over-30-bytes"}, "config_json.uuid must be a UUID"),
    ("vmess", {"uuid": UUID, "cipher": "aes-128-ctr"}, "config_json.cipher must be one of"),
    ("vmess", {"uuid": UUID, "network": "kcp"}, "config_json.network must be one of tcp"),
    (
        "vless",
        {"uuid": UUID, "tls": True, "reality-opts": {**REALITY, "short-id": "0" * 18}},
        "config_json.reality-opts.short-id must be at most 16 hexadecimal digits",
    ),
    (
        "vless",
        {"uuid": UUID, "tls": True, "reality-opts": {"public-key": "abc"}},
        "config_json.reality-opts.public-key must be an X25519 public key",
    ),
    ("vless", {"uuid": UUID, "reality-opts": REALITY}, "config_json.tls must be true"),
    ("vless", {"uuid": UUID, "flow": "xtls-rprx-vision"}, "config_json.tls must be true"),
    (
        "vless",
        {"uuid": UUID, "flow": "xtls-rprx-vision", **TLS, **WS},
        "config_json.network must be tcp when flow is given",
    ),
    ("vless", {"uuid": UUID, **TLS, **HTTP}, "config_json.network must not be http"),
    ("trojan", {}, "config_json.password must be text"),
    (
        "trojan",
        {"password": "p", "client-fingerprint": "netscape"},
        "config_json.client-fingerprint must be one of chrome",
    ),
    (
        "trojan",
        {"password": "p", "reality-opts": REALITY, "ech-opts": {"enable": True}},
        "config_json.ech-opts.enable must be false",
    ),
    (
        "trojan",
        {"password": "p", "ech-opts": {"enable": True, "config": "AAAA"}},
        "config_json.ech-opts.config must be an ECHConfigList in base64",
    ),
    (
        "trojan",
        {"password": "p", "alpn": ["x" * 256]},
        "config_json.alpn must be a list of at most 64 names of 1 to 255 bytes",
    ),
    (
        "trojan",
        {"password": "p", "network": "ws", "ws-opts": {"path": "/%zz"}},
        "config_json.ws-opts.path must be an HTTP path",
    ),
    ("hysteria", {"up": 1}, "config_json.down must be a rate"),
    ("hysteria", {"up": 0, "down": 1}, "config_json.up must be a rate"),
    ("hysteria", {"up": 1, "down": 1, "protocol": "faketcp"}, "config_json.protocol must be udp"),
    ("hysteria", {"up": 1, "down": 1, "auth": "*"}, "config_json.auth must be a text in base64"),
    (
        "ss",
        {"cipher": "none", "password": "p", "plugin": "shadow-tls"},
        "config_json.plugin-opts.host must be a host name",
    ),
    (
        "ss",
        {"cipher": "none", "password": "p", "plugin": "shadow-tls", "plugin-opts": {"host": "a.b"}},
        "config_json.plugin-opts.password must be text",
    ),
    ("hysteria2", {"obfs": "salamander"}, "config_json.obfs and obfs-password must be given"),
    (
        "hysteria2",
        {"ech-opts": {"enable": True, "query-server-name": "a.example"}},
        "config_json.ech-opts.config must be given when ech-opts.enable is true",
    ),
    ("hysteria2", {"ports": "9-1"}, "config_json.ports must be ports and ranges"),
    (
        "tuic",
        {"uuid": UUID, "password": "p", "congestion-controller": "vegas"},
        "config_json.congestion-controller must be one of cubic, new_reno, bbr",
    ),
    ("tuic", {"token": "t"}, "config_json.token must not be given"),
    ("socks5", {"tls": True}, "config_json.tls must be false"),
    ("socks5", {"password": "p"}, "config_json.username must be given when password is"),
    ("wireguard", {**TUNNEL, "private-key": "AAAA"}, "config_json.private-key must be a key of"),
    ("wireguard", {**TUNNEL, "private-key": None}, "config_json.private-key must be a key of"),
    ("wireguard", {**TUNNEL, "ip": "fd00::2"}, "config_json.ip must be an IPv4 address"),
    ("wireguard", {**TUNNEL, "ip": "10.2.0.2/33"}, "config_json.ip must be an IPv4 address"),
    (
        "wireguard",
        {**TUNNEL, "allowed-ips": ["::/0"]},
        "config_json.allowed-ips must be a list of at most 64 networks, an IPv4 one",
    ),
    ("wireguard", {**TUNNEL, "reserved": [1, 2]}, "config_json.reserved must be three bytes"),
    ("wireguard", {**TUNNEL, "reserved": [1, 2, 256]}, "config_json.reserved must be three bytes"),
    ("wireguard", {**TUNNEL, "mtu": 100}, "config_json.mtu must be a whole number from 576"),
    (
        "wireguard",
        {**TUNNEL, "public-key": TUNNEL["private-key"]},
        "config_json.public-key must not be the same as private-key",
    ),
    (
        "wireguard",
        {**TUNNEL, "amnezia-wg-option": {"jc": 5}},
        "config_json.amnezia-wg-option must not be given",
    ),
    ("wireguard", {**TUNNEL, "peers": [{}, {}]}, "config_json.peers must have one peer"),
    ("ssh", {"private-key": "/root/.ssh/id"}, "config_json.private-key must be a private key"),
    ("ssh", {"private-key": list(SSH_KEY[1:])}, "config_json.private-key must be a private key"),
    (
        "ssh",
        {"private-key": "\n".join(SSH_KEY).replace("b3", "b\x00")},
        "config_json.private-key must not contain control characters",
    ),
    ("ssh", {"private-key-passphrase": "p"}, "config_json.private-key must be given when"),
    ("ssh", {"host-key": ["ssh-rsa AAAA"]}, "config_json.host-key must be a list of keys"),
    (
        "ssh",
        {"host-key": [SSH_HOST_KEY.replace("ssh-ed25519", "ssh-rsa", 1)]},
        "config_json.host-key must be a list of keys",
    ),
    (
        "ssh",
        {"host-key-algorithms": ["rsa"]},
        "config_json.host-key-algorithms must be a list of some of ssh-ed25519",
    ),
]


@pytest.mark.parametrize(("protocol", "config", "problem"), REFUSED, ids=lambda v: str(v)[:60])
def test_options_unusable_by_the_engine_are_refused_by_name(
    protocol: str, config: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Invalid) as caught:
        build(node(protocol, config))
    assert any(p.startswith(problem) for p in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("protocol", "config", "udp"),
    [
        ("socks5", {}, False),
        ("socks5", {"udp": True}, True),
        ("http", {"udp": True}, False),
        ("ss", {"cipher": "none", "password": "p"}, True),
        ("ss", {"cipher": "none", "password": "p", "udp": False}, False),
        ("vmess", {"uuid": UUID}, True),
        ("vless", {"uuid": UUID, "udp": False}, False),
        ("trojan", {"password": "p"}, True),
        ("hysteria", {"up": 1, "down": 1}, True),
        ("ss", {"cipher": "none", "password": "p", **SHADOW_TLS}, False),
        ("ss", {"cipher": "none", "password": "p", "udp-over-tcp": True, **SHADOW_TLS}, True),
        ("hysteria2", {}, True),
        ("tuic", {"uuid": UUID, "password": "p"}, True),
        ("anytls", {"password": "p", "udp": False}, False),
        ("ssh", {"udp": True}, False),
        ("wireguard", TUNNEL, True),
        ("wireguard", {**TUNNEL, "udp": False}, False),
    ],
)
def test_udp_is_carried_unless_disabled_or_unsupported(
    protocol: str, config: dict[str, Any], udp: bool
) -> None:
    outbound = build(node(protocol, config))
    assert outbound.udp is udp
    has_option = protocol not in ("http", "anytls", "ssh", "wireguard")
    assert options_of(outbound).get("network") == ("tcp" if not udp and has_option else None)


def test_a_plugin_option_cannot_add_another() -> None:
    text = options(
        "ss",
        cipher="none",
        password="p",
        plugin="v2ray-plugin",
        plugin_opts={"path": "/;cert=/etc/shadow", "tls": True},
    )["plugin_opts"]
    assert text == "mode=websocket;host=bing.com;path=/\\;cert\\=/etc/shadow;mux=1;tls="


def test_the_host_header_is_the_default_name_of_the_tls_server() -> None:
    assert options("vless", uuid=UUID, tls=True, **WS)["tls"]["server_name"] == "cdn.example.com"
    given = options("vless", uuid=UUID, tls=True, servername="a.example", **WS)
    assert given["tls"]["server_name"] == "a.example"


@pytest.mark.parametrize("network", [WS, UPGRADE, H2, GRPC])
def test_alpn_is_left_to_the_engine_for_such_transports(network: dict[str, Any]) -> None:
    tls = {name.replace("-", "_"): value for name, value in {**TLS, **network}.items()}
    assert "alpn" not in options("vless", uuid=UUID, **tls)["tls"]


@pytest.mark.parametrize("protocol", ["vmess", "vless"])
def test_vless_and_vmess_pack_datagrams_with_xudp_by_default(protocol: str) -> None:
    made = options(protocol, uuid=UUID)
    assert made["packet_encoding"] == "xudp"
    assert options(protocol, uuid=UUID, **{"packet-encoding": "none"})["packet_encoding"] == ""


def test_http_upgrade_is_a_kind_of_websocket() -> None:
    ws = {"path": "/u", "headers": {"Host": "a.example", "X": "y"}, "v2ray-http-upgrade": True}
    made = options("vmess", uuid=UUID, network="ws", ws_opts=ws)["transport"]
    expected = {"type": "httpupgrade", "path": "/u", "host": "a.example", "headers": {"X": "y"}}
    assert made == expected


def test_unknown_keys_never_reach_the_engine() -> None:
    made = options("socks5", version="4", network="udp", domain_resolver="x", tfo=True)
    assert made == {
        "type": "socks",
        "version": "5",
        "server": "192.0.2.1",
        "server_port": 443,
        "network": "tcp",
    }


def test_ech_configuration_becomes_pem() -> None:
    config = "ADn+DQA1BwAgACAAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHwAEAAEAAQAGYS50ZXN0AAA="
    ech = {"enable": True, "config": config}
    made = options("trojan", password="p", ech_opts=ech)["tls"]["ech"]
    assert made == {
        "enabled": True,
        "config": ["-----BEGIN ECH CONFIGS-----", config, "-----END ECH CONFIGS-----"],
    }


def test_the_ech_query_has_the_sni_or_the_configured_name() -> None:
    def name(**ech: Any) -> str:
        fields = {"server": "a.example", "password": "p", "ech-opts": {"enable": True, **ech}}
        return ech_name(build(node("trojan", {**fields, "sni": "b.example"})))

    assert name() == "b.example"
    assert name(**{"query-server-name": "c.example"}) == "c.example"
    assert name(enable=False) == ""


@pytest.mark.parametrize(
    "text",
    [
        list(SSH_KEY),
        "\n".join(SSH_KEY),
        "\r\n".join(SSH_KEY),
        "\\n".join(SSH_KEY),
        " ".join(SSH_KEY),
        [SSH_KEY[0], "".join(SSH_KEY[1:-1]), SSH_KEY[-1]],
    ],
)
def test_a_private_key_is_read_in_each_form_that_a_text_may_have(text: Any) -> None:
    assert options("ssh", **{"private-key": text})["private_key"] == list(SSH_KEY)


def test_an_encrypted_private_key_keeps_its_headers() -> None:
    head = ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,0123456789ABCDEF0123456789ABCDEF"]
    key = [
        "-----BEGIN RSA PRIVATE KEY-----",
        *head,
        "",
        "AAAA" * 8,
        "-----END RSA PRIVATE KEY-----",
    ]
    made = options("ssh", **{"private-key": "\n".join(key), "private-key-passphrase": "p"})
    assert made["private_key"] == key
    assert made["private_key_passphrase"] == "p"


def test_shadow_tls_is_an_outbound_that_shadowsocks_dials_through() -> None:
    fields = {"cipher": "none", "password": "p", "client-fingerprint": "firefox", **SHADOW_TLS}
    outbound = build(node("ss", fields))
    assert "plugin" not in options_of(outbound)
    layer = carrier_of(outbound)
    assert layer == {
        "type": "shadowtls",
        "server": "192.0.2.1",
        "server_port": 443,
        "version": 3,
        "password": "s",
        "tls": {
            "enabled": True,
            "server_name": "a.example",
            "utls": {"enabled": True, "fingerprint": "firefox"},
        },
    }
    assert engine_problem(layer) == ""
    assert carrier_of(build(node("ss", {"cipher": "none", "password": "p"}))) is None


@pytest.mark.parametrize("version", [1, 2])
def test_older_shadow_tls_speaks_no_tls_1_3(version: int) -> None:
    options = {**SHADOW_TLS["plugin-opts"], "version": version}
    fields = {"cipher": "none", "password": "p", "client-fingerprint": "chrome"}
    made = build(node("ss", {**fields, "plugin": "shadow-tls", "plugin-opts": options}))
    layer = carrier_of(made)
    assert layer is not None
    assert layer["tls"] == {"enabled": True, "server_name": "a.example", "max_version": "1.2"}
    assert ("password" in layer) is (version == 2)
    assert engine_problem(layer) == ""


def test_rates_and_ranges_are_in_the_engines_units() -> None:
    made = options("hysteria2", ports="443/1000-2000", up="1.5 Mbps", down="20 MBps")
    assert made["server_ports"] == ["443:443", "1000:2000"]
    assert (made["up_mbps"], made["down_mbps"]) == (2, 160)


def test_repr_shows_no_secret() -> None:
    outbound = build(node("trojan", {"password": "hunter2"}))
    assert "Trojan" in repr(outbound)
    assert "hunter2" not in repr(outbound)


# --- The engine and egressd's checks agree on free text as well. -----------------------------

free_text = st.text(max_size=24).filter(lambda text: not has_control_characters(text))
awkward = free_text | st.text(alphabet="%;=\\/?#[]{}:@ aé0F", max_size=12)


@settings(max_examples=60)
@given(
    protocol=st.sampled_from(["vmess", "vless", "trojan"]),
    network=st.sampled_from(["ws", "httpupgrade", "grpc"]),
    path=awkward,
    host=awkward,
    password=awkward,
)
def test_accepted_transports_start(
    protocol: str, network: str, path: str, host: str, password: str
) -> None:
    config = {
        "uuid": UUID,
        "password": password,
        "network": network,
        "ws-opts": {"path": path, "headers": {"Host": host}},
        "grpc-opts": {"grpc-service-name": path},
    }
    with suppress(Invalid):
        assert engine_problem(options_of(build(node(protocol, config)))) == ""


@settings(max_examples=60)
@given(
    path=awkward,
    host=st.sampled_from(["", "a.example", "2001:db8::1"]),
    password=awkward,
    mux=st.booleans(),
)
def test_accepted_plugins_start(path: str, host: str, password: str, mux: bool) -> None:
    given_options = {"path": path, "host": host, "tls": True, "mux": mux}
    config = {"cipher": "aes-128-gcm", "password": password, "plugin": "v2ray-plugin"}
    with suppress(Invalid):
        outbound = build(node("ss", {**config, "plugin-opts": given_options}))
        assert engine_problem(options_of(outbound)) == ""


@given(path=awkward, host=st.sampled_from(["a.example", "192.0.2.1"]), tls=st.booleans())
def test_plugin_options_are_read_back_unchanged(path: str, host: str, tls: bool) -> None:
    wanted = {"mode": "websocket", "host": host, "path": f"/{path}", "mux": True, "tls": tls}
    config = {"cipher": "none", "password": "p", "plugin": "v2ray-plugin", "plugin-opts": wanted}
    try:
        text = options_of(build(node("ss", config)))["plugin_opts"]
    except Invalid:
        assert "%" in path
        return
    link = parse_link(f"ss://none:p@a.example:1?plugin={quote(f'v2ray-plugin;{text}')}")
    assert link.config["plugin-opts"] == {k: v for k, v in wanted.items() if v is not False}


values = st.just("x") | st.just(7) | st.just({"certificate_path": "/etc/shadow", "enabled": True})


@given(st.sampled_from(ACCEPTED), st.dictionaries(st.sampled_from(FOREIGN) | free_text, values))
def test_no_key_of_a_configuration_passes_through(
    accepted: tuple[str, dict[str, Any]], extra: dict[str, Any]
) -> None:
    protocol, config = accepted
    known = PROTOCOLS[protocol].table.keys
    unknown = {k: v for k, v in extra.items() if k not in known and k not in SETTINGS_KEYS}
    with suppress(Invalid):
        assert build(node(protocol, {**config, **unknown})) == build(node(protocol, config))
