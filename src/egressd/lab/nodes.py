"""Real proxy nodes, each in a namespace of its own with an address of its own.

| kind | program | what it speaks |
|---|---|---|
| ``socks5`` | microsocks | SOCKS5 with a password, TCP only |
| ``socks5-udp`` | dante | SOCKS5 with a password, UDP too |
| ``http`` | tinyproxy | HTTP CONNECT with a password |
| ``ss`` | ss-server | Shadowsocks, TCP and UDP |
| ``ss-obfs-http``, ``ss-obfs-tls`` | ss-server, obfs-server | within simple-obfs, TCP only |
| ``ss-websocket`` | ss-server, ss-v2ray-plugin | within WebSocket, TCP only |

For all other protocols see `egressd.lab.lab.Lab.add_engine_node`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd.lab.process import Program
from egressd.lab.spec import NODE_NETWORK, RESOLVERS

USER: Final = "lab"
PASSWORD: Final = "open-sesame"  # noqa: S105 - guards nothing but the lab's own nodes
_FIRST_HOST: Final = 10


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a node: the program, the files it reads, what a client must know."""

    protocol: str
    """As the API's ``protocol`` names it."""
    argv: tuple[str, ...]
    files: dict[str, str] = {}
    """Text by name, written to the node's own folder."""
    etc: dict[str, str] = {}
    """Text by name, seen by the program as /etc/<name>."""
    clash: dict[str, Any] = {}
    """The fields of a Clash proxy entry beside ``server``: what ``config_json`` holds."""


class Node:
    """A proxy node that runs."""

    def __init__(
        self, name: str, address: str, protocol: str, clash: Mapping[str, Any], program: Program
    ) -> None:
        self.name = name
        self.address = address
        self.protocol = protocol
        self.clash = {"server": address, **clash}
        self.program = program
        self.role = f"node-{name}"
        self.link = f"to-{name}"
        """The internet's interface towards it."""

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.clash["port"])

    def draft(self, group: str = "") -> dict[str, str]:
        """The body of ``POST /nodes`` for this node."""
        return {
            "name": self.name,
            "protocol": self.protocol,
            "config_json": json.dumps(self.clash),
            "group": group,
        }


def node_address(number: int) -> str:
    """The address of the lab's node of that number, from 0."""
    return str(NODE_NETWORK[_FIRST_HOST + number])


def recipe(kind: str, address: str, folder: Path) -> Recipe:
    """How to run a node of that kind. Raises KeyError for an unknown one."""
    return RECIPES[kind](address, folder)


def _socks5(address: str, _: Path) -> Recipe:
    return Recipe(
        protocol="socks5",
        argv=("microsocks", "-i", address, "-p", "1080", "-u", USER, "-P", PASSWORD),
        clash={"port": 1080, "username": USER, "password": PASSWORD, "udp": False},
    )


_PASSWORD_HASH: Final = (
    "$6$egressdlab$Eebupqc77Klv92tlShIYucWJbPItuRrGcdvW5q8zx/"  # noqa: S105 - see PASSWORD
    "4bpX3l0Wx.9eLtbp45CBLXGO/anajPAOWL4zm2AyIre/"
)
"""`PASSWORD` as crypt(5)'s sha512crypt has it."""


def _socks5_udp(address: str, folder: Path) -> Recipe:
    # danted checks passwords against the system's users, so the node has users of its own.
    return Recipe(
        protocol="socks5",
        argv=("danted", "-f", str(folder / "danted.conf"), "-p", str(folder / "danted.pid")),
        files={
            "danted.conf": f"""\
logoutput: stderr
internal: {address} port = 1080
external: {address}
clientmethod: none
socksmethod: username
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
"""
        },
        etc={
            "passwd": (
                "root:x:0:0:root:/root:/bin/sh\n"
                "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
                f"{USER}:x:1000:1000:{USER}:/nonexistent:/usr/sbin/nologin\n"
            ),
            "shadow": (
                f"root:*:19000::::::\nnobody:*:19000::::::\n{USER}:{_PASSWORD_HASH}:19000::::::\n"
            ),
        },
        clash={"port": 1080, "username": USER, "password": PASSWORD, "udp": True},
    )


def _http(address: str, folder: Path) -> Recipe:
    return Recipe(
        protocol="http",
        argv=("tinyproxy", "-d", "-c", str(folder / "tinyproxy.conf")),
        files={
            "tinyproxy.conf": f"""\
Port 3128
Listen {address}
Bind {address}
Timeout 600
MaxClients 1000
LogLevel Warning
DisableViaHeader Yes
BasicAuth {USER} {PASSWORD}
"""
        },
        clash={"port": 3128, "username": USER, "password": PASSWORD},
    )


def _ss(address: str, _: Path) -> Recipe:
    cipher = "aes-256-gcm"
    return Recipe(
        protocol="ss",
        argv=(
            *("ss-server", "-u", "-s", address, "-p", "8388", "-b", address),
            *("-k", PASSWORD, "-m", cipher, "-t", "600", "-d", RESOLVERS["node"]),
        ),
        clash={"port": 8388, "cipher": cipher, "password": PASSWORD, "udp": True},
    )


def _ss_within(
    plugin: str, plugin_options: str, clash: Mapping[str, Any]
) -> Callable[[str, Path], Recipe]:
    """Shadowsocks over TCP, within what a SIP003 plugin makes of it."""

    def make(address: str, folder: Path) -> Recipe:
        plain = _ss(address, folder)
        return Recipe(
            protocol="ss",
            argv=(
                *(arg for arg in plain.argv if arg != "-u"),
                *("--plugin", plugin, "--plugin-opts", plugin_options),
            ),
            clash={**plain.clash, "udp": False, **clash},
        )

    return make


RECIPES: Final[Mapping[str, Callable[[str, Path], Recipe]]] = {
    "socks5": _socks5,
    "socks5-udp": _socks5_udp,
    "http": _http,
    "ss": _ss,
    "ss-obfs-http": _ss_within(
        "obfs-server",
        "obfs=http",
        {"plugin": "obfs", "plugin-opts": {"mode": "http", "host": "cdn.test"}},
    ),
    "ss-obfs-tls": _ss_within(
        "obfs-server",
        "obfs=tls",
        {"plugin": "obfs", "plugin-opts": {"mode": "tls", "host": "cdn.test"}},
    ),
    "ss-websocket": _ss_within(
        "ss-v2ray-plugin",
        "server;mode=websocket;host=cdn.test;path=/w",
        {
            "plugin": "v2ray-plugin",
            "plugin-opts": {"mode": "websocket", "host": "cdn.test", "path": "/w"},
        },
    ),
}
