"""A VPN line without PPP: a pair of veth interfaces without neighbour entries, under its name.

The kernel of a test machine may not support PPP. `tests/vm` dials lines with real daemons.
"""

from __future__ import annotations

from typing import Any, Final

from egressd_lab.lab import Lab

NAME: Final = "l2tp_1"
TARGET: Final = f"Interface:{NAME}"
LINK: Final = "far1"
"""The internet's interface of the line."""
ADDRESS: Final = "100.99.0.2"
FAR_END: Final = "100.99.0.1"
MTU: Final = 1300
DRAFT: Final[dict[str, Any]] = {
    "type": "l2tp",
    "name": NAME,
    "server": "203.0.113.250",
    "port": 1701,
    "username": "u",
    "password": "p",
    "secret": "",
    "interface": "auto",
    "comment": "",
    "dns_profile": "auto",
    "dns_servers": [],
}
KEYS: Final = [{"type": "l2tp", "name": NAME}]


def up(lab: Lab, line: str = ADDRESS, far_end: str = FAR_END) -> None:
    """Make pppd's interface, with the servers at its far end."""
    lab.router.run("ip", "link", "add", NAME, "type", "veth", "peer", "name", LINK)
    lab.router.run("ip", "link", "set", LINK, "netns", lab.internet.namespace)
    for host, name, own, peer, mtu in (
        (lab.router, NAME, line, far_end, MTU),
        (lab.internet, LINK, far_end, line, 1500),
    ):
        host.run("ip", "link", "set", name, "arp", "off", "address", "02:00:00:00:00:01")
        host.run("ip", "link", "set", name, "mtu", str(mtu))
        host.run("ip", "address", "add", own, "peer", peer, "dev", name)
        host.run("ip", "link", "set", name, "up")
    lab.internet.run("ip", "route", "replace", line, "dev", LINK)


def down(lab: Lab) -> None:
    """Remove pppd's interface, if it exists."""
    lab.router.run("ip", "link", "delete", NAME, check=False)
