"""SSH: connections that an SSH server opens (RFC 4254, section 7.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.model.outbounds import Ssh


def ssh(fields: Mapping[str, Any], **server: Any) -> Ssh:
    """Return an SSH outbound: https://sing-box.sagernet.org/configuration/outbound/ssh/."""
    return Ssh(
        **server,
        username=fields.get("username", ""),
        password=fields.get("password", ""),
        private_key=tuple(fields.get("private-key", ())),
        passphrase=fields.get("private-key-passphrase", ""),
        host_keys=tuple(fields.get("host-key", ())),
        host_key_algorithms=tuple(fields.get("host-key-algorithms", ())),
    )
