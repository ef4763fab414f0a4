"""Alternatives to egressd, each configured as its own documentation describes.

sing-box and Xray get LAN clients' packets through TPROXY (sing-box through its TUN device too),
redsocks and ss-redir TCP only, by REDIRECT. All run as root, without sniffing and with nothing else
in their rules than the comparison needs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.engine import held_file
from egressd_lab.engine import started_file
from egressd_lab.lab import Lab
from egressd_lab.nodes import PASSWORD, USER
from egressd_lab.process import Program

Document = dict[str, Any]

TPROXY_PORT: Final = 7893
TPROXY_TABLE: Final = 100
"""The routing table that leads clients' packets to an engine of a peer."""
REDIRECT_PORT: Final = 12345
XRAY_API: Final = 10085
_START_S: Final = 300.0
"""Seconds for a start: Xray takes a minute and a half with a rule for each of 10,000 clients."""

_TPROXY_RULES: Final = f"""
table inet peer {{
  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iifname != "lan0" return
    ip daddr {{ 10.77.0.0/16, 127.0.0.0/8 }} return
    meta l4proto tcp socket transparent 1 meta mark set 1 accept
    meta nfproto ipv4 meta l4proto {{ tcp, udp }} meta mark set 1 tproxy ip to :{TPROXY_PORT}
  }}
}}
"""
_REDIRECT_RULES: Final = f"""
table ip peer {{
  chain prerouting {{
    type nat hook prerouting priority dstnat;
    iifname "lan0" ip daddr != 10.77.0.0/16 meta l4proto tcp redirect to :{REDIRECT_PORT}
  }}
}}
"""


class Engine:
    """A peer's engine in the router. `kind` is ``sing-box`` or ``xray``."""

    def __init__(self, lab: Lab, kind: str, document: Document) -> None:
        self._lab = lab
        self._kind = kind
        self._config = lab.folder / f"{kind}.json"
        self.write(document)
        self.program = self._program()
        self.program.start()
        self.wait_started()

    @property
    def pids(self) -> list[int]:
        """The engine's process, in a list."""
        return [self.program.pid]

    def write(self, document: Document) -> None:
        """Write another configuration into the engine's file."""
        self._config.write_text(json.dumps(document))

    def reload(self) -> None:
        """Send SIGHUP, and wait until the engine serves again."""
        started_file(self._config).unlink()
        self.program.signal(signal.SIGHUP)
        self.wait_started()

    def prepare(self) -> Program:
        """Start another process of the engine, loaded and waiting for `replace`."""
        program = self._program("--hold")
        program.start()
        while not held_file(self._config).exists():
            if not program.running:
                raise RuntimeError(f"{self._kind} did not start: {program.tail()}")
            time.sleep(0.01)
        held_file(self._config).unlink()
        return program

    def replace(self, successor: Program) -> None:
        """End the process and let a prepared one serve instead: a restart of the service."""
        started_file(self._config).unlink()
        self.program.kill()
        successor.signal(signal.SIGUSR1)
        self.program = successor
        self.wait_started()

    def wait_started(self) -> None:
        """Wait until the engine listens."""
        deadline = time.monotonic() + _START_S
        while not started_file(self._config).exists():
            if not self.program.running or time.monotonic() > deadline:
                raise RuntimeError(f"{self._kind} did not start: {self.program.tail()}")
            time.sleep(0.001)

    def _program(self, *options: str) -> Program:
        argv = [sys.executable, "-m", "bench.engine", self._kind, str(self._config), *options]
        return run(self._lab, argv, f"{self._kind}.log", start=False)


def run(lab: Lab, argv: Sequence[str], log: str, *, start: bool = True) -> Program:
    """Return a program in the router, which trusts the lab's certificates."""
    environment = {
        "SSL_CERT_FILE": str(lab.authority.file),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), *sys.path[1:]]),
    }
    program = Program(lab.router.namespace, argv, lab.folder / log, environment)
    if start:
        program.start()
    return program


# --- Kernel rules. ----------------------------------------------------------------------------


def tproxy(lab: Lab) -> None:
    """Redirect LAN clients' TCP and UDP to the engine's TPROXY port."""
    lab.router.run("nft", "-f", "-", stdin=_TPROXY_RULES)
    table = str(TPROXY_TABLE)
    lab.router.run("ip", "rule", "add", "fwmark", "1", "lookup", table)
    lab.router.run("ip", "route", "add", "local", "default", "dev", "lo", "table", table)
    _forward(lab)


def redirect(lab: Lab) -> None:
    """Redirect LAN clients' TCP to a redirector's port."""
    lab.router.run("nft", "-f", "-", stdin=_REDIRECT_RULES)
    _forward(lab)


def bridge_apart(lab: Lab) -> None:
    """Keep nftables out of the LAN's bridge, where TPROXY and REDIRECT would not work."""
    lab.router.sysctl("net/bridge/bridge-nf-call-iptables", 0)


def _forward(lab: Lab) -> None:
    bridge_apart(lab)
    lab.router.sysctl("net/ipv4/ip_forward", 1)


# --- sing-box. --------------------------------------------------------------------------------


def sing_box(
    outbounds: Sequence[Document],
    rules: Sequence[Document] = (),
    rule_sets: Sequence[Document] = (),
    *,
    inbound: Document | None = None,
) -> Document:
    """Return a configuration; the last outbound takes the traffic that no rule matches."""
    return {
        "log": {"level": "error"},
        "inbounds": [inbound or TPROXY_INBOUND],
        "outbounds": list(outbounds),
        "route": {
            "rules": list(rules),
            "rule_set": list(rule_sets),
            "final": outbounds[-1]["tag"],
        },
    }


TPROXY_INBOUND: Final[Document] = {
    "type": "tproxy",
    "tag": "clients",
    "listen": "0.0.0.0",
    "listen_port": TPROXY_PORT,
}
TUN_INBOUND: Final[Document] = {
    "type": "tun",
    "tag": "clients",
    "interface_name": "tun0",
    "address": ["172.18.0.1/30"],
    "auto_route": True,
    "strict_route": True,
}
DIRECT: Final[Document] = {"type": "direct", "tag": "direct"}


def direct_tun(lab: Lab) -> Engine:
    """Run sing-box's TUN device in front of its direct outbound.

    ``auto_redirect``, which its documentation recommends on routers, is not used: the test
    machine's kernel refuses the rules that it makes. So TCP goes through the device too.
    """
    _forward(lab)
    document = sing_box([DIRECT], inbound=TUN_INBOUND)
    document["route"]["default_interface"] = lab.wan(1).interface
    return Engine(lab, "sing-box", document)


def sing_box_outbound(protocol: str, tag: str, server: str, port: int) -> Document:
    """Return a node in sing-box's form."""
    common = {"tag": tag, "server": server, "server_port": port}
    return {
        "socks5": {"type": "socks", **common, "username": USER, "password": PASSWORD},
        "ss": {"type": "shadowsocks", **common, "method": "aes-256-gcm", "password": PASSWORD},
        "trojan": {
            "type": "trojan",
            **common,
            "password": PASSWORD,
            "tls": {"enabled": True, "server_name": TROJAN_NAME},
        },
    }[protocol]


TROJAN_NAME: Final = "trojan.test"

# --- Xray. ------------------------------------------------------------------------------------


def xray(outbounds: Sequence[Document], rules: Sequence[Document] = ()) -> Document:
    """Return a configuration; the first outbound takes the traffic that no rule matches."""
    return {
        "log": {"loglevel": "error"},
        "api": {
            "tag": "api",
            "listen": f"127.0.0.1:{XRAY_API}",
            "services": ["RoutingService"],
        },
        "inbounds": [
            {
                "tag": "clients",
                "port": TPROXY_PORT,
                "protocol": "dokodemo-door",
                "settings": {"network": "tcp,udp", "followRedirect": True},
                "streamSettings": {"sockopt": {"tproxy": "tproxy"}},
            }
        ],
        "outbounds": list(outbounds),
        "routing": {"rules": list(rules)},
    }


FREEDOM: Final[Document] = {"tag": "direct", "protocol": "freedom"}


def xray_outbound(protocol: str, tag: str, server: str, port: int, ca: str = "") -> Document:
    """Return a node in Xray's form. Certificates issued by `ca`, a file, are accepted."""
    at = {"address": server, "port": port}
    user = {"user": USER, "pass": PASSWORD}
    return {
        "socks5": {
            "tag": tag,
            "protocol": "socks",
            "settings": {"servers": [{**at, "users": [user]}]},
        },
        "ss": {
            "tag": tag,
            "protocol": "shadowsocks",
            "settings": {"servers": [{**at, "method": "aes-256-gcm", "password": PASSWORD}]},
        },
        "trojan": {
            "tag": tag,
            "protocol": "trojan",
            "settings": {"servers": [{**at, "password": PASSWORD}]},
            "streamSettings": {
                "security": "tls",
                "tlsSettings": {
                    "serverName": TROJAN_NAME,
                    "certificates": [{"usage": "verify", "certificateFile": ca}],
                },
            },
        },
    }[protocol]


# --- Debian's redirectors. --------------------------------------------------------------------


def redsocks(lab: Lab, server: str, port: int) -> Program:
    """Run redsocks in front of a SOCKS5 node."""
    config = lab.folder / "redsocks.conf"
    config.write_text(
        "base { log_debug = off; log_info = off; daemon = off; redirector = iptables; }\n"
        f"redsocks {{ local_ip = 0.0.0.0; local_port = {REDIRECT_PORT}; ip = {server}; "
        f'port = {port}; type = socks5; login = "{USER}"; password = "{PASSWORD}"; }}\n'
    )
    redirect(lab)
    return run(lab, ["redsocks", "-c", str(config)], "redsocks.log")


def ss_redir(lab: Lab, server: str, port: int) -> Program:
    """Run shadowsocks-libev's redirector."""
    argv = ["ss-redir", "-s", server, "-p", str(port), "-b", "0.0.0.0", "-l", str(REDIRECT_PORT)]
    redirect(lab)
    return run(lab, [*argv, "-k", PASSWORD, "-m", "aes-256-gcm"], "ss-redir.log")


Start = Callable[[Lab], Sequence[int]]
"""A function that makes a program the router, and returns its processes."""


def started(program: Program) -> Sequence[int]:
    """Return a redirector's process, once it has had time to listen."""
    time.sleep(0.5)
    if not program.running:
        raise RuntimeError(f"{program.argv[0]} did not start: {program.tail()}")
    return [program.pid]


def with_tproxy(lab: Lab, kind: str, document: Mapping[str, Any]) -> Engine:
    """Run an engine behind TPROXY."""
    engine = Engine(lab, kind, dict(document))
    tproxy(lab)
    return engine
