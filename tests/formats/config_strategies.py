"""Hypothesis strategies for the configuration of nodes, one for each protocol."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from hypothesis import strategies as st

from egressd.formats.rows import trimmed
from egressd.model.names import has_control_characters
from tests.support.nodes.configs import SSH_HOST_KEY, SSH_KEY, TUNNEL

UUID = "b831381d-6324-4d53-ad4f-8cda48b30811"
REALITY = {"public-key": "jNXHt1yRo0vDuchQlIP6Z0ZvjT3KtzVI-T4E7RoLJS0", "short-id": "0123abcd"}

plain = st.text(min_size=1, max_size=12).filter(
    lambda text: not has_control_characters(text) and "," not in text
)
absent = ("none", "null", "undefined")
plain_names = plain.filter(lambda text: text.lower() not in absent)
"""Names of servers and paths. Other programs write these words for a missing one."""
words = plain_names.filter(lambda text: "%" not in text)
"""Texts for parameters that Shadowrocket uses for a host's name, too."""
texts = plain | st.text(alphabet="%+&=#?/@:;\\ |\"'é", min_size=1, max_size=8)
hosts = st.sampled_from(["a.example", "192.0.2.1", "2001:db8::1", "xn--bcher-kva.example"])
ports = st.integers(1, 65535)
uuids = st.uuids().map(str)
switch = st.just(True)
names = texts.map(trimmed)
services = plain_names.filter(lambda name: not name.startswith("/"))


def objects(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(required, optional=optional)


SERVERS = {"server": hosts, "port": ports}
UDP = {"udp": st.booleans()}
QUIC_TLS = {
    "servername": hosts,
    "alpn": st.lists(st.sampled_from(["h2", "h3", "http/1.1"]), min_size=1, max_size=2),
    "skip-cert-verify": switch,
}
TLS = {**QUIC_TLS, "client-fingerprint": st.sampled_from(["chrome", "firefox", "random"])}
REALITIES = objects(
    {"public-key": st.just(REALITY["public-key"])}, {"short-id": st.sampled_from(["ab", "0f" * 8])}
)
PATHS = texts.filter(lambda t: "%" not in t and "ed=" not in t).map(lambda t: "/" + t.lstrip("/"))
HOST_HEADER = objects({"Host": plain_names}, {})
WS = objects({}, {"path": PATHS, "headers": HOST_HEADER})
EARLY = objects(
    {
        "path": PATHS,
        "max-early-data": st.integers(1, 65535),
        "early-data-header-name": st.sampled_from(["Sec-WebSocket-Protocol", "X-Early"]),
    },
    {"headers": HOST_HEADER},
)
HOST_LISTS = st.lists(plain_names.filter(lambda name: name == name.strip()), min_size=1, max_size=2)
NETWORKS = {
    "tcp": st.just({}),
    "ws": st.builds(lambda o: {"network": "ws", "ws-opts": o}, WS | EARLY),
    "httpupgrade": st.builds(lambda o: {"network": "httpupgrade", "ws-opts": o}, WS),
    "grpc": st.builds(
        lambda name: {"network": "grpc", "grpc-opts": {"grpc-service-name": name}}, services
    ),
    "h2": st.builds(
        lambda o: {"network": "h2", "tls": True, "h2-opts": o},
        objects({"host": HOST_LISTS}, {"path": PATHS}),
    ),
    "http": st.builds(
        lambda o: {"network": "http", "http-opts": o},
        objects(
            {"path": st.lists(PATHS.filter(lambda p: "," not in p), min_size=1, max_size=2)},
            {"headers": objects({"Host": HOST_LISTS}, {}), "method": st.just("PUT")},
        ),
    ),
}


def layers(*networks: str, tls: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return TLS or none, over each network that it can be combined with."""
    without = [NETWORKS[n] for n in networks if n != "h2"]
    within = [NETWORKS[n] for n in networks if n != "http"]
    secure = st.one_of(
        objects({"tls": switch}, tls), objects({"tls": switch, "reality-opts": REALITIES}, tls)
    )
    return st.one_of(without) | st.builds(lambda a, b: {**a, **b}, st.one_of(within), secure)


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda dicts: {k: v for d in dicts for k, v in d.items()})


ALL_NETWORKS = ("tcp", "ws", "httpupgrade", "grpc", "h2", "http")
PACKETS = {"packet-encoding": st.sampled_from(["xudp", "packetaddr", "none"])}
CREDENTIALS: st.SearchStrategy[dict[str, Any]] = st.just({}) | objects(
    {"username": texts}, {"password": texts}
)
KEYS = {"2022-blake3-aes-128-gcm": 16, "2022-blake3-aes-256-gcm": 32}
PLUGINS: st.SearchStrategy[dict[str, Any]] = (
    st.just({})
    | st.builds(
        lambda o: {"plugin": "obfs", "plugin-opts": o},
        objects({"mode": st.sampled_from(["http", "tls"])}, {"host": hosts}),
    )
    | st.builds(
        lambda o: {"plugin": "v2ray-plugin", "plugin-opts": {"mode": "websocket", **o}},
        objects({}, {"host": hosts, "path": PATHS, "tls": switch, "mux": st.booleans()}),
    )
    | st.builds(
        lambda o, more: {"plugin": "shadow-tls", "plugin-opts": o, **more},
        objects(
            {"host": hosts, "password": texts, "version": st.integers(2, 3)},
            {"alpn": st.just(["h2", "http/1.1"])},
        ),
        objects({}, {"client-fingerprint": st.just("chrome")}),
    )
)
SS_SECRETS = objects(
    {"cipher": st.sampled_from(["aes-128-gcm", "none", "rc4-md5"]), "password": texts}, {}
) | st.sampled_from(sorted(KEYS)).flatmap(
    lambda cipher: st.binary(min_size=KEYS[cipher], max_size=KEYS[cipher]).map(
        lambda key: {"cipher": cipher, "password": b64encode(key).decode()}
    )
)

CONFIGS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "socks5": merged(objects(SERVERS, UDP), CREDENTIALS),
    "http": merged(
        objects(SERVERS, {}),
        st.fixed_dictionaries({}) | CREDENTIALS.filter(lambda c: ":" not in c.get("username", "")),
        st.just({}) | objects({"tls": switch}, TLS),
    ),
    "ss": merged(
        objects(SERVERS, UDP),
        SS_SECRETS,
        PLUGINS,
        st.just({})
        | objects({"udp-over-tcp": switch, "udp-over-tcp-version": st.integers(1, 2)}, {}),
    ),
    "vmess": merged(
        objects(
            {**SERVERS, "uuid": uuids, "alterId": st.integers(0, 65535)},
            {"cipher": st.sampled_from(["auto", "none", "zero", "aes-128-gcm"]), **UDP, **PACKETS},
        ),
        layers(*ALL_NETWORKS, tls=TLS),
    ),
    "vless": merged(
        objects({**SERVERS, "uuid": uuids}, {"encryption": st.just("none"), **UDP, **PACKETS}),
        layers(*ALL_NETWORKS, tls=TLS)
        | objects({"tls": switch, "flow": st.just("xtls-rprx-vision")}, TLS),
    ),
    "trojan": merged(
        objects({**SERVERS, "password": texts}, {**UDP, **TLS, "reality-opts": REALITIES}),
        st.one_of([NETWORKS[n] for n in ("tcp", "ws", "httpupgrade", "grpc")]),
    ),
    "hysteria": merged(
        objects(SERVERS, {})
        | objects(
            {"server": hosts, "ports": st.just("443,8000-9000")},
            {"hop-interval": st.integers(5, 99)},
        ),
        objects({"up": st.integers(1, 9999), "down": st.integers(1, 9999)}, {}),
        objects({}, {"auth-str": texts, "obfs": words, **UDP, **QUIC_TLS}),
    ),
    "hysteria2": merged(
        objects(SERVERS, {}) | objects({"server": hosts, "ports": st.just("443,8000-9000")}, {}),
        objects({}, {"password": texts, **UDP, **QUIC_TLS, "up": st.integers(1, 9999)}),
        st.just({}) | objects({"obfs": st.just("salamander"), "obfs-password": texts}, {}),
    ),
    "tuic": objects(
        {**SERVERS, "uuid": uuids, "password": texts},
        {
            **UDP,
            **QUIC_TLS,
            "congestion-controller": st.sampled_from(["cubic", "new_reno", "bbr"]),
            "udp-relay-mode": st.sampled_from(["native", "quic"]),
            "udp-over-stream": switch,
            "reduce-rtt": switch,
            "disable-sni": switch,
        },
    ),
    "anytls": objects({**SERVERS, "password": texts}, {**UDP, **TLS, "reality-opts": REALITIES}),
    "wireguard": objects(
        {**SERVERS, **{key: st.just(value) for key, value in TUNNEL.items()}},
        {
            **UDP,
            "pre-shared-key": st.just(TUNNEL["public-key"]),
            "allowed-ips": st.just(["0.0.0.0/0"]) | st.just(["10.0.0.0/8", "192.0.2.0/24"]),
            "reserved": st.lists(st.integers(0, 255), min_size=3, max_size=3),
            "mtu": st.integers(576, 9000),
            "persistent-keepalive": st.integers(0, 65_535),
        },
    ),
    "ssh": merged(
        objects(
            SERVERS,
            {
                "username": texts,
                "password": texts,
                "host-key": st.lists(st.just(SSH_HOST_KEY), min_size=1, max_size=2),
                "host-key-algorithms": st.just(["ssh-ed25519", "ssh-rsa"]),
            },
        ),
        st.just({}) | objects({"private-key": st.just(list(SSH_KEY))}, {}),
    ),
}
