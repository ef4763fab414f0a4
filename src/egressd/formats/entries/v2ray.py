"""VMess, VLESS and Trojan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import BOOLEAN, TEXT, UUID_TEXT, Kind, Table, choice, whole
from egressd.formats.layers import (
    NETWORKS,
    TLS,
    TRANSPORTS,
    Values,
    http_goes_without_tls,
    no_ech_in_reality,
    one_server_name,
    reality_needs_tls,
    upgrade_is_ws,
)
from egressd.model.outbounds import VMessCipher

_PACKETS: Final[dict[str, Kind | Table]] = {
    "packet-encoding": choice("none", "xudp", "packetaddr", aliases={"packet": "packetaddr"}),
    "packet-addr": BOOLEAN,
    "xudp": BOOLEAN,
}


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
            **SERVER,
            **TLS,
            **TRANSPORTS,
            **_PACKETS,
            "uuid": UUID_TEXT,
            "alterId": whole(0, 65535),
            "cipher": choice(*get_args(VMessCipher)),
            "network": NETWORKS,
            "tls": BOOLEAN,
            "global-padding": BOOLEAN,
            "authenticated-length": BOOLEAN,
        },
        TO_SERVER | {"uuid"},
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
            **SERVER,
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
        TO_SERVER | {"uuid"},
    ),
    (*_V2RAY_RULES, _vision),
)

TROJAN: Final = Entry(
    Table(
        {
            **SERVER,
            **TLS,
            "password": TEXT,
            "network": choice("tcp", "ws", "grpc", "httpupgrade"),
            "ws-opts": TRANSPORTS["ws-opts"],
            "grpc-opts": TRANSPORTS["grpc-opts"],
        },
        TO_SERVER | {"password"},
    ),
    (one_server_name, no_ech_in_reality, upgrade_is_ws),
)
