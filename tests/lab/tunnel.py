"""A WireGuard tunnel from a client to a server in the lab's internet, with wireguard-go."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from tests.support.device import SERVER, eventually

PORT = 51_820
MTU = 1420
"""Bytes: wg-quick(8)'s MTU for a link of 1,500, whose outer packet has 1,480 bytes with IPv4."""
HERE, THERE = "10.9.0.2", "10.9.0.1"


@dataclass(frozen=True)
class End:
    """One end: its interface, whose name is its control socket's as well."""

    host: Host
    interface: str
    address: str
    key: X25519PrivateKey

    @property
    def public(self) -> str:
        return base64.b64encode(self.key.public_key().public_bytes_raw()).decode()

    def configure(self, folder: Path, peer: End, *options: str) -> None:
        """Bring it up, with `peer` and its options."""
        secret = folder / f"{self.interface}.key"
        secret.write_text(base64.b64encode(self.key.private_bytes_raw()).decode())
        secret.chmod(0o600)
        about = ("peer", peer.public, "allowed-ips", f"{peer.address}/32", *options)
        self.host.run("wg", "set", self.interface, "private-key", str(secret), *about)
        self.host.run("ip", "address", "add", f"{self.address}/24", "dev", self.interface)
        self.host.run("ip", "link", "set", self.interface, "mtu", str(MTU), "up")


@contextmanager
def tunnel(lab: Lab, client: int) -> Iterator[Host]:
    """Yield the client's end, from which `THERE` can be reached."""
    own = lab.client(client).host
    ends = [
        End(host, f"wg{lab.name}{n}", address, X25519PrivateKey.generate())
        for n, (host, address) in enumerate(((own, HERE), (lab.internet, THERE)))
    ]
    programs = [
        Program(
            end.host.namespace,
            ("wireguard-go", "--foreground", end.interface),
            lab.folder / f"{end.interface}.log",
        )
        for end in ends
    ]
    try:
        for end, program in zip(ends, programs, strict=True):
            program.start()
            eventually(Path(f"/var/run/wireguard/{end.interface}.sock").is_socket)
        near, far = ends
        for end, peer, options in (
            (far, near, ()),
            (near, far, ("endpoint", f"{SERVER}:{PORT}")),
        ):
            end.configure(lab.folder, peer, *options)
        far.host.run("wg", "set", far.interface, "listen-port", str(PORT))
        yield own
    finally:
        for program in programs:
            program.stop()
