"""The configuration of charon, strongSwan's IKE daemon, for the lines with a secret.

All of it goes over VICI, its binary protocol (``src/libcharon/plugins/vici/README.md``). Values
have a length there, so that a secret may hold any byte. A message is a dictionary of text, bytes,
lists and dictionaries.
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
"""charon's own file. Its paths are relative to its folder, which is its working directory."""

_IKE: Final = [
    "aes256-sha256-modp2048",
    "aes256-sha1-modp2048",
    "aes128-sha1-modp2048",
    "aes256-sha1-modp1024",
    "aes128-sha1-modp1024",
    "3des-sha1-modp1024",
]
_ESP: Final = ["aes256-sha256", "aes256-sha1", "aes128-sha1", "3des-sha1"]
"""Proposals, best first. The last ones are for old servers."""

_IKE_LIFETIME_S: Final = 3 * 3600
_CHILD_LIFETIME_S: Final = 2400
"""Seconds until the child SA is renewed. They are less than the usual hour: if the server renews
the child of a shared IKE_SA first, charon searches the settings of only one of the lines for it,
and refuses those of the others.
"""


def connection_name(local_port: int) -> str:
    """Return charon's name for the line of that port, as in its events."""
    return f"line-{local_port}"


def connection(dial: Dial, group: int) -> dict[str, Any]:
    """Return the message of ``load-conn``: transport mode for one UDP port towards one server (RFC
    3193).

    Lines of one `group` (0 to 255) share an IKE_SA. They must: a strongSwan server takes a second
    one from the same address for the first one's successor, and ends the first ten seconds later
    (``adopt_children_job.c``). Only lines with the same address, server and secret may share one.

    The server may use any identity (behind NAT it gives a private address); its knowledge of the
    secret authenticates it.
    """
    if dial.local_port not in LINE_PORTS:
        raise ValueError(f"port {dial.local_port} is not guarded")
    name = connection_name(dial.local_port)
    # charon shares an IKE_SA among connections that are equal except for their children's names.
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
    """Return the message of ``load-shared``: the secret for one server, which replaces an earlier
    one.
    """
    return {
        "id": f"server-{server}",
        "type": "IKE",
        "data": secret.encode(),
        "owners": [str(server)],
    }
