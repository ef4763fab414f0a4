"""The configuration of charon, strongSwan's IKE daemon, for the lines with a secret.

All of it goes over VICI, its binary protocol (``src/libcharon/plugins/vici/README.md``). Values
have a length there, so that a secret may hold any byte. A message is a dictionary of text, bytes,
lists and dictionaries.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address
from typing import Any, Final

import msgspec

from egressd.planner.lines.dial import Dial
from egressd.planner.lines.proposals import ESP_OFFERS, IKE_OFFERS
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

_IKE_LIFETIME_S: Final = 3 * 3600
_CHILD_LIFETIME_S: Final = 2400
"""Seconds until the child SA is renewed. They are less than the usual hour."""


class Manner(msgspec.Struct, frozen=True):
    """A way to ask a server for IPsec. The defaults suit most servers."""

    ike: int = 0
    """The number of the offer, in `IKE_OFFERS`."""
    esp: int = 0
    """The same in `ESP_OFFERS`."""
    is_in_udp: bool = False
    """Send ESP in UDP though no NAT is on the way (``encap``, RFC 3948), since ESP is dropped."""


def association_name(local_port: int) -> str:
    """Return charon's name of the association (CHILD_SA) of the line of that port."""
    return f"line-{local_port}"


def group_name(group: int) -> str:
    """Return charon's name of the IKE_SA of a group of lines."""
    return f"group-{group}"


def connection(dials: Collection[Dial], group: int, manner: Manner) -> dict[str, Any]:
    """Return the message of ``load-conn``: transport mode for one UDP port of each line towards one
    server (RFC 3193).

    Lines of one `group` (0 to 255) share an IKE_SA. They must: a strongSwan server takes a second
    one from the same address for the first one's successor, and ends the first ten seconds later
    (``adopt_children_job.c``). Only lines with the same address, server and secret may share one.

    All lines of a group are children of one connection: when the server is the first to renew a
    child, charon looks for it in the connection that the IKE_SA was made by (``quick_mode.c``). A
    connection that is loaded again in the same `manner` is updated in place (``vici_config.c``).

    The server may use any identity (behind NAT it gives a private address); its knowledge of the
    secret authenticates it.
    """
    for dial in dials:
        if dial.local_port not in LINE_PORTS:
            raise ValueError(f"port {dial.local_port} is not guarded")
    one = next(iter(dials))
    # charon shares an IKE_SA among connections that are equal except for names and children.
    lifetime = _IKE_LIFETIME_S + group
    return {
        group_name(group): {
            "version": "1",
            "local_addrs": [str(one.local)],
            "remote_addrs": [str(one.server)],
            "proposals": list(IKE_OFFERS[manner.ike]),
            "encap": "yes" if manner.is_in_udp else "no",
            "unique": "never",
            "rekey_time": f"{lifetime}s",
            "dpd_delay": "10s",
            "local": {"auth": "psk"},
            "remote": {"auth": "psk", "id": "%any"},
            "children": {association_name(d.local_port): _child(d, manner) for d in dials},
        }
    }


def _child(dial: Dial, manner: Manner) -> dict[str, Any]:
    return {
        "mode": "transport",
        "local_ts": [f"dynamic[udp/{dial.local_port}]"],
        "remote_ts": [f"dynamic[udp/{dial.line.port}]"],
        "esp_proposals": list(ESP_OFFERS[manner.esp]),
        "rekey_time": f"{_CHILD_LIFETIME_S}s",
        "start_action": "none",
        "dpd_action": "clear",
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
