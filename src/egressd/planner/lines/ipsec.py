"""What charon, strongSwan's IKE daemon, is told of the lines with a secret.

Everything goes over VICI, its binary protocol (``src/libcharon/plugins/vici/README.md``): values
are counted bytes there, so that a secret may hold anything. A message is a dictionary of
text, bytes, lists and dictionaries.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any, Final

from egressd.planner.lines.dial import Dial
from egressd.planner.registry import LINE_PORTS

DAEMON: Final = "/usr/sbin/charon-systemd"
FILE: Final = "strongswan.conf"
SOCKET: Final = "vici"

CONFIGURATION: Final = f"""\
charon-systemd {{
    load = random nonce aes sha1 sha2 md5 hmac kdf openssl gmp kernel-netlink socket-default vici
    install_routes = no
    # A message is sent at 0, 2, 4.4 and 7.3 s; at 10.7 s the server is given up.
    retransmit_timeout = 2.0
    retransmit_base = 1.2
    retransmit_tries = 3
    journal {{
        default = -1
    }}
    filelog {{
        stderr {{
            default = -1
            lib = 0
        }}
    }}
    plugins {{
        vici {{
            socket = unix://{SOCKET}
        }}
    }}
}}
"""
"""charon's own file. Paths are relative to its folder, its working directory."""

_IKE: Final = [
    "aes256-sha256-modp2048",
    "aes256-sha1-modp2048",
    "aes128-sha1-modp2048",
    "aes256-sha1-modp1024",
    "aes128-sha1-modp1024",
    "3des-sha1-modp1024",
]
_ESP: Final = ["aes256-sha256", "aes256-sha1", "aes128-sha1", "3des-sha1"]
"""Best first; the last are what old servers have."""

_IKE_LIFETIME_S: Final = 3 * 3600
_CHILD_LIFETIME_S: Final = 2400
"""Less than the hour that is common: if the server renews the child of a shared IKE_SA before we
do, charon looks for it in the settings of one of the lines only, and refuses the others'."""


def connection_name(local_port: int) -> str:
    """How charon calls the line of that port, in events too."""
    return f"line-{local_port}"


def connection(dial: Dial, group: int) -> dict[str, Any]:
    """``load-conn``: transport mode for one UDP port towards one server (RFC 3193).

    Lines of one `group` (0 to 255) share an IKE_SA. They must: a strongSwan server takes a second
    one from the same address for the first one's successor, and ends the first ten seconds
    later (``adopt_children_job.c``). Only lines that agree in address, server and secret may.

    The server may name itself as it likes (behind NAT it gives a private address); that it
    knows the secret is what proves it.
    """
    if dial.local_port not in LINE_PORTS:
        raise ValueError(f"port {dial.local_port} is not guarded")
    name = connection_name(dial.local_port)
    # charon has connections share an IKE_SA when they are equal, the names of their children aside.
    lifetime = _IKE_LIFETIME_S + group
    child = {
        "mode": "transport",
        "local_ts": [f"dynamic[udp/{dial.local_port}]"],
        "remote_ts": [f"dynamic[udp/{dial.line.port}]"],
        "esp_proposals": _ESP,
        "rekey_time": f"{_CHILD_LIFETIME_S}s",
        "start_action": "none",
        "dpd_action": "clear",
    }
    return {
        name: {
            "version": "1",
            "local_addrs": [str(dial.local)],
            "remote_addrs": [str(dial.server)],
            "proposals": _IKE,
            "unique": "never",
            "rekey_time": f"{lifetime}s",
            "dpd_delay": "10s",
            "local": {"auth": "psk"},
            "remote": {"auth": "psk", "id": "%any"},
            "children": {name: child},
        }
    }


def shared_secret(server: IPv4Address, secret: str) -> dict[str, Any]:
    """``load-shared``: the secret for one server, in place of an earlier one."""
    return {
        "id": f"server-{server}",
        "type": "IKE",
        "data": secret.encode(),
        "owners": [str(server)],
    }
