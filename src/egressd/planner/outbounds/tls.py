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
    # A transport speaks one protocol, and the engine names that. Of a list the server might choose
    # another, and would not understand what follows.
    if "alpn" in fields and fields.get("network", "tcp") == "tcp":
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


def ech_name(options: Mapping[str, Any]) -> str:
    """The name whose HTTPS record the engine asks for (RFC 9848) before it speaks to the server of
    an outbound of these `options`; empty when it asks for none.
    """
    layer = options.get("tls", {})
    ech = layer.get("ech")
    if ech is None or "config" in ech:
        return ""
    name: str = ech.get("query_server_name") or layer.get("server_name") or options["server"]
    return name


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
