"""A namespace of the lab from the outside: commands, sockets, captures."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd_lab.capture import Capture
from egressd_lab.netns import exec_argv, namespace
from egressd_lab.prober import Prober
from egressd_lab.wire import Channel

ETHERNET_BROADCAST: Final = b"\xff" * 6


class Host:
    """One namespace. The process that probes in it starts with the first probe."""

    def __init__(self, lab: str, role: str, folder: Path) -> None:
        self.role = role
        self.namespace = namespace(lab, role)
        self._folder = folder
        self._captures = itertools.count(1)
        self._prober = Prober(self.namespace, folder, role)
        self._watching: list[Prober] = []

    def start(self) -> None:
        """Begin to start the probing process, without waiting until it answers."""
        self._prober.start()

    @property
    def channel(self) -> Channel:
        """The channel to the probing process."""
        return self._prober.ready()

    def run(
        self, *argv: str, stdin: str | None = None, check: bool = True, timeout: float = 100.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here and wait. Raises Failed with its error output if `check`."""
        done = subprocess.run(
            exec_argv(self.namespace, argv),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            reason = done.stderr.strip() or f"it ended with {done.returncode}"
            raise Failed(f"run `{' '.join(argv)}` in {self.role}", reason)
        return done

    def emit(self, interface: str, *packets: bytes, mac: bytes = ETHERNET_BROADCAST) -> None:
        """Send IP packets with any content (`egressd_lab.forgery`) by an interface, to the
        neighbour with this address.
        """
        texts = [packet.hex() for packet in packets]
        self.channel.call("emit", type(None), interface=interface, packets=texts, mac=mac.hex())

    def mac(self, interface: str) -> bytes:
        """Return the Ethernet address of an interface of this namespace."""
        told = self.run("ip", "-j", "link", "show", "dev", interface).stdout
        return bytes.fromhex(json.loads(told)[0]["address"].replace(":", ""))

    def sysctl(self, name: str, value: object) -> None:
        """Set a kernel parameter of this namespace, named with slashes: ``net/ipv4/…``."""
        self.channel.call("sysctl", type(None), name=name, value=str(value))

    def socket(self, address: str = "", port: int = 0, timeout: float = 5.0) -> socket.socket:
        """Return a TCP socket of this namespace, connected if `address` is given.

        The caller must close it: a namespace lives on while one of its sockets is open.
        """
        return self.channel.call_for_socket("socket", address=address, port=port, timeout=timeout)

    def capture(self, interface: str = "", *, keep: bool = False) -> Capture:
        """Start a capture on an interface, or on all of this namespace's.

        With `keep` it also keeps every packet with a token, with its time and number.
        """
        prober = Prober(self.namespace, self._folder, f"{self.role}.cap{next(self._captures)}")
        self._watching.append(prober)
        return Capture(prober, interface, keep)

    def close(self) -> None:
        """End the probing process and the captures."""
        for prober in (self._prober, *self._watching):
            prober.close()
