"""Which fields a node of each protocol has: Clash/mihomo's names, and what each takes.

The bounds and choices are those of the engine (sing-box 1.14), so that a configuration
accepted here is one that the engine starts with. A key that no table names never reaches
the engine.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from egressd.formats.amounts import port_ranges, rate_mbps
from egressd.formats.fields import (
    BOOLEAN,
    HEADERS,
    HOST,
    HTTP_PATH,
    PORT,
    TEXT,
    UUID_TEXT,
    Kind,
    Table,
    choice,
    short_text,
    text_where,
    whole,
)
from egressd.formats.layers import (
    NETWORKS,
    QUIC_TLS,
    TLS,
    TRANSPORTS,
    Values,
    http_goes_without_tls,
    no_ech_in_reality,
    one_server_name,
    reality_needs_tls,
    upgrade_is_ws,
)

Rule = Callable[[Values], Iterator[str]]


@dataclass(frozen=True)
class Entry:
    """A protocol's table, and the rules that look at several fields together.

    A rule yields a sentence, beginning with a field's name, for each fault it finds.
    """

    table: Table
    rules: tuple[Rule, ...] = ()


# --- Protocols. -----------------------------------------------------------------------------

_SERVER: Final[dict[str, Kind | Table]] = {"server": HOST, "port": PORT, "udp": BOOLEAN}
_TO_SERVER: Final = frozenset({"server", "port"})

_PACKETS: Final[dict[str, Kind | Table]] = {
    "packet-encoding": choice("none", "xudp", "packetaddr", aliases={"packet": "packetaddr"}),
    "packet-addr": BOOLEAN,
    "xudp": BOOLEAN,
}


def _user_before_password(values: Values) -> Iterator[str]:
    if "password" in values and "username" not in values:
        yield "username must be given when password is"


def _no_tls_to_socks(values: Values) -> Iterator[str]:
    if values.get("tls", False):
        yield "tls must be false: the engine does not speak SOCKS over TLS"


SOCKS5: Final = Entry(
    Table(
        # RFC 1929 gives both one length byte.
        {**_SERVER, "username": short_text(255), "password": short_text(255), "tls": BOOLEAN},
        _TO_SERVER,
    ),
    (_user_before_password, _no_tls_to_socks),
)

HTTP: Final = Entry(
    Table(
        {
            **_SERVER,
            **TLS,
            "username": text_where(
                "text of at most 255 bytes without a colon",  # RFC 7617, section 2
                lambda text: len(text.encode()) <= 255 and ":" not in text,
            ),
            "password": short_text(255),
            "tls": BOOLEAN,
            "headers": HEADERS,
        },
        _TO_SERVER,
    ),
    (_user_before_password, one_server_name, reality_needs_tls, no_ech_in_reality),
)

SS_2022_KEY_BYTES: Final = {
    "2022-blake3-aes-128-gcm": 16,
    "2022-blake3-aes-256-gcm": 32,
    "2022-blake3-chacha20-poly1305": 32,
}
"""Key sizes of the 2022 edition (SIP022)."""
_SS_AEAD: Final = (
    "aes-128-gcm",
    "aes-192-gcm",
    "aes-256-gcm",
    "chacha20-ietf-poly1305",
    "xchacha20-ietf-poly1305",
)
_SS_OLD: Final = (
    "aes-128-ctr",
    "aes-192-ctr",
    "aes-256-ctr",
    "aes-128-cfb",
    "aes-192-cfb",
    "aes-256-cfb",
    "rc4-md5",
    "chacha20-ietf",
    "xchacha20",
)
SS_CIPHERS: Final = choice(
    *SS_2022_KEY_BYTES,
    *_SS_AEAD,
    *_SS_OLD,
    "none",
    aliases={
        "chacha20-poly1305": "chacha20-ietf-poly1305",
        "xchacha20-poly1305": "xchacha20-ietf-poly1305",
        "plain": "none",
    },
)


def _ss_2022_key(values: Values) -> Iterator[str]:
    size = SS_2022_KEY_BYTES.get(values.get("cipher", ""))
    if size is None or "password" not in values:
        return
    keys = values["password"].split(":")
    try:
        sizes = {len(b64decode(key, validate=True)) for key in keys}
    except ValueError:
        sizes = set()
    if sizes != {size}:
        yield f"password must be a key of {size} bytes in base64 with this cipher"
    elif len(keys) > 1 and "chacha20" in values["cipher"]:
        yield "password must be one key: this cipher has no identity keys"


def _plugin_with_options(values: Values) -> Iterator[str]:
    plugin = values.get("plugin")
    options = values.get("plugin-opts", {})
    if plugin is None:
        if options:
            yield "plugin must be given when plugin-opts is"
        return
    mode = options.get("mode", "websocket" if plugin == "v2ray-plugin" else None)
    modes = {"obfs": ("http", "tls"), "v2ray-plugin": ("websocket",)}[plugin]
    if mode not in modes:
        yield f"plugin-opts.mode must be {' or '.join(modes)} with {plugin}"
    if options.get("skip-cert-verify", False):
        yield "plugin-opts.skip-cert-verify must be false: the engine's plugin always verifies"


SS: Final = Entry(
    Table(
        {
            **_SERVER,
            "cipher": SS_CIPHERS,
            "password": TEXT,
            "udp-over-tcp": BOOLEAN,
            "udp-over-tcp-version": whole(1, 2),
            "plugin": choice("obfs", "v2ray-plugin", aliases={"obfs-local": "obfs"}),
            "plugin-opts": Table(
                {
                    "mode": choice("http", "tls", "websocket"),
                    "host": HOST,
                    "path": HTTP_PATH,
                    "tls": BOOLEAN,
                    "mux": BOOLEAN,
                    "skip-cert-verify": BOOLEAN,
                }
            ),
        },
        _TO_SERVER | {"cipher", "password"},
    ),
    (_ss_2022_key, _plugin_with_options),
)

_V2RAY_RULES: Final = (
    one_server_name,
    reality_needs_tls,
    no_ech_in_reality,
    http_goes_without_tls,
    upgrade_is_ws,
)

VMESS: Final = Entry(
    Table(
        {
            **_SERVER,
            **TLS,
            **TRANSPORTS,
            **_PACKETS,
            "uuid": UUID_TEXT,
            "alterId": whole(0, 65535),
            "cipher": choice("auto", "none", "zero", "aes-128-gcm", "chacha20-poly1305"),
            "network": NETWORKS,
            "tls": BOOLEAN,
            "global-padding": BOOLEAN,
            "authenticated-length": BOOLEAN,
        },
        _TO_SERVER | {"uuid"},
    ),
    _V2RAY_RULES,
)


def _vision(values: Values) -> Iterator[str]:
    if "flow" not in values:
        return
    if not values.get("tls", False):
        yield "tls must be true when flow is given"
    if values.get("network", "tcp") != "tcp":
        yield "network must be tcp when flow is given"


VLESS: Final = Entry(
    Table(
        {
            **_SERVER,
            **TLS,
            **TRANSPORTS,
            **_PACKETS,
            "uuid": UUID_TEXT,
            "flow": choice(
                "xtls-rprx-vision", aliases={"xtls-rprx-vision-udp443": "xtls-rprx-vision"}
            ),
            "encryption": choice("none"),
            "network": NETWORKS,
            "tls": BOOLEAN,
        },
        _TO_SERVER | {"uuid"},
    ),
    (*_V2RAY_RULES, _vision),
)

TROJAN: Final = Entry(
    Table(
        {
            **_SERVER,
            **TLS,
            "password": TEXT,
            "network": choice("tcp", "ws", "grpc", "httpupgrade"),
            "ws-opts": TRANSPORTS["ws-opts"],
            "grpc-opts": TRANSPORTS["grpc-opts"],
        },
        _TO_SERVER | {"password"},
    ),
    (one_server_name, no_ech_in_reality, upgrade_is_ws),
)


def _rate(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    if rate_mbps(value) > 1_000_000:
        raise ValueError
    return value


RATE: Final = Kind("a rate such as 100 or 100 Mbps", _rate)


def _hysteria_port(values: Values) -> Iterator[str]:
    if "port" not in values and "ports" not in values:
        yield f"port must be {PORT.takes}"


def _hysteria_obfs(values: Values) -> Iterator[str]:
    if ("obfs" in values) != ("obfs-password" in values):
        yield "obfs and obfs-password must be given together"


HYSTERIA2: Final = Entry(
    Table(
        {
            **_SERVER,
            **QUIC_TLS,
            "ports": text_where("ports and ranges such as 443,8000-9000", port_ranges),
            "hop-interval": whole(5, 3600),
            "password": TEXT,
            "up": RATE,
            "down": RATE,
            "obfs": choice("salamander"),
            "obfs-password": TEXT,
        },
        frozenset({"server"}),
    ),
    (one_server_name, _hysteria_port, _hysteria_obfs),
)


def _tuic_token(values: Values) -> Iterator[str]:
    if "token" in values:
        yield "token must not be given: TUIC is spoken in version 5, with uuid and password"


TUIC: Final = Entry(
    Table(
        {
            **_SERVER,
            **QUIC_TLS,
            "uuid": UUID_TEXT,
            "password": TEXT,
            "token": TEXT,
            "congestion-controller": choice("cubic", "new_reno", "bbr"),
            "udp-relay-mode": choice("native", "quic"),
            "udp-over-stream": BOOLEAN,
            "reduce-rtt": BOOLEAN,
            "heartbeat-interval": whole(1, 600_000),
            "disable-sni": BOOLEAN,
        },
        _TO_SERVER | {"uuid", "password"},
    ),
    (one_server_name, _tuic_token),
)

ANYTLS: Final = Entry(
    Table(
        {
            **_SERVER,
            **TLS,
            "password": TEXT,
            "idle-session-check-interval": whole(1, 86_400),
            "idle-session-timeout": whole(1, 86_400),
            "min-idle-session": whole(0, 1024),
        },
        _TO_SERVER | {"password"},
    ),
    (one_server_name, no_ech_in_reality),
)

PROTOCOLS: Final[Mapping[str, Entry]] = {
    "socks5": SOCKS5,
    "http": HTTP,
    "ss": SS,
    "vmess": VMESS,
    "vless": VLESS,
    "trojan": TROJAN,
    "hysteria2": HYSTERIA2,
    "tuic": TUIC,
    "anytls": ANYTLS,
}
"""What a node's ``protocol`` may be."""
