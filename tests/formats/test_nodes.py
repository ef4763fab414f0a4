"""Import rows of nodes: socks5, ss, vlessvmess and Clash entries."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.config_json import read_config
from egressd.formats.default_names import automatic_names
from egressd.formats.nodes import NODE_IMPORT_TYPES, parse_nodes
from egressd.formats.rows import Accepted
from egressd.model.drafts import BadRow, NodeDraft

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
REALITY_KEY = "jNXHt1yRo0vDuchQlIP6Z0ZvjT3KtzVI-T4E7RoLJS0"


def parse(import_type: str, text: str) -> list[tuple[str, str, dict[str, Any]] | str]:
    """Return each node as (name, protocol, configuration), or its reason as it is shown."""
    return [
        (r.draft.name, r.draft.protocol, json.loads(r.draft.config_json))
        if isinstance(r, Accepted)
        else str(r)
        for r in parse_nodes(import_type, text)
    ]


def only(import_type: str, text: str) -> tuple[str, str, dict[str, Any]] | str:
    (node,) = parse(import_type, text)
    return node


def test_socks5_rows_are_parsed() -> None:
    text = '192.0.2.1,1080,u,p,one\n192.0.2.2,1080,,\n[2001:db8::1],1080,u,"p,q"\n192.0.2.3,1080'
    assert parse("socks5", text) == [
        (
            "one",
            "socks5",
            {"server": "192.0.2.1", "port": 1080, "username": "u", "password": "p"},
        ),
        ("192.0.2.2:1080", "socks5", {"server": "192.0.2.2", "port": 1080}),
        (
            "[2001:db8::1]:1080",
            "socks5",
            {"server": "[2001:db8::1]", "port": 1080, "username": "u", "password": "p,q"},
        ),
        ("192.0.2.3:1080", "socks5", {"server": "192.0.2.3", "port": 1080}),
    ]


def test_ss_rows_are_parsed() -> None:
    config = {"server": "a.example", "port": 8388, "cipher": "aes-128-gcm", "password": "p"}
    assert parse("ss", "a.example,8388,aes-128-gcm,p\na.example, 8388, aes-128-gcm, p, x") == [
        ("a.example:8388", "ss", config),
        ("x", "ss", config),
    ]


def test_vless_and_vmess_rows_are_parsed() -> None:
    vless = (
        f"vless|{UUID}|a.example|443|tcp|reality|b.example|||xtls-rprx-vision|{REALITY_KEY}"
        "|ab|chrome|one"
    )
    assert only("vlessvmess", vless) == (
        "one",
        "vless",
        {
            "server": "a.example",
            "port": 443,
            "uuid": UUID,
            "flow": "xtls-rprx-vision",
            "tls": True,
            "servername": "b.example",
            "client-fingerprint": "chrome",
            "reality-opts": {"public-key": REALITY_KEY, "short-id": "ab"},
        },
    )
    vmess = f"vmess|{UUID}|[::1]|80|64|auto|ws|none||/w?ed=2048|cdn.example|two"
    assert only("vlessvmess", vmess) == (
        "two",
        "vmess",
        {
            "server": "[::1]",
            "port": 80,
            "uuid": UUID,
            "alterId": 64,
            "cipher": "auto",
            "network": "ws",
            "ws-opts": {
                "path": "/w",
                "headers": {"Host": "cdn.example"},
                "max-early-data": 2048,
                "early-data-header-name": "Sec-WebSocket-Protocol",
            },
        },
    )
    assert only("vlessvmess", f"VLESS|{UUID}|a.example|443|grpc|tls||svc") == (
        "a.example:443",
        "vless",
        {
            "server": "a.example",
            "port": 443,
            "uuid": UUID,
            "tls": True,
            "network": "grpc",
            "grpc-opts": {"grpc-service-name": "svc"},
        },
    )
    assert only("vlessvmess", f"vmess|{UUID}|a.example|443") == (
        "a.example:443",
        "vmess",
        {"server": "a.example", "port": 443, "uuid": UUID},
    )


TROJAN = {"server": "a.example", "port": 443, "password": "0123", "sni": "b.example"}


@pytest.mark.parametrize(
    "row",
    [
        "name: a, type: trojan, server: a.example, port: 443, password: 0123, sni: b.example",
        "{name: a, type: trojan, server: a.example, port: 443, password: 0123, sni: b.example}",
        "- {name: a, type: trojan, server: a.example, port: '443', password: 0123, sni: b.example}",
        '{"name": "a", "type": "trojan", "server": "a.example", "port": 443, "password": "0123",'
        ' "sni": "b.example"}',
    ],
)
def test_clash_rows_are_parsed(row: str) -> None:
    assert only("others", row) == ("a", "trojan", TROJAN)


def test_clash_values_are_converted_to_the_fields_types() -> None:
    row = (
        "type: vmess, name: 123, server: a.example, port: 443, "
        f"uuid: {UUID}, alterId: 0, cipher: auto, udp: true, tls: True, skip-cert-verify: false, "
        "network: ws, ws-opts: {path: /x, headers: {Host: 1.5}, max-early-data: 2048}, "
        "alpn: [h2, http/1.1], servername: ~, tfo: true, mtu: 1400, note: 1e3"
    )
    assert only("others", row) == (
        "123",
        "vmess",
        {
            "server": "a.example",
            "port": 443,
            "uuid": UUID,
            "alterId": 0,
            "cipher": "auto",
            "udp": True,
            "tls": True,
            "skip-cert-verify": False,
            "network": "ws",
            "ws-opts": {"path": "/x", "headers": {"Host": "1.5"}, "max-early-data": 2048},
            "alpn": ["h2", "http/1.1"],
            "servername": None,
            "tfo": True,
            "mtu": 1400,
            "note": "1e3",
        },
    )


def test_a_reality_short_id_stays_text() -> None:
    row = (
        f"name: r, type: vless, server: a.example, port: 443, uuid: {UUID}, tls: true, "
        f"reality-opts: {{public-key: {REALITY_KEY}, short-id: 12e4}}"
    )
    node = only("others", row)
    assert not isinstance(node, str)
    assert node[2]["reality-opts"]["short-id"] == "12e4"


DOCUMENT = """\
port: 7890
# the nodes
proxies:
  - name: one
    type: trojan
    server: a.example
    port: 443
    password: 0123   # a comment
    sni: b.example

  - {name: two, type: socks5, server: 192.0.2.1, port: 1080}
  - name: three
    type: ss
    server: [oops
  - name: four
    type: http
    server: 192.0.2.4
    port: 8080
    alpn:
    - h2
proxy-groups:
  - name: g
    type: select
"""


def test_a_pasted_clash_configuration_is_parsed() -> None:
    one, two, three, four = parse("others", DOCUMENT)
    assert one == ("one", "trojan", TROJAN)
    assert two == ("two", "socks5", {"server": "192.0.2.1", "port": 1080})
    assert str(three).startswith("line 12: the entry must be readable as YAML: ")
    assert four == ("four", "http", {"server": "192.0.2.4", "port": 8080, "alpn": ["h2"]})


def test_a_pasted_list_without_its_key_is_parsed() -> None:
    text = "- name: one\n  type: http\n  server: a.example\n  port: 80\n- name: two\n  type: http\n"
    one, two = parse("others", text)
    assert one == ("one", "http", {"server": "a.example", "port": 80})
    assert str(two).startswith("line 5: server must be a host name")


@pytest.mark.parametrize("ending", ["]", "\n]\nrules: []"])
def test_a_list_in_brackets_is_parsed(ending: str) -> None:
    entry = "{name: %s, type: http, server: a.example, port: 80}"
    text = f"proxies: [{entry % 'one'},\n  {entry % 'two'}, {{name: x}}{ending}"
    assert parse("others", text) == [
        ("one", "http", {"server": "a.example", "port": 80}),
        ("two", "http", {"server": "a.example", "port": 80}),
        "line 2: type must be one of socks5, http, ss, vmess, vless, trojan, hysteria, hysteria2, "
        "tuic, anytls, ssh, wireguard",
    ]


@pytest.mark.parametrize(
    ("import_type", "row", "reason"),
    [
        ("socks5", "192.0.2.1", "a socks5 node is IP,Port,User,Pass"),
        ("socks5", "192.0.2.1,1080,u", "a socks5 node is IP,Port,User,Pass"),
        ("socks5", "192.0.2.1,0,u,p", "port must be a whole number from 1 to 65535"),
        ("socks5", "192.0.2.1,x,u,p", "port must be a whole number from 1 to 65535"),
        ("socks5", "a b,1080,,p", "server must be a host name or an IP address; username must be"),
        ("socks5", "192.0.2.1,1080,u,p,DIRECT", "name must not be DIRECT"),
        ("socks5", f"{'a' * 60}.test,1080", "name must be given: server:port has over 64"),
        ("ss", "192.0.2.1,1080,rot13,p", "cipher must be one of"),
        ("ss", "192.0.2.1,1080,aes-128-gcm", "an ss node is IP,Port,Cipher,Password"),
        ("vlessvmess", "trojan|x|y|1", "the row must begin with vless| or vmess|"),
        ("vlessvmess", "vless|x|y", "a vless node is vless|uuid|server|port|network"),
        ("vlessvmess", f"vless|{'x' * 31}|a.example|1", "uuid must be a UUID"),
        ("vlessvmess", f"vless|{UUID}|a.example|1|ws|maybe", "security must be none, tls or"),
        ("vlessvmess", f"vless|{UUID}|a.example|1|kcp", "network must be one of"),
        ("others", "hello", "type must be one of"),
        ("others", "[]x", "the entry must be readable as YAML"),
        ("others", "type: snell, server: a.example", "type must be one of"),
        ("others", "type: http, type: ss", "the entry's keys must be texts, each given once"),
        ("others", "a: *x", "a YAML alias must have its anchor before it"),
        ("others", "a: !!python/object:os.system x", "the entry must not hold YAML tags"),
        ("others", "a: " + "[" * 10 + "]" * 10, "the entry must not be nested over 6 deep"),
        ("others", "[" * 60_000, "the entry must not be nested over 6 deep"),
        ("others", "a: " + "x" * 65_536, "the entry must not be over 65536 characters"),
        ("others", "a: \x07", "the entry must not contain control characters"),
        (
            "others",
            "type: http, server: a.example, port: 1, dialer-proxy: hop",
            "dialer-proxy must not be given in an import",
        ),
        (
            "others",
            "type: http, server: a.example, port: 1, interface-name: eth0",
            "interface-name must not be given in an import",
        ),
        (
            "others",
            "type: http, server: a.example, port: 1, routing-mark: 1",
            "routing-mark must not be given",
        ),
        (
            "others",
            'type: http, server: a.example, port: 1, password: "a\\nb"',
            "password must not contain control characters",
        ),
    ],
)
def test_invalid_rows_have_a_reason(import_type: str, row: str, reason: str) -> None:
    shown = only(import_type, row)
    assert str(shown).startswith(f"line 1: {reason}")
    assert len(str(shown)) < 600


def test_no_reason_repeats_a_secret() -> None:
    text = "a b,1,u,hunter2,n\n192.0.2.1,x,u,hunter2"
    assert all("hunter2" not in str(shown) for shown in parse("socks5", text))


def test_share_links_are_accepted_in_place_of_rows() -> None:
    text = "trojan://0123@a.example:443?sni=b.example#a\n"
    for import_type in NODE_IMPORT_TYPES:
        assert only(import_type, text) == ("a", "trojan", TROJAN)


def test_nodes_get_the_group_and_automatic_names() -> None:
    names = automatic_names("socks5", 1, {"socks5_2"})
    text = "192.0.2.1,1080,,,bad\x00\n192.0.2.1,1080,,,Group_x\nx,y\n192.0.2.2,1080"
    results = list(parse_nodes("socks5", text, group="g", names=names))
    named = [r.draft for r in results if isinstance(r, Accepted)]
    assert [(d.name, d.group) for d in named] == [("socks5_1", "g"), ("socks5_3", "g")]
    assert [r.line for r in results if isinstance(r, BadRow)] == [1, 3]


def check(results: list[Accepted[NodeDraft] | BadRow]) -> None:
    for result in results:
        if isinstance(result, Accepted):
            read_config(result.draft.protocol, result.draft.config_json)
        else:
            assert result.reason


SCHEMES = st.sampled_from(["vless", "vmess", "ss", "trojan", "hy2", "tuic", "socks", "https"])
WORDS = """name type server port uuid: , { } [ ] - http vless | 443 a.example ' " : // @ ? & =
# % %zz %00 ws network tls true ~ *x &x ! proxies: aGk6"""
PIECES = st.lists(st.sampled_from([*WORDS.split(), " ", "\n", "\t"]), max_size=14).map("".join)


@given(st.sampled_from(NODE_IMPORT_TYPES), st.text() | PIECES)
def test_any_text_gives_nodes_or_reasons(import_type: str, text: str) -> None:
    check(list(parse_nodes(import_type, text)))


@given(SCHEMES, st.text(max_size=60) | PIECES)
def test_any_link_gives_a_node_or_a_reason(scheme: str, text: str) -> None:
    check(list(parse_nodes("others", f"{scheme}://{text}")))


HOSTILE = [
    "a\rb",
    "a\x00b",
    '"',
    "'",
    "`id`",
    "\\",
    ";",
    "#",
    "$(id)",
    "%s",
    "{",
    "}",
    "[",
    "]",
    "@/etc/shadow",
    "-x",
    "../../etc/passwd",
    "a\u2028b",
    "💥",
    "x" * 65_536,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: repr(t)[:12])
@pytest.mark.parametrize("place", range(5))
def test_hostile_text_in_a_row_is_refused_or_kept_in_its_field(place: int, text: str) -> None:
    row = ["192.0.2.1", "1080", "aes-128-gcm", "secret", "name"]
    row[place] = text
    for result in parse_nodes("ss", ",".join(row)):
        if isinstance(result, Accepted):
            config = json.loads(result.draft.config_json)
            kept = [config["server"], str(config["port"]), config["cipher"], config["password"]]
            # Accepted text is one value of one field, unchanged.
            assert [*kept, result.draft.name] == [field.strip() for field in row]
            assert place in (3, 4)


@pytest.mark.parametrize(
    "text", ["proxies: []", "proxies:", "[]", "port: 7890\nproxies:\nproxy-groups:\n  - name: g\n"]
)
def test_an_empty_list_is_a_bad_row(text: str) -> None:
    (reason,) = parse("others", text)
    assert str(reason).endswith("the list holds no node")


def test_links_may_follow_a_list_and_other_text_is_ignored() -> None:
    entry = "- name: one\n  type: http\n  server: a.example\n  port: 80\n"
    links = "socks5://192.0.2.1:1080#two\nsocks5://192.0.2.2:1080#three\n"
    names = ["one", "two", "three"]
    assert [found[0] for found in parse("others", entry + links)] == names
    assert [found[0] for found in parse("others", f"proxies:\n{entry}{links}rules: []\nx")] == names
