"""Containers behind a bridge with the rules that Docker makes."""

from __future__ import annotations

from egressd_lab.client import Client
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.netns import namespace, run_ip
from egressd_lab.spec import Place
from egressd_lab.topology import Topology

BRIDGE, CONTAINER, OTHER = "172.17.0.1", "172.17.0.2", "172.17.0.3"


class Containers:
    """A bridge as Docker makes it, with two containers."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.clients: list[Client] = []

    def build(self) -> None:
        lab = self.lab
        lab.topology.ip("router", ["link add docker0 type bridge", "link set docker0 up"])
        lab.topology.ip("router", [f"address add {BRIDGE}/16 dev docker0"])
        for number, address in enumerate((CONTAINER, OTHER), start=1):
            role = f"box{number}"
            run_ip("netns", "add", namespace(lab.name, role))
            link(lab.topology, role, number)
            lab.topology.ip(
                role,
                [
                    "link set lo up",
                    "link set eth0 up",
                    f"address add {address}/16 dev eth0",
                    f"route add default via {BRIDGE}",
                ],
            )
            lab.topology.write_etc(role, "resolv.conf", "nameserver 203.0.113.53\n")
            place = Place(name=role, role=role, address=address)
            self.clients.append(Client(Host(lab.name, role, lab.folder), place))


def link(topology: Topology, role: str, number: int) -> None:
    run_ip(
        *("link", "add", "name", f"veth{number:06}", "netns", namespace(topology.lab, "router")),
        *("type", "veth", "peer", "name", "eth0", "netns", namespace(topology.lab, role)),
    )
    topology.ip("router", [f"link set veth{number:06} master docker0 up"])
