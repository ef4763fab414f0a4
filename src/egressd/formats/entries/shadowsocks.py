"""Shadowsocks, with the plugins that the engine has built in."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any, Final, get_args

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import BOOLEAN, HOST, HTTP_PATH, TEXT, Kind, Table, choice, whole
from egressd.formats.layers import Values
from egressd.model.faults import Fault, fault
from egressd.model.outbounds import Cipher

SS_2022_KEY_BYTES: Final = {
    "2022-blake3-aes-128-gcm": 16,
    "2022-blake3-aes-256-gcm": 32,
    "2022-blake3-chacha20-poly1305": 32,
}
"""Cipher -> bytes of its key, in the 2022 edition (SIP022)."""
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
    if values.get("plugin") == "obfs":
        others = ["path", "tls", "mux", "sni", "name-cert-verify"]
    else:
        others = [] if options.get("tls", False) else ["sni", "name-cert-verify"]
    yield from (f"plugin-opts.{key}" for key in others if options.get(key))


SS: Final = Entry(
    Table(
        {
            **SERVER,
            "cipher": SS_CIPHERS,
            "password": TEXT,
            "udp-over-tcp": BOOLEAN,
            "udp-over-tcp-version": whole(1, 2),
            "plugin": choice(
                "obfs", "v2ray-plugin", aliases={"obfs-local": "obfs", "simple-obfs": "obfs"}
            ),
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
                }
            ),
        },
        TO_SERVER | {"cipher", "password"},
    ),
    (_ss_2022_key, _plugin_with_options),
    (_without_effect,),
)
