"""Clash's TLS fields as sing-box's ``tls`` object.

https://sing-box.sagernet.org/configuration/shared/tls/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def tls(fields: Mapping[str, Any], *, server_name: str = "") -> dict[str, Any]:
    """TLS towards the node's server. `server_name` is used when the fields give none.

    With neither, the engine takes the server's own name.
    """
    options: dict[str, Any] = {"enabled": True}
    name = fields.get("servername") or server_name
    if name:
        options["server_name"] = name
    if fields.get("disable-sni", False):
        options["disable_sni"] = True
    if fields.get("skip-cert-verify", False):
        options["insecure"] = True
    if "alpn" in fields:
        options["alpn"] = fields["alpn"]
    fingerprint = fields.get("client-fingerprint", "")
    reality = fields.get("reality-opts")
    if reality is not None:
        options["reality"] = {
            "enabled": True,
            "public_key": reality["public-key"],
            "short_id": reality.get("short-id", ""),
        }
        fingerprint = fingerprint or "chrome"  # the engine speaks REALITY with uTLS only
    if fingerprint:
        options["utls"] = {"enabled": True, "fingerprint": fingerprint}
    ech = fields.get("ech-opts", {})
    if ech.get("enable", False):
        options["ech"] = _ech(ech)
    return options


def _ech(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Encrypted Client Hello; without a configuration the engine asks the DNS for one."""
    options: dict[str, Any] = {"enabled": True}
    if "config" in fields:
        options["config"] = [
            "-----BEGIN ECH CONFIGS-----",
            fields["config"],
            "-----END ECH CONFIGS-----",
        ]
    if "query-server-name" in fields:
        options["query_server_name"] = fields["query-server-name"]
    return options
