"""Ways into tunnels that serve clients, for those who measure them.

The server of a tunnel knows one end of a key: a second end, in another process, would take the
answers of the first. So a tunnel that serves clients is measured where it is, through a listener of
its instance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

LISTENER: Final = "tunnels"
"""Tag of the inbound, whose users are the tunnels by the tags of their endpoints."""
ADDRESS: Final = "127.0.0.2"
"""The address that it listens at, with the port of the instance's other listener."""


def silence(document: Mapping[str, Any]) -> None:
    """Let a document's tunnels say nothing before something is sent through them: their servers
    would take a node that is in use for one that has moved here.
    """
    for endpoint in document.get("endpoints", ()):
        for peer in endpoint.get("peers", ()):
            peer.pop("persistent_keepalive_interval", None)


def login_of(endpoint: Mapping[str, Any]) -> dict[str, str]:
    """Return the login of the way into a tunnel. Its password needs the tunnel's key."""
    secret = hashlib.sha256(b"egressd tunnel " + endpoint["private_key"].encode())
    return {"username": endpoint["tag"], "password": secret.hexdigest()[:32]}


def way_into(endpoint: Mapping[str, Any], port: int) -> dict[str, Any]:
    """Return the outbound that leads into a tunnel of the instance that listens on a port."""
    return {
        "type": "socks",
        "tag": endpoint["tag"],
        "server": ADDRESS,
        "server_port": port,
        **login_of(endpoint),
    }
