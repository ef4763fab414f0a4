"""Hysteria2 and TUIC: protocols over QUIC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.formats.amounts import port_ranges, rate_mbps
from egressd.planner.outbounds.tls import tls

_H3 = {"alpn": ["h3"]}
"""Both protocols' usual ALPN, for entries that name none."""


def hysteria2(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/hysteria2/"""
    options: dict[str, Any] = {"type": "hysteria2", "tls": tls({**_H3, **fields})}
    if "password" in fields:
        options["password"] = fields["password"]
    if "obfs" in fields:
        options["obfs"] = {"type": fields["obfs"], "password": fields["obfs-password"]}
    if "ports" in fields:
        options["server_ports"] = [f"{low}:{high}" for low, high in port_ranges(fields["ports"])]
    if "hop-interval" in fields:
        options["hop_interval"] = f"{fields['hop-interval']}s"
    for key in ("up", "down"):
        if key in fields:
            options[f"{key}_mbps"] = rate_mbps(fields[key])
    return options


def tuic(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/tuic/"""
    options: dict[str, Any] = {
        "type": "tuic",
        "uuid": fields["uuid"],
        "password": fields["password"],
        "tls": tls({**_H3, **fields}),
    }
    if "congestion-controller" in fields:
        options["congestion_control"] = fields["congestion-controller"]
    if fields.get("udp-over-stream", False):
        options["udp_over_stream"] = True
    elif "udp-relay-mode" in fields:
        options["udp_relay_mode"] = fields["udp-relay-mode"]
    if fields.get("reduce-rtt", False):
        options["zero_rtt_handshake"] = True
    if "heartbeat-interval" in fields:
        options["heartbeat"] = f"{fields['heartbeat-interval']}ms"
    return options
