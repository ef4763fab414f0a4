"""VMess, VLESS and Trojan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import BOOLEAN, TEXT, USER_ID, Kind, Table, choice, whole
from egressd.formats.layers import (
    NETWORKS,
    OTHER_NETWORKS,
    TLS,
    TRANSPORTS,
    Values,
    certificate_bears_server_name,
    http_goes_without_tls,
    no_ech_in_reality,
    one_server_name,
    reality_needs_tls,
    tls_without_effect,
    transport_without_effect,
    upgrade_is_ws,
)
from egressd.model.faults import Fault, fault
from egressd.model.outbounds import VMessCipher


def _packets_without_effect(values: Values) -> Iterator[str]:
    """Yield the switches for UDP packing that contradict the packing in use."""
    said = values.get("packet-encoding") or ("packetaddr" if values.get("packet-addr") else "xudp")
    for key, word in (("packet-addr", "packetaddr"), ("xudp", "xudp")):
        if values.get(key) and word != said:
            yield key


_PACKETS: Final[dict[str, Kind | Table]] = {
    "packet-encoding": choice("none", "xudp", "packetaddr", aliases={"packet": "packetaddr"}),
    "packet-addr": BOOLEAN,
    "xudp": BOOLEAN,
}


_V2RAY_RULES: Final = (
    one_server_name,
    certificate_bears_server_name,
    reality_needs_tls,
    no_ech_in_reality,
    http_goes_without_tls,
    upgrade_is_ws,
)

_V2RAY_IDLE: Final = (tls_without_effect, transport_without_effect, _packets_without_effect)

VMESS_CIPHERS: Final = choice(
    *get_args(VMessCipher), aliases={"chacha20-ietf-poly1305": "chacha20-poly1305"}
)

VMESS: Final = Entry(
    Table(
        {
            **SERVER,
            **TLS,
            **TRANSPORTS,
            **_PACKETS,
            "uuid": USER_ID,
            "alterId": whole(0, 65535),
            "cipher": VMESS_CIPHERS,
            "network": NETWORKS,
            "tls": BOOLEAN,
            "global-padding": BOOLEAN,
            "authenticated-length": BOOLEAN,
        },
        TO_SERVER | {"uuid"},
    ),
    _V2RAY_RULES,
    _V2RAY_IDLE,
)


VISION: Final = "xtls-rprx-vision"


def _vision(values: Values) -> Iterator[Fault]:
    if not values.get("flow"):
        return
    if not values.get("tls", False):
        yield fault("tls", "tls-needed", other="flow")
    if values.get("network", "tcp") != "tcp":
        yield fault("network", "tcp-with-flow")


VLESS: Final = Entry(
    Table(
        {
            **SERVER,
            **TLS,
            **TRANSPORTS,
            **_PACKETS,
            "uuid": USER_ID,
            "flow": choice(VISION, aliases={"xtls-rprx-vision-udp443": VISION, "none": ""}),
            "encryption": choice("none"),
            "network": NETWORKS,
            "tls": BOOLEAN,
        },
        TO_SERVER | {"uuid"},
    ),
    (*_V2RAY_RULES, _vision),
    _V2RAY_IDLE,
)

TROJAN: Final = Entry(
    Table(
        {
            **SERVER,
            **TLS,
            "password": TEXT,
            "network": choice("tcp", "ws", "grpc", "httpupgrade", aliases=OTHER_NETWORKS),
            "ws-opts": TRANSPORTS["ws-opts"],
            "grpc-opts": TRANSPORTS["grpc-opts"],
        },
        TO_SERVER | {"password"},
    ),
    (one_server_name, certificate_bears_server_name, no_ech_in_reality, upgrade_is_ws),
    (transport_without_effect,),
)
