"""A WireGuard server in a namespace: wireguard-go, or the kernel's own module, and the kernel's
forwarding behind it.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, Final

from egressd.model.errors import Failed
from egressd_lab.host import Host
from egressd_lab.process import Program

TOOL: Final = "wg"
"""The program that configures both kinds."""
GO: Final = "wireguard-go"
PORT: Final = 51820
_SOCKETS: Final = Path("/var/run/wireguard")
"""The folder in which wireguard-go puts a socket for each interface, of every namespace."""
_NAME_MAX: Final = 13
_NETWORK: Final = "10.9.0"
_UP_SECONDS: Final = 15.0
_MASQUERADE: Final = """
table ip out
delete table ip out
table ip out {
  chain post {
    type nat hook postrouting priority srcnat
    oifname "eth0" masquerade
  }
}
"""


class WireGuardServer:
    """A server with one client, which leaves by the server's address. With `in_kernel`, it is an
    interface of the kernel's module ``wireguard``.
    """

    def __init__(self, address: str, host: Host, folder: Path, *, in_kernel: bool = False) -> None:
        self.address = address
        self.host = host
        self.client = f"{_NETWORK}.2"
        """The client's address in the tunnel."""
        # Unlike other labs', which run at the same time.
        self.interface = f"wg{host.namespace.split('-')[1][:_NAME_MAX]}"
        self._program = (
            None
            if in_kernel
            else Program(host.namespace, (GO, "-f", self.interface), folder / "wireguard.log")
        )
        self._folder = folder
        self._private, self._client_private = _wg("genkey"), _wg("genkey")
        self._shared = _wg("genpsk")

    @property
    def clash(self) -> dict[str, Any]:
        """The fields of a Clash proxy entry for the client."""
        return {
            "server": self.address,
            "port": PORT,
            "ip": self.client,
            "private-key": self._client_private,
            "public-key": _wg("pubkey", stdin=self._private),
            "pre-shared-key": self._shared,
        }

    @property
    def client_end(self) -> str:
        """The address and port that the client was last heard from; empty if it was not."""
        found = self.host.run("wg", "show", self.interface, "endpoints").stdout.split()[1]
        return "" if found == "(none)" else found

    def remove(self) -> None:
        """End it, and remove what it leaves behind. Safe to repeat."""
        if self._program is None:
            self.host.run("ip", "link", "delete", self.interface, check=False)
        else:
            self._program.kill()
            (_SOCKETS / f"{self.interface}.sock").unlink(missing_ok=True)

    def start(self) -> None:
        """Start it, and let it forward for its client. Raises Failed."""
        if self._program is None:
            self.host.run("ip", "link", "add", self.interface, "type", "wireguard")
        else:
            self._start(self._program)
        config = self._folder / "wireguard.conf"
        config.touch(mode=0o600)
        config.write_text(
            f"[Interface]\nPrivateKey = {self._private}\nListenPort = {PORT}\n"
            f"[Peer]\nPublicKey = {_wg('pubkey', stdin=self._client_private)}\n"
            f"PresharedKey = {self._shared}\nAllowedIPs = {self.client}/32\n"
        )
        self.host.run("wg", "setconf", self.interface, str(config))
        self.host.run("ip", "address", "add", f"{_NETWORK}.1/24", "dev", self.interface)
        self.host.run("ip", "link", "set", self.interface, "up", "mtu", "1420")
        self.host.run("nft", "-f", "-", stdin=_MASQUERADE)

    def _start(self, program: Program) -> None:
        program.start()
        deadline = time.monotonic() + _UP_SECONDS
        while self.host.run("wg", "show", self.interface, check=False).returncode:
            if not program.running or time.monotonic() > deadline:
                raise Failed("start wireguard-go", program.tail())
            time.sleep(0.01)


def _wg(command: str, stdin: str | None = None) -> str:
    done = subprocess.run(["wg", command], input=stdin, capture_output=True, text=True, check=True)
    return done.stdout.strip()
