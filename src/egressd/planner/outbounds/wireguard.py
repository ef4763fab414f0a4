"""WireGuard, by the engine's own stack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.model.outbounds import WireGuard


def wireguard(fields: Mapping[str, Any], **server: Any) -> WireGuard:
    """Return a WireGuard tunnel: https://sing-box.sagernet.org/configuration/endpoint/wireguard/."""
    given = {"mtu": fields["mtu"]} if "mtu" in fields else {}
    return WireGuard(
        **server,
        **given,
        private_key=fields["private-key"],
        public_key=fields["public-key"],
        pre_shared_key=fields.get("pre-shared-key", ""),
        address=fields["ip"],
        allowed_ips=tuple(fields.get("allowed-ips", ("0.0.0.0/0",))),
        reserved=tuple(fields.get("reserved", ())),
        keepalive_s=fields.get("persistent-keepalive", 0),
    )
