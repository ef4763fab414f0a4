"""Clash's TLS fields as the engine's TLS settings.

https://sing-box.sagernet.org/configuration/shared/tls/
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from egressd.model.outbounds import Ech, Fingerprint, Reality, Tls


def tls(fields: Mapping[str, Any], *, server_name: str = "") -> Tls:
    """Return the TLS settings towards the node's server. `server_name` is used when the fields give
    no name.

    With neither, the engine uses the server's own name.
    """
    reality, ech = fields.get("reality-opts"), fields.get("ech-opts", {})
    # A transport speaks one protocol, which the engine names itself. From a list, the server might
    # choose another protocol, and would then not understand the transport.
    alpn = fields.get("alpn", ()) if fields.get("network", "tcp") == "tcp" else ()
    fingerprint: Fingerprint | None = fields.get("client-fingerprint")
    if reality is not None and fingerprint is None:
        fingerprint = "chrome"  # the engine speaks REALITY with uTLS only
    return Tls(
        server_name=fields.get("servername") or server_name,
        disable_sni=fields.get("disable-sni", False),
        insecure=fields.get("skip-cert-verify", False),
        alpn=tuple(alpn),
        fingerprint=fingerprint,
        reality=None if reality is None else _reality(reality),
        ech=_ech(ech) if ech.get("enable", False) else None,
    )


def _reality(fields: Mapping[str, Any]) -> Reality:
    return Reality(public_key=fields["public-key"], short_id=fields.get("short-id", ""))


def _ech(fields: Mapping[str, Any]) -> Ech:
    return Ech(
        config=fields.get("config", ""), query_server_name=fields.get("query-server-name", "")
    )
