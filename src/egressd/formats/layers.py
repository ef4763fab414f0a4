"""The TLS and transport fields that nodes of several protocols share.

Names are Clash/mihomo's; bounds and choices are those of the engine (sing-box 1.14).
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from egressd.formats import ech
from egressd.formats.fields import (
    BOOLEAN,
    HEADER_LISTS,
    HEADERS,
    HOST,
    HTTP_PATH,
    HTTP_PATHS,
    TEXT,
    TEXT_LIST,
    Kind,
    Table,
    choice,
    short_text,
    text_where,
    whole,
)
from egressd.model.outbounds import Fingerprint

Values = Mapping[str, Any]

# --- TLS. -----------------------------------------------------------------------------------


def _is_reality_key(text: str) -> bool:
    """An X25519 public key: 32 bytes in unpadded base64url, as the engine decodes it."""
    return re.fullmatch(r"[A-Za-z0-9_-]{43}", text) is not None


def _is_ech_config_list(text: str) -> bool:
    # The engine looks into it no sooner than at the first connection, which then fails.
    return ech.is_config_list(b64decode(text, validate=True))


_ALPN_MAX: Final = 255
"""Octets of a protocol's name (RFC 7301, section 3.1)."""


def _alpn(value: Any) -> list[str]:
    names: list[str] = TEXT_LIST.check(value)
    if not all(0 < len(name.encode()) <= _ALPN_MAX for name in names):
        raise ValueError
    return names


FINGERPRINTS: Final = get_args(Fingerprint)
_UTLS: Final = choice(*FINGERPRINTS, "none")

_REALITY: Final = Table(
    {
        "public-key": text_where("an X25519 public key: 43 base64url characters", _is_reality_key),
        "short-id": text_where(
            "at most 16 hexadecimal digits, an even number of them",
            lambda text: re.fullmatch(r"(?:[0-9a-fA-F]{2}){1,8}", text),
        ),
    },
    required=frozenset({"public-key"}),
)
_ECH: Final = Table(
    {
        "enable": BOOLEAN,
        "config": text_where("an ECHConfigList in base64", _is_ech_config_list),
        "query-server-name": HOST,
    }
)

QUIC_TLS: Final[dict[str, Kind | Table]] = {
    "sni": HOST,
    "servername": HOST,
    "alpn": Kind(
        f"a list of at most 64 names of 1 to {_ALPN_MAX} bytes", _alpn, TEXT_LIST.from_text
    ),
    "skip-cert-verify": BOOLEAN,
    "ech-opts": _ECH,
}
TLS: Final[dict[str, Kind | Table]] = {
    **QUIC_TLS,
    "client-fingerprint": _UTLS,
    "reality-opts": _REALITY,
}


def one_server_name(values: Values) -> Iterator[str]:
    if "sni" in values and values.get("servername", values["sni"]) != values["sni"]:
        yield "servername must be the same as sni when both are given"


def reality_needs_tls(values: Values) -> Iterator[str]:
    if "reality-opts" in values and not values.get("tls", False):
        yield "tls must be true when reality-opts is given"


def no_ech_in_reality(values: Values) -> Iterator[str]:
    if "reality-opts" in values and values.get("ech-opts", {}).get("enable", False):
        yield "ech-opts.enable must be false when reality-opts is given"


def canonical(values: dict[str, Any]) -> dict[str, Any]:
    """`values` with one spelling for what Clash users write in two.

    The server's name is under ``servername``; HTTP upgrade is ``network: httpupgrade``; the
    way UDP is packed is under ``packet-encoding``; early data is not asked for in a WebSocket's
    path; a list of ports takes the place of the port; plain TCP and no fingerprint need no word.
    """
    made = dict(values)
    if "sni" in made:
        made["servername"] = made.pop("sni")
    if "ws-opts" in made:
        options = made["ws-opts"] = dict(made["ws-opts"])
        if options.pop("v2ray-http-upgrade", False) and made.get("network") == "ws":
            made["network"] = "httpupgrade"
        path, early = split_early_data(options.get("path", ""))
        if early:
            options["path"] = path
            if made.get("network") == "ws":
                options["max-early-data"] = int(early)
                options["early-data-header-name"] = EARLY_DATA_HEADER
    packets = {"packetaddr": made.pop("packet-addr", False), "xudp": made.pop("xudp", False)}
    if "packet-encoding" not in made and any(packets.values()):
        made["packet-encoding"] = "packetaddr" if packets["packetaddr"] else "xudp"
    if "ports" in made:
        made.pop("port", None)
    for key, usual in (("network", "tcp"), ("client-fingerprint", "none")):
        if made.get(key) == usual:
            del made[key]
    return made


# --- Transports over TCP. -------------------------------------------------------------------

TRANSPORTS: Final[dict[str, Kind | Table]] = {
    "ws-opts": Table(
        {
            "path": HTTP_PATH,
            "headers": HEADERS,
            "max-early-data": whole(0, 65535),
            "early-data-header-name": short_text(64),
            "v2ray-http-upgrade": BOOLEAN,
            "v2ray-http-upgrade-fast-open": BOOLEAN,
        }
    ),
    "grpc-opts": Table({"grpc-service-name": TEXT}),
    "h2-opts": Table({"host": TEXT_LIST, "path": HTTP_PATH}),
    "http-opts": Table(
        {
            "method": text_where("an HTTP method", lambda text: re.fullmatch("[A-Z]{1,16}", text)),
            "path": HTTP_PATHS,
            "headers": HEADER_LISTS,
        }
    ),
}
NETWORKS: Final = choice("tcp", "ws", "grpc", "http", "h2", "httpupgrade")

EARLY_DATA_HEADER: Final = "Sec-WebSocket-Protocol"
"""Where Xray has early data."""
_EARLY_DATA: Final = re.compile(r"[?&]ed=([0-9]{1,5})(?=&|\Z)")


def split_early_data(path: str) -> tuple[str, str]:
    """A WebSocket's path, and how many bytes of early data it asks for in Xray's way, which are
    taken out of it; an empty text when it asks for none.
    """
    found = _EARLY_DATA.search(path)
    if found is None:
        return path, ""
    rest = path[found.end() :]
    return path[: found.start()] + (found[0][0] + rest[1:] if rest else ""), found[1]


def http_goes_without_tls(values: Values) -> Iterator[str]:
    # The engine speaks HTTP/2 as soon as there is TLS; Clash's `http` is HTTP/1.1.
    if values.get("network") == "http" and values.get("tls", False):
        yield "network must not be http when tls is true; HTTP/2 over TLS is h2"


def upgrade_is_ws(values: Values) -> Iterator[str]:
    options = values.get("ws-opts", {})
    if options.get("max-early-data") and (
        values.get("network") == "httpupgrade" or options.get("v2ray-http-upgrade", False)
    ):
        yield "ws-opts.max-early-data must be 0 with HTTP upgrade"
