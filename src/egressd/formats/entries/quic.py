"""Hysteria, Hysteria2 and TUIC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

from egressd.formats.amounts import port_ranges, rate_mbps, seconds_range
from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import (
    BOOLEAN,
    PORT,
    TEXT,
    UUID_TEXT,
    Kind,
    Table,
    choice,
    text_where,
    whole,
)
from egressd.formats.hosts import is_address
from egressd.formats.layers import (
    QUIC_TLS,
    Values,
    certificate_bears_server_name,
    one_server_name,
)
from egressd.model.faults import Fault, fault
from egressd.model.outbounds import CongestionControl, UdpRelayMode


def _rate(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    if rate_mbps(value) > 1_000_000:
        raise ValueError
    return str(value)


RATE: Final = Kind("rate", _rate)


def _ports(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004
    ranges = port_ranges(str(value))
    return ",".join(f"{low}-{high}" if low < high else str(low) for low, high in ranges)


_HOP_LEAST, _HOP_MOST = 5, 3600


def _hop_interval(value: Any) -> int | str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError  # noqa: TRY004
    low, high = seconds_range(value)
    if not _HOP_LEAST <= low <= high <= _HOP_MOST:
        raise ValueError
    return low if low == high else f"{low}-{high}"


def _ech_config(values: Values) -> Iterator[Fault]:
    ech = values.get("ech-opts", {})
    if ech.get("enable", False) and "config" not in ech:
        # The engine would connect without ECH, and show the server's name.
        yield fault("ech-opts.config", "ech-needs-config")


def _hysteria_port(values: Values) -> Iterator[Fault]:
    if "port" not in values and "ports" not in values:
        yield PORT.fault("port")


def _hysteria_obfs(values: Values) -> Iterator[Fault]:
    if ("obfs" in values) != ("obfs-password" in values):
        yield fault("obfs", "given-together", other="obfs-password")


def _ports_without_effect(values: Values) -> Iterator[str]:
    if "ports" in values and "port" in values:
        yield "port"
    if "hop-interval" in values and "ports" not in values:
        yield "hop-interval"


def _some_rate(value: Any) -> str:
    if rate_mbps(_rate(value)) < 1:
        raise ValueError
    return str(value)


_SOME_RATE: Final = Kind("rate", _some_rate)

HYSTERIA: Final = Entry(
    Table(
        {
            **SERVER,
            **QUIC_TLS,
            "ports": Kind("ports", _ports),
            "hop-interval": whole(_HOP_LEAST, _HOP_MOST),
            "auth-str": TEXT,
            "obfs": TEXT,
            "up": _SOME_RATE,
            "down": _SOME_RATE,
            "protocol": choice("udp"),
        },
        frozenset({"server", "up", "down"}),
    ),
    (one_server_name, certificate_bears_server_name, _ech_config, _hysteria_port),
    (_ports_without_effect,),
)

HYSTERIA2: Final = Entry(
    Table(
        {
            **SERVER,
            **QUIC_TLS,
            "ports": Kind("ports", _ports),
            "hop-interval": Kind(
                "hop-interval",
                _hop_interval,
                values={"least": _HOP_LEAST, "most": _HOP_MOST},
            ),
            "password": TEXT,
            "up": RATE,
            "down": RATE,
            "obfs": choice("salamander"),
            "obfs-password": TEXT,
        },
        frozenset({"server"}),
    ),
    (
        one_server_name,
        certificate_bears_server_name,
        _ech_config,
        _hysteria_port,
        _hysteria_obfs,
    ),
    (_ports_without_effect,),
)


def _tuic_token(values: Values) -> Iterator[Fault]:
    if "token" in values:
        yield fault(
            "token", "not-given", reason="TUIC is spoken in version 5, with uuid and password"
        )


def _mode_without_effect(values: Values) -> Iterator[str]:
    if values.get("udp-over-stream", False) and "udp-relay-mode" in values:
        yield "udp-relay-mode"


TUIC: Final = Entry(
    Table(
        {
            **SERVER,
            **QUIC_TLS,
            "uuid": UUID_TEXT,
            "password": TEXT,
            "token": TEXT,
            "ip": text_where("ip-address", is_address),
            "congestion-controller": choice(
                *get_args(CongestionControl), aliases={"reno": "new_reno", "newreno": "new_reno"}
            ),
            "udp-relay-mode": choice(*get_args(UdpRelayMode)),
            "udp-over-stream": BOOLEAN,
            "reduce-rtt": BOOLEAN,
            "heartbeat-interval": whole(1, 600_000),
            "disable-sni": BOOLEAN,
        },
        TO_SERVER | {"uuid", "password"},
    ),
    (one_server_name, certificate_bears_server_name, _ech_config, _tuic_token),
    (_mode_without_effect,),
)
