"""Hysteria2 and TUIC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from egressd.formats.amounts import port_ranges, rate_mbps
from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import BOOLEAN, PORT, TEXT, UUID_TEXT, Kind, Table, choice, whole
from egressd.formats.layers import QUIC_TLS, Values, one_server_name
from egressd.model.outbounds import CongestionControl, UdpRelayMode


def _rate(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    if rate_mbps(value) > 1_000_000:
        raise ValueError
    return str(value)


RATE: Final = Kind("a rate such as 100 or 100 Mbps", _rate)


def _ports(value: Any) -> str:
    if not isinstance(value, str) or not port_ranges(value):
        raise ValueError
    return value.replace("/", ",")


def _ech_config(values: Values) -> Iterator[str]:
    ech = values.get("ech-opts", {})
    if ech.get("enable", False) and "config" not in ech:
        # It would connect without, and show the server's name.
        yield (
            "ech-opts.config must be given when ech-opts.enable is true: "
            "over QUIC the engine asks nobody for one"
        )


def _hysteria_port(values: Values) -> Iterator[str]:
    if "port" not in values and "ports" not in values:
        yield f"port must be {PORT.takes}"


def _hysteria_obfs(values: Values) -> Iterator[str]:
    if ("obfs" in values) != ("obfs-password" in values):
        yield "obfs and obfs-password must be given together"


HYSTERIA2: Final = Entry(
    Table(
        {
            **SERVER,
            **QUIC_TLS,
            "ports": Kind("ports and ranges such as 443,8000-9000", _ports),
            "hop-interval": whole(5, 3600),
            "password": TEXT,
            "up": RATE,
            "down": RATE,
            "obfs": choice("salamander"),
            "obfs-password": TEXT,
        },
        frozenset({"server"}),
    ),
    (one_server_name, _ech_config, _hysteria_port, _hysteria_obfs),
)


def _tuic_token(values: Values) -> Iterator[str]:
    if "token" in values:
        yield "token must not be given: TUIC is spoken in version 5, with uuid and password"


TUIC: Final = Entry(
    Table(
        {
            **SERVER,
            **QUIC_TLS,
            "uuid": UUID_TEXT,
            "password": TEXT,
            "token": TEXT,
            "congestion-controller": choice(*get_args(CongestionControl)),
            "udp-relay-mode": choice(*get_args(UdpRelayMode)),
            "udp-over-stream": BOOLEAN,
            "reduce-rtt": BOOLEAN,
            "heartbeat-interval": whole(1, 600_000),
            "disable-sni": BOOLEAN,
        },
        TO_SERVER | {"uuid", "password"},
    ),
    (one_server_name, _ech_config, _tuic_token),
)
