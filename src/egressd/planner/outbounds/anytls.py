"""AnyTLS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.model.outbounds import AnyTls
from egressd.planner.outbounds.tls import tls


def anytls(fields: Mapping[str, Any], **server: Any) -> AnyTls:
    """Return an AnyTLS outbound: https://sing-box.sagernet.org/configuration/outbound/anytls/."""
    return AnyTls(
        **server,
        password=fields["password"],
        tls=tls(fields),
        idle_session_check_interval_s=fields.get("idle-session-check-interval", 0),
        idle_session_timeout_s=fields.get("idle-session-timeout", 0),
        min_idle_session=fields.get("min-idle-session", 0),
    )
