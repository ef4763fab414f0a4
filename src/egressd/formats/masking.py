"""A node's ``config_json`` without its credentials, for callers that may read and not write.

A value is shown if its key is known to hold no secret: egressd keeps keys that it does not know,
and these may hold anything. Names of keys are shown.
"""

from __future__ import annotations

from typing import Any, Final

from egressd.formats.json_text import read_object, write_object
from egressd.model.errors import Invalid

MASK: Final = "***"
"""The text in place of a secret."""

_SHOWN: Final = frozenset(
    {
        "server",
        "port",
        "ports",
        "hop-interval",
        "udp",
        "ip-version",
        "network",
        "cipher",
        "tls",
        "sni",
        "servername",
        "alpn",
        "skip-cert-verify",
        "client-fingerprint",
        "disable-sni",
        "flow",
        "alterId",
        "up",
        "down",
        "plugin",
        "mode",
        "mux",
        "udp-over-tcp",
        "udp-over-tcp-version",
        "udp-over-stream",
        "udp-relay-mode",
        "congestion-controller",
        "reduce-rtt",
        "heartbeat-interval",
        "packet-encoding",
        "packet-addr",
        "xudp",
        "global-padding",
        "authenticated-length",
        "idle-session-check-interval",
        "idle-session-timeout",
        "min-idle-session",
        "host-key",
        "host-key-algorithms",
        "ip",
        "ipv6",
        "allowed-ips",
        "mtu",
        "persistent-keepalive",
        "interface-name",
        "dialer-proxy",
        "dns-profile",
        "dns-servers",
    }
)
"""Keys whose plain values are no credentials. User names are: some sellers' are all that lets one
in."""


_MODES: Final = {"obfs": frozenset({"salamander", "http", "tls", "none", "plain"})}
"""Keys, and those of their values that are no credentials: Hysteria 1 has a password there."""


def masked_text(secret: str) -> str:
    """Return the mask of a secret; an empty text, which is none, as it is."""
    return MASK if secret else ""


def masked_config(config_json: str) -> str:
    """Return a node's configuration with `MASK` in place of credentials."""
    try:
        given = read_object(config_json, "config_json")
    except Invalid:  # stored by a version that was less strict
        return MASK
    return write_object(_masked_object(given))


def _masked_object(given: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _masked_value(value, key in _SHOWN or _is_mode(key, value))
        for key, value in given.items()
    }


def _is_mode(key: str, value: Any) -> bool:
    return isinstance(value, str) and value in _MODES.get(key, ())


def _masked_value(value: Any, is_shown: bool) -> Any:
    match value:
        case dict():
            return _masked_object(value)
        case list():
            return [_masked_value(each, is_shown) for each in value]
        case _:
            return value if is_shown or value in (None, "") else MASK
