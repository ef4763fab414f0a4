"""VPN servers of the lab's internet: xl2tpd and pppd, each for one line.

Both ends need a kernel with PPP and L2TP, which containers and small virtual machines often lack.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd_lab.nodes import PASSWORD, USER
from egressd_lab.spec import NODE_NETWORK, RESOLVERS

PROGRAMS: Final = ("xl2tpd", "pppd")
FAR_END: Final = "192.0.2.254"
_AF_PPPOX, _PX_PROTO_OL2TP = 24, 1
"""Constants of linux/socket.h and linux/if_pppox.h, which Python does not name."""
_FIRST_SERVER, _FIRST_CLIENT, _FIRST_CALL = 150, 200, 210
_CALLS = 10


class LineServer(msgspec.Struct, frozen=True):
    """The server of the lab's line of that number, from 1."""

    number: int

    @property
    def name(self) -> str:
        """The node's name."""
        return f"vpn{self.number}"

    @property
    def link(self) -> str:
        """The internet's interface towards it."""
        return f"to-{self.name}"

    @property
    def line(self) -> str:
        """The line's interface in the router."""
        return f"l2tp_{self.number}"

    @property
    def address(self) -> str:
        """The address at which the line dials it."""
        return str(NODE_NETWORK[_FIRST_SERVER + self.number])

    @property
    def assigned_address(self) -> str:
        """The line's address, as which the internet sees the line's clients."""
        return str(NODE_NETWORK[_FIRST_CLIENT + self.number])

    def draft(self, password: str = PASSWORD) -> dict[str, Any]:
        """Return the body of ``POST /vpn-lines`` for its line."""
        return {
            "type": "l2tp",
            "name": self.line,
            "server": self.address,
            "port": 1701,
            "username": USER,
            "password": password,
            "secret": "",
            "interface": "auto",
            "comment": "",
            "dns_profile": "auto",
            "dns_servers": [],
        }

    def etc(self) -> dict[str, str]:
        """Return the files that its programs see in /etc, by path."""
        return {
            "ppp/chap-secrets": f"{USER} * {PASSWORD} {self.assigned_address}\n",
            "ppp/options": "",
            # A new call replaces one whose end the server has not noticed yet.
            "ppp/ip-up": '#!/bin/sh\nexec ip route replace "$5" dev "$1"\n',
        }

    def argv(self, folder: Path) -> tuple[str, ...]:
        """Write its configuration to `folder`, and return the command that runs it."""
        # The line's address is in chap-secrets; xl2tpd needs an address for each call besides.
        first = _FIRST_CALL + _CALLS * (self.number - 1)
        calls = NODE_NETWORK[first], NODE_NETWORK[first + _CALLS - 1]
        options, configuration = folder / "options", folder / "xl2tpd.conf"
        options.write_text(
            "name vpn\nauth\nrequire-mschap-v2\nnodefaultroute\nnoccp\nmtu 1400\nmru 1400\n"
            f"lcp-echo-interval 5\nlcp-echo-failure 4\nms-dns {RESOLVERS['node']}\n"
        )
        configuration.write_text(
            f"[global]\nlisten-addr = {self.address}\n[lns default]\n"
            f"ip range = {calls[0]}-{calls[-1]}\nlocal ip = {FAR_END}\n"
            f"require authentication = yes\nname = vpn\npppoptfile = {options}\n"
        )
        files = ("-c", configuration, "-p", folder / "pid", "-C", folder / "control")
        return ("xl2tpd", "-D", *map(str, files))


def is_possible() -> bool:
    """True if this kernel has PPP and L2TP; they are loaded now if they are modules."""
    try:
        os.close(os.open("/dev/ppp", os.O_RDWR | os.O_CLOEXEC))
        socket.socket(_AF_PPPOX, socket.SOCK_DGRAM, _PX_PROTO_OL2TP).close()
    except OSError:
        return False
    return True
