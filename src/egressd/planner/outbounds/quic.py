"""Hysteria, Hysteria2 and TUIC: protocols over QUIC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.formats.amounts import port_ranges, rate_mbps, seconds_range
from egressd.model.outbounds import Hysteria, Hysteria2, Tuic
from egressd.planner.outbounds.tls import tls

_H3 = {"alpn": ["h3"]}
"""The usual ALPN of Hysteria2 and TUIC, for entries without one."""


def hysteria(fields: Mapping[str, Any], **server: Any) -> Hysteria:
    """Return a Hysteria outbound.

    https://sing-box.sagernet.org/configuration/outbound/hysteria/
    """
    ports = tuple(port_ranges(fields["ports"])) if "ports" in fields else ()
    return Hysteria(
        **server,
        tls=tls(fields),
        password=fields.get("auth-str", ""),
        obfs=fields.get("obfs", ""),
        server_ports=ports,
        hop_interval_s=fields.get("hop-interval", 0) if ports else 0,
        up_mbps=max(1, rate_mbps(fields["up"])),
        down_mbps=max(1, rate_mbps(fields["down"])),
    )


def hysteria2(fields: Mapping[str, Any], **server: Any) -> Hysteria2:
    """Return a Hysteria2 outbound.

    https://sing-box.sagernet.org/configuration/outbound/hysteria2/
    """
    ports = tuple(port_ranges(fields["ports"])) if "ports" in fields else ()
    # The interval is for hopping among ports. Without a list of ports there is none.
    least, most = seconds_range(fields.get("hop-interval", 0)) if ports else (0, 0)
    return Hysteria2(
        **server,
        tls=tls({**_H3, **fields}),
        password=fields.get("password", ""),
        salamander=fields.get("obfs-password", ""),
        server_ports=ports,
        hop_interval_s=least,
        hop_interval_max_s=most if most > least else 0,
        up_mbps=rate_mbps(fields.get("up", 0)),
        down_mbps=rate_mbps(fields.get("down", 0)),
    )


def tuic(fields: Mapping[str, Any], **server: Any) -> Tuic:
    """Return a TUIC outbound: https://sing-box.sagernet.org/configuration/outbound/tuic/."""
    is_over_stream = fields.get("udp-over-stream", False)
    return Tuic(
        **server,
        uuid=fields["uuid"],
        password=fields["password"],
        tls=tls({**_H3, **fields}),
        congestion_control=fields.get("congestion-controller"),
        udp_relay_mode=None if is_over_stream else fields.get("udp-relay-mode"),
        udp_over_stream=is_over_stream,
        zero_rtt_handshake=fields.get("reduce-rtt", False),
        heartbeat_ms=fields.get("heartbeat-interval", 0),
    )
