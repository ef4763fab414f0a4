"""WireGuard tunnels by wg-quick(8) over wireguard-go, in namespaces of a lab."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from egressd_lab.host import Host

USERSPACE = "WG_QUICK_USERSPACE_IMPLEMENTATION=wireguard-go"


class Peer:
    """One end of a tunnel: an interface in a namespace, with a configuration file of wg-quick's."""

    def __init__(self, host: Host, folder: Path, name: str, address: str) -> None:
        self.host = host
        self.name = name
        self.address = address
        self.file = folder / f"{name}.conf"
        self.private = _wg("genkey")
        self.public = _wg("pubkey", stdin=self.private)

    def configure(self, *lines: str, port: int = 0) -> None:
        """Write its file; `lines` follow the interface's own."""
        listen = (f"ListenPort = {port}",) if port else ()
        head = ("[Interface]", f"PrivateKey = {self.private}", f"Address = {self.address}", *listen)
        self.file.touch(mode=0o600)
        self.file.write_text("\n".join([*head, *lines, ""]))

    def up(self) -> None:
        """Run ``wg-quick up``."""
        self.host.run("env", USERSPACE, "wg-quick", "up", str(self.file))

    def down(self) -> None:
        """Run ``wg-quick down``. Safe to repeat."""
        self.host.run("wg-quick", "down", str(self.file), check=False)


def peer_lines(other: Peer, *allowed: str, endpoint: str = "") -> tuple[str, ...]:
    """Return the lines about a peer, with the networks that lead to it."""
    where = (f"Endpoint = {endpoint}", "PersistentKeepalive = 1") if endpoint else ()
    return ("[Peer]", f"PublicKey = {other.public}", f"AllowedIPs = {', '.join(allowed)}", *where)


@contextmanager
def raised(*peers: Peer) -> Iterator[None]:
    """Bring these up for the block."""
    try:
        for peer in peers:
            peer.up()
        yield
    finally:
        for peer in peers:
            peer.down()


def _wg(command: str, stdin: str | None = None) -> str:
    done = subprocess.run(["wg", command], input=stdin, capture_output=True, text=True, check=True)
    return done.stdout.strip()
