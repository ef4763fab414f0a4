"""Other software beside egressd: real programs and commands, as users run them on a router.

Each stays until its turn comes again, so that everything else happens beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from random import Random
from typing import Final

from egressd_lab.lab import Lab
from egressd_lab.process import Program

DOCKER: Final = """
table ip nat {
    chain PREROUTING { type nat hook prerouting priority dstnat; fib daddr type local jump DOCKER; }
    chain DOCKER { iifname "docker0" return; tcp dport 8080 dnat to 172.17.0.2:80; }
    chain POSTROUTING {
        type nat hook postrouting priority srcnat
        ip saddr 172.17.0.0/16 oifname != "docker0" masquerade
    }
}
table ip filter {
    chain FORWARD {
        type filter hook forward priority filter; policy drop;
        iifname "docker0" accept
        jump DOCKER-USER
    }
    chain DOCKER-USER { iifname "lan0" accept; oifname "lan0" accept; }
}
"""
FIREWALLD: Final = """
table inet firewalld {
    chain filter_FORWARD {
        type filter hook forward priority 10; policy accept;
        ct state established,related accept
        ct state invalid drop
        iifname "lan0" accept
        reject with icmpx admin-prohibited
    }
    chain filter_INPUT {
        type filter hook input priority 10; policy accept;
        ct state established,related accept
        iifname "lo" accept
        iifname "lan0" accept
        ip protocol icmp accept
        reject with icmpx admin-prohibited
    }
}
"""
PORTS: Final = ("53", "443", "853", "3478", "8443", "51820")
_SERVERS: Final = """
import socket, sys
taken = []
for port in map(int, sys.argv[1:]):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("0.0.0.0", port))
    taken.append(server)
taken[0].recv(1)
"""


class ForeignSoftware:
    """Programs and rules that may be on the router of one lab."""

    def __init__(self, lab: Lab, rng: Random) -> None:
        self._lab = lab
        self._rng = rng
        self._there: set[str] = set()
        self._tunnel = lab.folder / f"wg{lab.name}.conf"
        command = [sys.executable, "-c", _SERVERS, *PORTS]
        self._servers = Program(lab.router.namespace, command, lab.folder / "servers.log", {})

    @property
    def has_wireguard(self) -> bool:
        """True if this machine has the programs for it."""
        return all(map(shutil.which, ("wg-quick", "wg", "wireguard-go")))

    def toggle(self, name: str, come: Callable[[], None], go: Callable[[], None]) -> None:
        """Start something that is absent, or remove it."""
        if name in self._there:
            self._there.discard(name)
            go()
        else:
            self._there.add(name)
            come()

    def wireguard(self) -> None:
        """Run ``wg-quick up`` with a default route, or ``down``. Its far end does not exist."""
        self.toggle("wireguard", self._tunnel_up, self._tunnel_down)

    def docker(self) -> None:
        """Toggle Docker's rules: those of an installation that lets the LAN pass."""
        self.toggle("docker", lambda: self._load(DOCKER), lambda: self._drop("ip nat", "ip filter"))

    def firewalld(self) -> None:
        """Toggle firewalld's rules, with the LAN in a zone of its own."""
        self.toggle(
            "firewalld", lambda: self._load(FIREWALLD), lambda: self._drop("inet firewalld")
        )

    def sqm(self) -> None:
        """Toggle SQM: a limit in front of a WAN and one behind it, both too high to matter."""
        self.toggle("sqm", self._set_sqm, self._unset_sqm)

    def servers(self) -> None:
        """Toggle UDP servers on ports that clients use outside."""
        self.toggle("servers", self._servers.start, self._stop_servers)

    def forget_a_client(self) -> None:
        """Run ``conntrack -D`` for one client."""
        address = self._rng.choice(self._lab.clients).address
        self._run("conntrack", "-D", "-s", address)

    def flush_the_table(self) -> None:
        """Run ``nft flush table`` on egressd's table."""
        self._run("nft", "flush", "table", "inet", "egressd")

    def leave(self) -> None:
        """Stop the programs that run."""
        if "servers" in self._there:
            self._stop_servers()
        if "wireguard" in self._there:
            self._tunnel_down()

    def _tunnel_up(self) -> None:
        if not self._tunnel.exists():
            private, public = _wg("genkey"), _wg("pubkey", _wg("genkey"))
            self._tunnel.touch(mode=0o600)
            self._tunnel.write_text(
                f"[Interface]\nPrivateKey = {private}\nAddress = 10.200.0.2/32\n"
                f"[Peer]\nPublicKey = {public}\nAllowedIPs = 0.0.0.0/0\n"
                "Endpoint = 192.0.2.253:51820\n"
            )
        userspace = "WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go"
        self._run("env", userspace, "wg-quick", "up", str(self._tunnel))

    def _tunnel_down(self) -> None:
        self._run("wg-quick", "down", str(self._tunnel))

    def _stop_servers(self) -> None:
        self._servers.stop(10)

    def _set_sqm(self) -> None:
        self._run("tc", "qdisc", "del", "dev", "wan1", "handle", "ffff:", "ingress")
        self._run("tc", "qdisc", "add", "dev", "wan1", "handle", "ffff:", "ingress")
        self._run(
            *("tc", "filter", "add", "dev", "wan1", "parent", "ffff:", "protocol", "all"),
            *("matchall", "action", "police", "rate", "10gbit", "burst", "10m", "conform-exceed"),
            "drop",
        )
        self._run(
            *("tc", "qdisc", "add", "dev", "wan1", "root", "tbf"),
            *("rate", "10gbit", "burst", "10m", "latency", "50ms"),
        )

    def _unset_sqm(self) -> None:
        self._run("tc", "qdisc", "del", "dev", "wan1", "handle", "ffff:", "ingress")
        self._run("tc", "qdisc", "del", "dev", "wan1", "root")

    def _load(self, rules: str) -> None:
        self._lab.router.run("nft", "-f", "-", stdin=rules, check=False)

    def _drop(self, *tables: str) -> None:
        for table in tables:
            self._run("nft", "delete", "table", *table.split())

    def _run(self, *argv: str) -> None:
        """Run a command that may have nothing to do: its objects may have been flushed
        meanwhile.
        """
        self._lab.router.run(*argv, check=False)


def _wg(command: str, stdin: str | None = None) -> str:
    done = subprocess.run(["wg", command], input=stdin, capture_output=True, text=True, check=True)
    return done.stdout.strip()
