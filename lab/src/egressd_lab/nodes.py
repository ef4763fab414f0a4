"""Real proxy nodes, each in a namespace of its own with an address of its own.

| kind | program on Debian 12 | on Debian 13 | protocol |
|---|---|---|---|
| ``socks5`` | microsocks | the same | SOCKS5 with a password, TCP only |
| ``socks5-udp`` | dante | v2ray | SOCKS5 with a password, UDP too |
| ``http`` | tinyproxy | the same | HTTP CONNECT with a password |
| ``ss`` | ss-server | the same | Shadowsocks, TCP and UDP |
| ``ss-obfs-http`` | ss-server, obfs-server | ss-server, `obfs` | within simple-obfs, TCP only |
| ``ss-obfs-tls`` | ss-server, obfs-server | ss-server, `obfs` | within simple-obfs, TCP only |
| ``ss-websocket`` | ss-server, ss-v2ray-plugin | v2ray | within WebSocket, TCP only |
| ``ssh`` | sshd | the same | SSH with a password, TCP only |
| ``ssh-key`` | sshd | the same | SSH with a key, TCP only |

The choice does not depend on the release itself, but on whether Debian 12's program is installed.
`obfs` is the lab's own, `egressd_lab.inside.obfs`. For all other protocols see
`egressd_lab.lab.Lab.add_engine_node`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd_lab import ssh, v2ray
from egressd_lab.inside import obfs
from egressd_lab.process import Program, is_installed
from egressd_lab.spec import NODE_NETWORK, RESOLVERS

USER: Final = "lab"
PASSWORD: Final = "open-sesame"  # noqa: S105 - guards nothing but the lab's own nodes
_FIRST_HOST: Final = 10


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a node: its program, the files that it reads, and a client's settings."""

    protocol: str
    """The protocol's name in the API's ``protocol``."""
    argv: tuple[str, ...]
    starts: tuple[str, ...] = ()
    """Programs that the first of `argv` starts and that have to be installed as well."""
    files: dict[str, str] = {}
    """Text by name, written to the node's own folder."""
    etc: dict[str, str] = {}
    """Text by name, seen by the program as /etc/<name>."""
    clash: dict[str, Any] = {}
    """The fields of a Clash proxy entry beside ``server``, for ``config_json``."""

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that have to be installed."""
        return (self.argv[0], *self.starts)


Make = Callable[[str, Path], Recipe]
"""A function that makes a recipe of a node's address and its folder."""


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
        """The port on which it listens."""
        return int(self.clash["port"])

    def draft(self, group: str = "") -> dict[str, str]:
        """Return the body of ``POST /nodes`` for this node."""
        return {
            "name": self.name,
            "protocol": self.protocol,
            "config_json": json.dumps(self.clash),
            "group": group,
        }


def node_address(number: int) -> str:
    """Return the address of the lab's node of that number, from 0."""
    return str(NODE_NETWORK[_FIRST_HOST + number])


def recipe(kind: str, address: str, folder: Path) -> Recipe:
    """Return the recipe for a kind of node. Raises KeyError for an unknown kind."""
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
"""The hash of `PASSWORD` in crypt(5)'s sha512crypt."""


_SOCKS5_UDP: Final[dict[str, Any]] = {
    "port": 1080,
    "username": USER,
    "password": PASSWORD,
    "udp": True,
}


def _socks5_by_dante(address: str, folder: Path) -> Recipe:
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
        clash=_SOCKS5_UDP,
    )


def _socks5_by_v2ray(address: str, folder: Path) -> Recipe:
    document = v2ray.socks(address, 1080, USER, PASSWORD)
    return _by_v2ray("socks5", folder, document, _SOCKS5_UDP)


def _by_v2ray(
    protocol: str, folder: Path, document: Mapping[str, Any], clash: Mapping[str, Any]
) -> Recipe:
    return Recipe(
        protocol=protocol,
        argv=("v2ray", "-config", str(folder / "v2ray.json")),
        files={"v2ray.json": json.dumps(document)},
        clash=dict(clash),
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


_SS_PORT: Final = 8388
_CIPHER: Final = "aes-256-gcm"
_SS: Final[dict[str, Any]] = {
    "port": _SS_PORT,
    "cipher": _CIPHER,
    "password": PASSWORD,
    "udp": True,
}
_WITHIN_OBFS: Final[Mapping[str, Mapping[str, Any]]] = {
    mode: {
        **_SS,
        "udp": False,
        "plugin": "obfs",
        "plugin-opts": {"mode": mode, "host": "cdn.test"},
    }
    for mode in obfs.MODES
}
_WITHIN_WEBSOCKET: Final[Mapping[str, Any]] = {
    **_SS,
    "udp": False,
    "plugin": "v2ray-plugin",
    "plugin-opts": {"mode": "websocket", "host": "cdn.test", "path": "/w"},
}


def _ss_server(address: str, listen: str = "") -> tuple[str, ...]:
    """Return a server for TCP that leaves by the address, and listens there or on `listen`."""
    return (
        *("ss-server", "-s", listen or address, "-p", str(_SS_PORT), "-b", address),
        *("-k", PASSWORD, "-m", _CIPHER, "-t", "600", "-d", RESOLVERS["node"]),
    )


def _ss(address: str, _: Path) -> Recipe:
    return Recipe(protocol="ss", argv=(*_ss_server(address), "-u"), clash=_SS)


def _ss_plugin(plugin: str, options: str, clash: Mapping[str, Any]) -> Make:
    """Return the recipe of Shadowsocks inside the protocol of a SIP003 plugin."""

    def make(address: str, _: Path) -> Recipe:
        argv = (*_ss_server(address), "--plugin", plugin, "--plugin-opts", options)
        return Recipe(protocol="ss", argv=argv, clash=dict(clash))

    return make


def _ss_obfs(mode: str) -> Make:
    """Return the recipe of Shadowsocks inside the lab's own simple-obfs."""

    def make(address: str, _: Path) -> Recipe:
        server = _ss_server(address, obfs.LOOPBACK)
        return Recipe(
            protocol="ss",
            argv=(sys.executable, "-m", obfs.__name__, mode, address, str(_SS_PORT), *server),
            starts=server[:1],
            clash=dict(_WITHIN_OBFS[mode]),
        )

    return make


def _ss_by_v2ray(address: str, folder: Path) -> Recipe:
    path = _WITHIN_WEBSOCKET["plugin-opts"]["path"]
    document = v2ray.shadowsocks_in_websocket(address, _SS_PORT, path, _CIPHER, PASSWORD)
    return _by_v2ray("ss", folder, document, _WITHIN_WEBSOCKET)


def _ssh(address: str, folder: Path) -> Recipe:
    server = ssh.SshServer(address, folder, USER, _PASSWORD_HASH)
    return _by_ssh(server, {**server.clash, "password": PASSWORD})


def _ssh_key(address: str, folder: Path) -> Recipe:
    server = ssh.SshServer(address, folder, USER)
    return _by_ssh(server, {**server.clash, "private-key": server.private_key})


def _by_ssh(server: ssh.SshServer, clash: dict[str, Any]) -> Recipe:
    return Recipe(
        protocol="ssh",
        argv=server.argv,
        starts=(ssh.PROGRAM,),
        files=server.files,
        etc=dict(server.etc),
        clash=clash,
    )


def _if_installed(program: str, make: Make, *, otherwise: Make) -> Make:
    """Return `make` if the program is installed, else `otherwise`. The recipe's call decides."""

    def choose(address: str, folder: Path) -> Recipe:
        return (make if is_installed(program) else otherwise)(address, folder)

    return choose


RECIPES: Final[Mapping[str, Make]] = {
    "socks5": _socks5,
    "socks5-udp": _if_installed("danted", _socks5_by_dante, otherwise=_socks5_by_v2ray),
    "http": _http,
    "ss": _ss,
    "ss-obfs-http": _if_installed(
        "obfs-server",
        _ss_plugin("obfs-server", "obfs=http", _WITHIN_OBFS["http"]),
        otherwise=_ss_obfs("http"),
    ),
    "ss-obfs-tls": _if_installed(
        "obfs-server",
        _ss_plugin("obfs-server", "obfs=tls", _WITHIN_OBFS["tls"]),
        otherwise=_ss_obfs("tls"),
    ),
    "ss-websocket": _if_installed(
        "ss-v2ray-plugin",
        _ss_plugin(
            "ss-v2ray-plugin", "server;mode=websocket;host=cdn.test;path=/w", _WITHIN_WEBSOCKET
        ),
        otherwise=_ss_by_v2ray,
    ),
    "ssh": _ssh,
    "ssh-key": _ssh_key,
}
