"""AnyTLS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.planner.outbounds.tls import tls


def anytls(fields: Mapping[str, Any]) -> dict[str, Any]:
    """https://sing-box.sagernet.org/configuration/outbound/anytls/"""
    options: dict[str, Any] = {
        "type": "anytls",
        "password": fields["password"],
        "tls": tls(fields),
    }
    for key in ("idle-session-check-interval", "idle-session-timeout"):
        if key in fields:
            options[key.replace("-", "_")] = f"{fields[key]}s"
    if "min-idle-session" in fields:
        options["min_idle_session"] = fields["min-idle-session"]
    return options
