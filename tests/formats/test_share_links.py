"""Share links: real-world forms are read, and written links are read back."""

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.config_json import read_config
from egressd.formats.entries import PROTOCOLS
from egressd.formats.json_text import write_object
from egressd.formats.rows import Unreadable
from egressd.formats.share_links import is_link, parse_link, render_link
from egressd.model.errors import Invalid
from tests.formats.config_strategies import CONFIGS, REALITY, UUID, names


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def v2rayn(**given: Any) -> str:
    common = {"v": "2", "ps": "n", "add": "a.example", "port": "443", "id": UUID, "aid": "0"}
    return "vmess://" + b64(json.dumps({**common, **given}))


SERVER = {"server": "a.example", "port": 443}
VMESS = {**SERVER, "uuid": UUID, "alterId": 0, "cipher": "auto"}

READ: list[tuple[str, str, str, dict[str, Any]]] = [
    # SIP002's own examples, the legacy form, and the forms of the 2022 edition.
    (
        "ss://YWVzLTEyOC1nY206dGVzdA==@192.168.100.1:8888#Example1",
        "Example1",
        "ss",
        {"server": "192.168.100.1", "port": 8888, "cipher": "aes-128-gcm", "password": "test"},
    ),
    (
        "ss://cmM0LW1kNTpwYXNzd2Q@192.168.100.1:8888/?plugin=obfs-local%3Bobfs%3Dhttp#Example2",
        "Example2",
        "ss",
        {
            "server": "192.168.100.1",
            "port": 8888,
            "cipher": "rc4-md5",
            "password": "passwd",
            "plugin": "obfs",
            "plugin-opts": {"mode": "http"},
        },
    ),
    (
        "ss://2022-blake3-aes-256-gcm:YctPZ6U7xPPcU%2Bgp3u%2B0tx%2FtRizJN9K8y%2BuKlW2qjlI%3D@a.example:443#n",
        "n",
        "ss",
        {
            **SERVER,
            "cipher": "2022-blake3-aes-256-gcm",
            "password": "YctPZ6U7xPPcU+gp3u+0tx/tRizJN9K8y+uKlW2qjlI=",
        },
    ),
    (
        "ss://" + b64("aes-256-gcm:p@ss:w@a.example:443") + "#old",
        "old",
        "ss",
        {**SERVER, "cipher": "aes-256-gcm", "password": "p@ss:w"},
    ),
    (
        f"ss://{b64('none:p')}@[2001:db8::1]:443/?plugin="
        "v2ray-plugin%3Btls%3Bhost%3Da.example%3Bpath%3D%2Fa%5C%3Bb%3Bmux%3D0&uot=1",
        "",
        "ss",
        {
            "server": "2001:db8::1",
            "port": 443,
            "cipher": "none",
            "password": "p",
            "plugin": "v2ray-plugin",
            "plugin-opts": {
                "mode": "websocket",
                "tls": True,
                "mux": False,
                "host": "a.example",
                "path": "/a;b",
            },
            "udp-over-tcp": True,
            "udp-over-tcp-version": 1,
        },
    ),
    (v2rayn(ps="节点"), "节点", "vmess", VMESS),
    (
        v2rayn(port=443, aid=64, scy="chacha20-poly1305", net="ws", host="h.example", path="/p"),
        "n",
        "vmess",
        {
            **VMESS,
            "alterId": 64,
            "cipher": "chacha20-poly1305",
            "network": "ws",
            "ws-opts": {"path": "/p", "headers": {"Host": "h.example"}},
        },
    ),
    (
        v2rayn(net="grpc", path="svc", tls="tls", sni="s.example", alpn="h2,http/1.1", fp="ios"),
        "n",
        "vmess",
        {
            **VMESS,
            "tls": True,
            "servername": "s.example",
            "alpn": ["h2", "http/1.1"],
            "client-fingerprint": "ios",
            "network": "grpc",
            "grpc-opts": {"grpc-service-name": "svc"},
        },
    ),
    (
        v2rayn(net="tcp", type="http", host="h.example", path="/a,/b"),
        "n",
        "vmess",
        {
            **VMESS,
            "network": "http",
            "http-opts": {"path": ["/a", "/b"], "headers": {"Host": ["h.example"]}},
        },
    ),
    (
        f"vmess://{UUID}@a.example:443?encryption=auto&security=tls&type=h2&host=h.example&path=%2Fp#n",
        "n",
        "vmess",
        {
            **SERVER,
            "uuid": UUID,
            "cipher": "auto",
            "tls": True,
            "network": "h2",
            "h2-opts": {"path": "/p", "host": ["h.example"]},
        },
    ),
    (
        f"vless://{UUID}@a.example:443?encryption=none&flow=xtls-rprx-vision&security=reality"
        f"&sni=s.example&fp=chrome&pbk={REALITY['public-key']}&sid=0123abcd&type=tcp"
        "&headerType=none&spx=%2F#a%20b",
        "a b",
        "vless",
        {
            **SERVER,
            "uuid": UUID,
            "flow": "xtls-rprx-vision",
            "encryption": "none",
            "tls": True,
            "servername": "s.example",
            "client-fingerprint": "chrome",
            "reality-opts": REALITY,
        },
    ),
    (
        f"VLESS://{UUID}@[2001:db8::1]:8443/?type=ws&path=%2Fw%3Fa%3Db%26ed%3D2560%26c%3Dd#",
        "",
        "vless",
        {
            "server": "2001:db8::1",
            "port": 8443,
            "uuid": UUID,
            "network": "ws",
            "ws-opts": {
                "path": "/w?a=b&c=d",
                "max-early-data": 2560,
                "early-data-header-name": "Sec-WebSocket-Protocol",
            },
        },
    ),
    (
        "trojan://p%40ss@a.example?peer=s.example&allowInsecure=1&type=grpc&serviceName=g#t",
        "t",
        "trojan",
        {
            **SERVER,
            "password": "p@ss",
            "sni": "s.example",
            "skip-cert-verify": True,
            "network": "grpc",
            "grpc-opts": {"grpc-service-name": "g"},
        },
    ),
    (
        "hy2://user:pass@a.example/?insecure=1&obfs=salamander&obfs-password=o&sni=s.example#h",
        "h",
        "hysteria2",
        {
            **SERVER,
            "password": "user:pass",
            "obfs": "salamander",
            "obfs-password": "o",
            "sni": "s.example",
            "skip-cert-verify": True,
        },
    ),
    (
        "hysteria2://p@a.example:123,5000-6000/?up=10&down=100%20Mbps",
        "",
        "hysteria2",
        {
            "server": "a.example",
            "ports": "123,5000-6000",
            "password": "p",
            "up": "10",
            "down": "100 Mbps",
        },
    ),
    (
        f"tuic://{UUID}:p@a.example:443?congestion_control=bbr&udp_relay_mode=native&alpn=h3"
        "&sni=s.example&allow_insecure=1&disable_sni=0#t",
        "t",
        "tuic",
        {
            **SERVER,
            "uuid": UUID,
            "password": "p",
            "sni": "s.example",
            "alpn": ["h3"],
            "skip-cert-verify": True,
            "congestion-controller": "bbr",
            "udp-relay-mode": "native",
        },
    ),
    (
        "anytls://p@a.example/?sni=s.example&insecure=1#x",
        "x",
        "anytls",
        {**SERVER, "password": "p", "sni": "s.example", "skip-cert-verify": True},
    ),
    (
        "socks5://u:p%3A@a.example:443#s",
        "s",
        "socks5",
        {**SERVER, "username": "u", "password": "p:"},
    ),
    (
        "socks://" + urlsafe_b64encode(b"u:p").decode() + "@a.example:443#s",
        "s",
        "socks5",
        {**SERVER, "username": "u", "password": "p"},
    ),
    # v2rayN escapes the whole user part, as .NET does: in lower case.
    (
        f"tuic://{UUID}%3ap%3aq@a.example:443#t",
        "t",
        "tuic",
        {**SERVER, "uuid": UUID, "password": "p:q"},
    ),
    ("http://u%3ap@a.example:443", "", "http", {**SERVER, "username": "u", "password": "p"}),
    (
        "socks://" + quote(b64("u:??>>p"), safe="") + "@a.example:443#s",
        "s",
        "socks5",
        {**SERVER, "username": "u", "password": "??>>p"},
    ),
    (
        "socks5://u%3ap@a.example:443#s",
        "s",
        "socks5",
        {**SERVER, "username": "u", "password": "p"},
    ),
    (
        "ss://" + quote(b64("aes-256-gcm:??>>~~"), safe="") + "@a.example:443#n",
        "n",
        "ss",
        {**SERVER, "cipher": "aes-256-gcm", "password": "??>>~~"},
    ),
    (
        "ss://aes-256-gcm%3Ap%3Aq@a.example:443#n",
        "n",
        "ss",
        {**SERVER, "cipher": "aes-256-gcm", "password": "p:q"},
    ),
    (
        "ss://" + quote(b64("aes-256-gcm:p@a.example:443"), safe="") + "#old",
        "old",
        "ss",
        {**SERVER, "cipher": "aes-256-gcm", "password": "p"},
    ),
    ("socks5h://a.example?udp=1", "", "socks5", {"server": "a.example", "port": 1080, "udp": True}),
    (
        "http://u:p@a.example",
        "",
        "http",
        {"server": "a.example", "port": 80} | {"username": "u", "password": "p"},
    ),
    ("https://a.example/?sni=s.example", "", "http", {**SERVER, "tls": True, "sni": "s.example"}),
]


@pytest.mark.parametrize(("link", "name", "protocol", "config"), READ, ids=lambda v: str(v)[:24])
def test_links_are_parsed(link: str, name: str, protocol: str, config: dict[str, Any]) -> None:
    parsed = parse_link(link)
    assert (parsed.name, parsed.protocol, parsed.config) == (name, protocol, config)
    read_config(protocol, write_object(parsed.config))


@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("ssr://abc", "the link must begin with socks5://"),
        ("ss://abc#x", "an ss link must be"),
        ("ss://" + b64("no address") + "#x", "an ss link must be"),
        ("vmess://" + b64("{}{}"), "the link's JSON must be a JSON object"),
        ("vmess://" + b64('{"add": "a", "add": "b"}'), "the link's JSON must not hold the key"),
        ("trojan://p@a.example:443?security=none", "security must be tls or reality"),
        (f"vless://{UUID}@a.example:443?security=maybe", "security must be none, tls or reality"),
        ("hy2://p@a.example?pinSHA256=ab", "the link must not pin a certificate"),
        (f"vless://{UUID}@a.example:443?security=tls&pcs=ab", "the link must not pin"),
        (f"vless://{UUID}@a.example:443?security=reality&pqv=ab", "the link must not have pqv"),
        (f"vless://{UUID}@a.example:443?security=none&fm=%7B%7D", "the link must not have fm"),
        ("https://a.example/subscription?token=x", "the link must have no path"),
        ("http://[::1:80", "server must be a host name"),
        ("http://[::1]x", "server must be a host name"),
        ("http://a.example#%ff", "the link's % escapes must be UTF-8"),
        ("http://a.example?a=%ff", "the link's % escapes must be UTF-8"),
        ("http://a.example?" + "a=b&" * 65, "the link must not have over 64 parameters"),
        ("http://a.example\n", "the link must not contain control characters"),
        ("http://" + "a" * 65_536, "the link must not be over 65536 characters"),
    ],
)
def test_invalid_links_have_a_reason(link: str, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse_link(link)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize("end", ["%5C", "%5C%5C"])
def test_a_trailing_backslash_in_plugin_options_is_kept(end: str) -> None:
    # With a pattern that fails at the end, each start position would be tried in vain.
    options = "a" * 20_000
    link = f"ss://YWVzLTI1Ni1nY206cA==@192.0.2.1:443/?plugin=obfs-local%3Bobfs%3D{options}{end}#x"
    assert parse_link(link).config["plugin-opts"] == {"mode": options + "\\"}


def test_links_are_recognised_by_their_scheme() -> None:
    assert is_link("ss://x")
    assert is_link("SOCKS5://x")
    assert not is_link("name: a, type: http, server: https://x")
    assert not is_link("192.0.2.1,1080,u,http://")


def test_an_escaped_control_character_is_refused() -> None:
    parsed = parse_link("trojan://a%0Ab@a.example:443")
    with pytest.raises(Invalid, match=r"config_json\.password must not contain control"):
        read_config("trojan", write_object(parsed.config))


def test_ech_configurations_are_kept_and_ech_query_servers_refused() -> None:
    config = "ADn+DQA1BwAgACAAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHwAEAAEAAQAGYS50ZXN0AAA="
    fields = {**SERVER, "password": "p", "ech-opts": {"enable": True, "config": config}}
    link = render_link("n", "trojan", json.dumps(fields))
    assert link.lost == ()
    assert parse_link(link.text).config["ech-opts"] == fields["ech-opts"]
    asked = parse_link(
        "trojan://p@a.example:443?ech=a.example%2Bhttps%3A%2F%2F192.0.2.1%2Fdns-query"
    )
    with pytest.raises(Invalid, match=r"ech-opts\.config must be an ECHConfigList in base64"):
        read_config("trojan", write_object(asked.config))


def test_a_name_that_is_added_stands_where_a_given_one_does() -> None:
    reality = {"public-key": "jNXHt1yRo0vDuchQlIP6Z0ZvjT3KtzVI-T4E7RoLJS0"}
    fields = {**VMESS, "server": "192.0.2.1", "tls": True, "reality-opts": reality}
    fields |= {"network": "h2", "h2-opts": {"host": ["a.example"]}}
    added = render_link("n", "vmess", json.dumps(fields))
    given = render_link("n", "vmess", json.dumps({**fields, "servername": "192.0.2.1"}))
    assert added.text == given.text


def test_fields_that_a_link_cannot_express_are_reported() -> None:
    config = {
        **SERVER,
        "password": "p",
        "network": "ws",
        "ws-opts": {"path": "/", "headers": {"Host": "h.example", "X-A": "b"}},
        "ech-opts": {"enable": True},
        "skip-cert-verify": False,
        "tfo": True,
        "dialer-proxy": "hop",
    }
    link = render_link("n", "trojan", json.dumps(config))
    assert link.lost == ("ws-opts.headers.X-A", "ech-opts.enable", "tfo", "dialer-proxy")
    assert "p@" not in repr(link)


# --- Round trips. ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "word"),
    [("hysteria2", "insecure"), ("tuic", "allow_insecure"), ("anytls", "insecure")],
)
def test_disabled_verification_is_written_once(protocol: str, word: str) -> None:
    config = {
        "server": "a.example",
        "port": 443,
        "password": "p",
        "skip-cert-verify": True,
        **({"uuid": "8a8a8a8a-0000-4000-8000-000000000001"} if protocol == "tuic" else {}),
    }
    query = parse_qs(urlsplit(render_link("n", protocol, json.dumps(config)).text).query)
    assert {key: value for key, value in query.items() if "nsecure" in key} == {word: ["1"]}


def test_every_protocol_is_covered() -> None:
    assert set(CONFIGS) == set(PROTOCOLS)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data(), name=names)
def test_written_links_are_read_back(protocol: str, data: st.DataObject, name: str) -> None:
    config = data.draw(CONFIGS[protocol])
    link = render_link(name, protocol, json.dumps(config))
    assert link.lost == ()
    back = parse_link(link.text)
    assert (back.name, back.protocol) == (name, protocol)
    before = read_config(protocol, json.dumps(config)).fields
    after = read_config(protocol, write_object(back.config)).fields
    assert {key: after[key] for key in before if before[key]} == {
        k: v for k, v in before.items() if v
    }
    # Writing the read configuration gives the same link: nothing is added on the way.
    assert render_link(name, protocol, write_object(back.config)) == link
    assert link.text.isascii()
    assert not any(c in link.text for c in " \"'<>\\")
