"""Shadowsocks, with the plugins that the engine has built in."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, get_args

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import BOOLEAN, HOST, HTTP_PATH, TEXT, Kind, Table, choice, whole
from egressd.formats.layers import TLS, Values
from egressd.model.faults import Fault, fault
from egressd.model.outbounds import Cipher

SS_2022_KEY_BYTES: Final = {
    "2022-blake3-aes-128-gcm": 16,
    "2022-blake3-aes-256-gcm": 32,
    "2022-blake3-chacha20-poly1305": 32,
}
"""Cipher -> bytes of its key, in the 2022 edition (SIP022)."""
SHADOW_TLS_VERSION: Final = 2
"""Clash's default version of ShadowTLS."""
_SHADOW_TLS_OPTIONS: Final = ("password", "version", "alpn")
SS_CIPHERS: Final = choice(
    *get_args(Cipher),
    aliases={
        "chacha20-poly1305": "chacha20-ietf-poly1305",
        "xchacha20-poly1305": "xchacha20-ietf-poly1305",
        "plain": "none",
    },
)


def _ss_2022_key(values: Values) -> Iterator[Fault]:
    size = SS_2022_KEY_BYTES.get(values.get("cipher", ""))
    if size is None or "password" not in values:
        return
    keys = values["password"].split(":")
    try:
        sizes = {len(b64decode(key, validate=True)) for key in keys}
    except ValueError:
        sizes = set()
    if sizes != {size}:
        yield fault("password", "cipher-key", size=size)
    elif len(keys) > 1 and "chacha20" in values["cipher"]:
        yield fault("password", "one-key")


def _plugin_with_options(values: Values) -> Iterator[Fault]:
    plugin = values.get("plugin")
    options = values.get("plugin-opts", {})
    if plugin is None:
        if options:
            yield fault("plugin", "needed-by", other="plugin-opts")
        return
    if plugin == "shadow-tls":
        yield from _shadow_tls(options)
        return
    mode = options.get("mode", "websocket" if plugin == "v2ray-plugin" else None)
    modes = {"obfs": ("http", "tls"), "v2ray-plugin": ("websocket",)}[plugin]
    if mode not in modes:
        yield fault("plugin-opts.mode", "plugin-mode", modes=" or ".join(modes), plugin=plugin)
    if options.get("skip-cert-verify", False):
        yield fault("plugin-opts.skip-cert-verify", "plugin-verifies")
    host = options.get("host")
    for key in ("sni", "name-cert-verify"):
        if options.get("tls", False) and options.get(key, host) != host:
            yield fault(f"plugin-opts.{key}", "plugin-one-name")


def _shadow_tls(options: Values) -> Iterator[Fault]:
    version = options.get("version", SHADOW_TLS_VERSION)
    if "host" not in options:
        yield HOST.fault("plugin-opts.host")
    if version > 1 and "password" not in options:
        yield TEXT.fault("plugin-opts.password")
    if options.get("skip-cert-verify", False):
        yield fault("plugin-opts.skip-cert-verify", "plugin-verifies")


def _mux(value: Any) -> bool:
    """Return the plugin's switch, which is a number in SIP003 options: 0 is off."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:9])
    if not isinstance(value, bool | int):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    return bool(value)


def _without_effect(values: Values) -> Iterator[str]:
    if "udp-over-tcp-version" in values and not values.get("udp-over-tcp", False):
        yield "udp-over-tcp-version"
    options = values.get("plugin-opts", {})
    plugin = values.get("plugin")
    others = [*_SHADOW_TLS_OPTIONS] if plugin != "shadow-tls" else []
    if plugin == "obfs":
        others += ["path", "tls", "mux", "sni", "name-cert-verify"]
    elif plugin == "shadow-tls":
        others += ["mode", "path", "tls", "mux", "sni", "name-cert-verify"]
        if options.get("version", SHADOW_TLS_VERSION) == 1:
            others.append("password")
        if values.get("udp", False) and not values.get("udp-over-tcp", False):
            yield "udp"
    elif not options.get("tls", False):
        others += ["sni", "name-cert-verify"]
    yield from (f"plugin-opts.{key}" for key in others if options.get(key))
    is_imitated = plugin == "shadow-tls" and options.get("version", SHADOW_TLS_VERSION) == 3
    if not is_imitated and values.get("client-fingerprint", "none") != "none":
        yield "client-fingerprint"


SS: Final = Entry(
    Table(
        {
            **SERVER,
            "cipher": SS_CIPHERS,
            "password": TEXT,
            "udp-over-tcp": BOOLEAN,
            "udp-over-tcp-version": whole(1, 2),
            "plugin": choice(
                "obfs",
                "v2ray-plugin",
                "shadow-tls",
                aliases={"obfs-local": "obfs", "simple-obfs": "obfs", "shadowtls": "shadow-tls"},
            ),
            "client-fingerprint": TLS["client-fingerprint"],
            "plugin-opts": Table(
                {
                    "mode": choice("http", "tls", "websocket"),
                    "host": HOST,
                    "path": HTTP_PATH,
                    "tls": BOOLEAN,
                    "mux": Kind("boolean", _mux, BOOLEAN.from_text),
                    "skip-cert-verify": BOOLEAN,
                    "sni": HOST,
                    "name-cert-verify": HOST,
                    "password": TEXT,
                    "version": whole(1, 3),
                    "alpn": TLS["alpn"],
                }
            ),
        },
        TO_SERVER | {"cipher", "password"},
    ),
    (_ss_2022_key, _plugin_with_options),
    (_without_effect,),
)
