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
from egressd.formats.hosts import parse_host
from egressd.formats.scalars import is_off
from egressd.model.faults import Fault, fault
from egressd.model.outbounds import Fingerprint

Values = Mapping[str, Any]

# --- TLS. -----------------------------------------------------------------------------------


def _is_reality_key(text: str) -> bool:
    """True if `text` is an X25519 public key: 32 bytes in unpadded base64url, as the engine decodes
    it.
    """
    return re.fullmatch(r"[A-Za-z0-9_-]{43}", text) is not None


def _is_ech_config_list(text: str) -> bool:
    # The engine reads it only at the first connection, which then fails.
    return ech.is_config_list(b64decode(text, validate=True))


_ALPN_MAX: Final = 255
"""Octets of a protocol's name (RFC 7301, section 3.1)."""


def _alpn(value: Any) -> list[str]:
    names: list[str] = TEXT_LIST.check(value)
    if not all(0 < len(name.encode()) <= _ALPN_MAX for name in names):
        raise ValueError
    return names


def _one_host(value: Any) -> str:
    """Return a host, from a text or from a list whose items are all the same."""
    given = value.split(",") if isinstance(value, str) else TEXT_LIST.check(value)
    names = {HOST.check(name) for name in given}
    if len(names) != 1:
        raise ValueError
    return str(names.pop())


FINGERPRINTS: Final = get_args(Fingerprint)
_FINGERPRINT: Final = re.compile(
    r"(?:hello)?(chrome|firefox|edge|safari|360|qq|ios|android|randomized|random)"
    r"(?:[_-]?(?:[0-9]|auto|psk|pq|padding|alpn|noalpn|okhttp)[0-9a-z_]*)?\Z"
)
"""A browser, with an optional version, as uTLS, Xray and older sing-box name it."""


def _fingerprint(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    word = value.lower()
    if word in ("none", "unsafe", "hellogolang", "golang"):  # Go's own TLS
        return "none"
    match = _FINGERPRINT.match(word)
    if match is None:
        raise ValueError
    return match[1]


_UTLS: Final = Kind(
    "one-of",
    _fingerprint,
    str.strip,
    is_taken=lambda value: value.lower() not in (*FINGERPRINTS, "none"),
    values={"choices": (*FINGERPRINTS, "none")},
)
"""A version is read as its family, since the engine has one fingerprint of each."""

_REALITY: Final = Table(
    {
        "public-key": text_where("reality-key", _is_reality_key),
        "short-id": text_where(
            "reality-short-id",
            lambda text: re.fullmatch(r"(?:[0-9a-fA-F]{2}){1,8}", text),
        ),
    },
    required=frozenset({"public-key"}),
)
_ECH: Final = Table(
    {
        "enable": BOOLEAN,
        "config": text_where("ech-config", _is_ech_config_list),
        "query-server-name": HOST,
    }
)

QUIC_TLS: Final[dict[str, Kind | Table]] = {
    "sni": HOST,
    "servername": HOST,
    "alpn": Kind("alpn", _alpn, TEXT_LIST.from_text, values={"most": _ALPN_MAX}),
    "skip-cert-verify": BOOLEAN,
    "name-cert-verify": Kind("server-name", _one_host, HOST.from_text),
    "ech-opts": _ECH,
}
TLS: Final[dict[str, Kind | Table]] = {
    **QUIC_TLS,
    "client-fingerprint": _UTLS,
    "reality-opts": _REALITY,
}


def one_server_name(values: Values) -> Iterator[Fault]:
    if "sni" in values and values.get("servername", values["sni"]) != values["sni"]:
        yield fault("servername", "differs", other="sni")


def certificate_bears_server_name(values: Values) -> Iterator[Fault]:
    name = values.get("name-cert-verify")
    if name is not None and name != server_name(values):
        yield fault("name-cert-verify", "certificate-name")


def server_name(values: Values) -> str:
    """Return the server's name for SNI, of an entry that may name none."""
    given: str = values.get("servername") or values.get("sni") or ""
    return given or _host_header(values) or values.get("server", "")


def _host_header(values: Values) -> str:
    headers = values.get("ws-opts", {}).get("headers", {})
    return next((str(text) for name, text in headers.items() if name.lower() == "host"), "")


def reality_needs_tls(values: Values) -> Iterator[Fault]:
    if "reality-opts" in values and not values.get("tls", False):
        yield fault("tls", "tls-needed", other="reality-opts")


def no_ech_in_reality(values: Values) -> Iterator[Fault]:
    if "reality-opts" in values and values.get("ech-opts", {}).get("enable", False):
        yield fault("ech-opts.enable", "ech-with-reality")


def tls_without_effect(values: Values) -> Iterator[str]:
    """Yield the TLS fields of an entry whose ``tls`` is off."""
    if not values.get("tls", False) and values.get("network") != "h2":
        yield from (key for key in TLS if values.get(key) and not is_off(values[key]))


_SPOKEN: Final = {"ws": "http/1.1", "httpupgrade": "http/1.1", "grpc": "h2", "h2": "h2"}
"""Transport -> its only protocol, which the engine names in ALPN."""


def transport_without_effect(values: Values) -> Iterator[str]:
    """Yield the options of transports other than the one in use, and its own options without
    effect.
    """
    network = values.get("network", "tcp")
    options = values.get("ws-opts", {})
    if network == "ws" and options.get("v2ray-http-upgrade", False):
        network = "httpupgrade"
    if "alpn" in values and values["alpn"] != [_SPOKEN.get(network)] and network in _SPOKEN:
        yield "alpn"
    if options and network not in ("ws", "httpupgrade"):
        yield "ws-opts"
    elif options:
        asked_for = split_early_data(options.get("path", ""))[1]
        if network == "httpupgrade" and asked_for:
            yield "ed"
        most = int(asked_for or options.get("max-early-data", 0)) if network == "ws" else 0
        if options.get("max-early-data", most) != most:
            yield "ws-opts.max-early-data"
        header = options.get("early-data-header-name", EARLY_DATA_HEADER)
        if (asked_for and header != EARLY_DATA_HEADER) or (
            not most and "early-data-header-name" in options
        ):
            yield "ws-opts.early-data-header-name"
        if options.get("v2ray-http-upgrade-fast-open", False):
            yield "ws-opts.v2ray-http-upgrade-fast-open"
    for other in ("grpc", "h2", "http"):
        if values.get(f"{other}-opts") and network != other:
            yield f"{other}-opts"
    if network == "http" and len(values.get("http-opts", {}).get("path", [])) > 1:
        yield "http-opts.path[1:]"


_USUAL: Final[tuple[tuple[str, Any], ...]] = (
    ("network", "tcp"),
    ("client-fingerprint", "none"),
    ("flow", ""),
    ("alpn", []),
)


def canonical(values: dict[str, Any]) -> dict[str, Any]:
    """Return `values` with one spelling for each setting that Clash users write in two.

    The server's name is under ``servername``; HTTP upgrade is ``network: httpupgrade``; the packing
    of UDP is under ``packet-encoding``; early data is not requested in a WebSocket's path; a list
    of ports replaces the port, and TUIC's ``ip`` replaces the server; plain TCP, no flow, no
    fingerprint and no protocols are left out.
    """
    made = dict(values)
    if "sni" in made:
        made["servername"] = made.pop("sni")
    made.pop("name-cert-verify", None)
    if "ip" in made and "server" in made and "uuid" in made:  # a tunnel's is of its other end
        made.setdefault("servername", made["server"])
        made["server"] = parse_host(made.pop("ip"))
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
    for key, usual in _USUAL:
        if made.get(key) == usual:
            del made[key]
    return made


# --- Transports over TCP. -------------------------------------------------------------------

_GRPC_PATH: Final = re.compile(r"/([^/]+)/Tun(?:\|[^/]*)?\Z")


def _grpc_service(value: Any) -> str:
    """Return a service's name. Xray reads a name that begins with ``/`` as a path, whose last part
    names the methods (``Tun``, and behind a bar the one of several streams).
    """
    text: str = TEXT.check(value)
    if not text.startswith("/"):
        return text
    match = _GRPC_PATH.match(text)
    if match is None:
        raise ValueError
    return match[1]


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
    "grpc-opts": Table(
        {
            "grpc-service-name": Kind(
                "grpc-service",
                _grpc_service,
            )
        }
    ),
    "h2-opts": Table({"host": TEXT_LIST, "path": HTTP_PATH}),
    "http-opts": Table(
        {
            "method": text_where("http-method", lambda text: re.fullmatch("[A-Z]{1,16}", text)),
            "path": HTTP_PATHS,
            "headers": HEADER_LISTS,
        }
    ),
}
OTHER_NETWORKS: Final = {
    **dict.fromkeys(("raw", "none", "original"), "tcp"),
    "websocket": "ws",
    "gun": "grpc",
}
"""Other words for transports: those of Xray, trojan-go and panels."""
NETWORKS: Final = choice("tcp", "ws", "grpc", "http", "h2", "httpupgrade", aliases=OTHER_NETWORKS)

EARLY_DATA_HEADER: Final = "Sec-WebSocket-Protocol"
"""The header that carries early data in Xray."""
_EARLY_DATA: Final = re.compile(r"[?&]ed=([0-9]{1,5})(?=&|\Z)")


def split_early_data(path: str) -> tuple[str, str]:
    """Return a WebSocket's path without Xray's parameter for early data, and the bytes of early
    data that it requests, or an empty text.
    """
    found = _EARLY_DATA.search(path)
    if found is None:
        return path, ""
    rest = path[found.end() :]
    return path[: found.start()] + (found[0][0] + rest[1:] if rest else ""), found[1]


def http_goes_without_tls(values: Values) -> Iterator[Fault]:
    # With TLS the engine always speaks HTTP/2; Clash's `http` is HTTP/1.1.
    if values.get("network") == "http" and values.get("tls", False):
        yield fault("network", "http-with-tls")


def upgrade_is_ws(values: Values) -> Iterator[Fault]:
    options = values.get("ws-opts", {})
    if options.get("max-early-data") and (
        values.get("network") == "httpupgrade" or options.get("v2ray-http-upgrade", False)
    ):
        yield fault("ws-opts.max-early-data", "early-data-with-upgrade")
