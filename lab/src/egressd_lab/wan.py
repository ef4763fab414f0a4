"""A WAN's link, and its failures."""

from __future__ import annotations

import subprocess

from egressd.model.errors import Failed
from egressd_lab.netns import exec_argv, namespace
from egressd_lab.spec import WanPlan
from egressd_lab.topology import Topology


class Wan:
    """One of the router's ways to the internet."""

    def __init__(self, topology: Topology, plan: WanPlan) -> None:
        self._topology = topology
        self.plan = plan
        self.interface = plan.interface
        self.address = plan.address
        self.gateway = plan.gateway
        self.far = plan.far
        """The internet's end of the link: the place to capture at."""

    def unplug(self) -> None:
        """Take the carrier away: the far end goes down."""
        self._topology.ip("internet", [f"link set {self.far} down"])

    def silence(self) -> None:
        """Make the far end neither receive nor send any more, with its link up."""
        hooks = "".join(
            f"  chain {hook} {{\n"
            f"    type filter hook {hook} device {self.far} priority 0; policy drop;\n"
            f"  }}\n"
            for hook in ("ingress", "egress")
        )
        self._nft(f"table netdev {self._silencer} {{\n{hooks}}}\n")

    def speak(self) -> None:
        """End the silence."""
        self._nft(f"delete table netdev {self._silencer}\n")

    def lower(self) -> None:
        """Set the router's interface down, which also removes its routes."""
        self._topology.ip("router", [f"link set {self.interface} down"])

    def restore(self) -> None:
        """Bring both ends up with their addresses and routes. Safe to repeat."""
        self._topology.raise_wan(self.plan)

    def delete(self) -> None:
        """Remove the interface, as when a modem is pulled."""
        self._topology.ip("router", [f"link del {self.interface}"])

    def recreate(self) -> None:
        """Plug it in again after `delete`: the same name, another index."""
        self._topology.connect_wan(self.plan)

    @property
    def _silencer(self) -> str:
        return f"silence_{self.far}"

    def _nft(self, text: str) -> None:
        name = namespace(self._topology.lab, "internet")
        done = subprocess.run(
            exec_argv(name, ["nft", "-f", "-"]),
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise Failed(f"change {self.far}", done.stderr.strip())
