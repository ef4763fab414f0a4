"""Traffic through a proxy node: egressd, a hand-written sing-box, Xray and Debian's redirectors.

The nodes' programs and the traffic's ends are the same for all; so is the machine, whose two cores
the router shares with them. The base of the ratios is one sing-box process with the same node. The
part ``many`` gives each of 200 clients a node of its own and one connection, all at once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from bench import ends, peers
from bench.arguments import Arguments
from bench.figures import Tables, keep
from bench.sites import SERVER, Site, compare, egressd_pids
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.nodes import PASSWORD, USER
from egressd_lab.spec import OWN_NAMESPACE, LabSpec

ROUNDS = 5
SECONDS = 2
TARGETS = 200
BASE = "sing-box"
TROJAN_PORT = 443
MANY = "many"

SOCKS5: Mapping[str, Any] = {
    "type": "socks",
    "listen_port": 1080,
    "users": [{"username": USER, "password": PASSWORD}],
}
"""A sing-box inbound: the lab's usual SOCKS5 node, microsocks, would be the bottleneck."""

Address = tuple[str, int]
Start = Callable[[Lab, Address], Sequence[int]]


class Way:
    """The path from some clients through a node."""

    def __init__(self, site: Site, seconds: int, clients: Sequence[Client]) -> None:
        self._site = site
        self._seconds = seconds
        self._clients = clients

    def measure(self) -> dict[str, float]:
        """Return one sample of each figure; for many clients only their total throughput and its
        cost.
        """
        figures = {}
        for way in ("up", "down"):
            rate, cost = self._site.transfer(self._clients, self._seconds, way)
            figures[f"{way} (Gbit/s)"] = rate
            figures[f"{way}: router's CPU (s/GB)"] = cost
        if len(self._clients) == 1:
            source = self._clients[0].address
            within = self._site.within(self._clients[0].host.role)
            figures["connections (1/s)"] = within.run(ends.connections, source, SERVER)
            figures["round trip (µs)"] = within.run(ends.round_trip, source, SERVER)
            figures["known packet (ns)"] = within.run(ends.known_packet_cost, source, SERVER)
        return figures


# --- The programs that run the router. --------------------------------------------------------


def clash(protocol: str, at: Address) -> dict[str, Any]:
    """Return a node's ``config_json``."""
    common: dict[str, Any] = {"server": at[0], "port": at[1]}
    return {
        "socks5": {**common, "username": USER, "password": PASSWORD},
        "ss": {**common, "cipher": "aes-256-gcm", "password": PASSWORD, "udp": True},
        "trojan": {**common, "password": PASSWORD, "sni": peers.TROJAN_NAME},
    }[protocol]


def egressd(lab: Lab, at: Address, *, protocol: str) -> Sequence[int]:
    """Run egressd with the node and a rule for client 1."""
    lab.start_egressd()
    body = {"name": "node", "protocol": protocol, "config_json": json.dumps(clash(protocol, at))}
    lab.api.post("/nodes", body)
    lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "node"})
    return egressd_pids(lab)


def sing_box(lab: Lab, at: Address, *, protocol: str) -> Sequence[int]:
    """Run one sing-box process."""
    document = peers.sing_box([peers.sing_box_outbound(protocol, "node", *at)])
    return peers.with_tproxy(lab, "sing-box", document).pids


def xray(lab: Lab, at: Address, *, protocol: str) -> Sequence[int]:
    """Run one Xray process."""
    ca = str(lab.authority.file)
    document = peers.xray([peers.xray_outbound(protocol, "node", *at, ca)])
    return peers.with_tproxy(lab, "xray", document).pids


def redsocks(lab: Lab, at: Address, *, protocol: str) -> Sequence[int]:
    """Run Debian's redsocks."""
    assert protocol == "socks5"
    return peers.started(peers.redsocks(lab, *at))


def ss_redir(lab: Lab, at: Address, *, protocol: str) -> Sequence[int]:
    """Run Debian's shadowsocks-libev."""
    assert protocol == "ss"
    return peers.started(peers.ss_redir(lab, *at))


CONTESTANTS: Mapping[str, Mapping[str, Callable[..., Sequence[int]]]] = {
    "socks5": {BASE: sing_box, "egressd": egressd, "Xray": xray, "redsocks": redsocks},
    "ss": {BASE: sing_box, "egressd": egressd, "Xray": xray, "ss-redir": ss_redir},
    "trojan": {BASE: sing_box, "egressd": egressd, "Xray": xray},
}


# --- Many targets. ----------------------------------------------------------------------------


def many_clients(lab: Lab) -> list[Client]:
    """Return the clients of the namespace that they share."""
    return lab.clients[OWN_NAMESPACE:]


def many_egressd(lab: Lab, nodes: Sequence[Address]) -> Sequence[int]:
    """Run egressd with a node and a rule for each client."""
    lab.start_egressd()
    import_nodes(lab, nodes)
    rules = (f"{client.address},node{n}," for n, client in enumerate(many_clients(lab)))
    lab.api.post("/rules/import", {"text": "\n".join(rules), "replace": True})
    return egressd_pids(lab)


def import_nodes(lab: Lab, nodes: Sequence[Address]) -> None:
    """Give egressd the SOCKS5 nodes, ``node0`` and on."""
    rows = "\n".join(
        f"{host},{port},{USER},{PASSWORD},node{n}" for n, (host, port) in enumerate(nodes)
    )
    lab.api.post("/nodes/import", {"type": "socks5", "text": rows})


def many_sing_box(lab: Lab, nodes: Sequence[Address]) -> Sequence[int]:
    """Run sing-box with an outbound and a rule for each client."""
    outbounds = [peers.sing_box_outbound("socks5", f"n{n}", *at) for n, at in enumerate(nodes)]
    rules = [
        {"source_ip_cidr": [f"{client.address}/32"], "outbound": f"n{n}"}
        for n, client in enumerate(many_clients(lab))
    ]
    return peers.with_tproxy(lab, "sing-box", peers.sing_box(outbounds, rules)).pids


def many_xray(lab: Lab, nodes: Sequence[Address]) -> Sequence[int]:
    """Run Xray with an outbound and a rule for each client."""
    outbounds = [peers.xray_outbound("socks5", f"n{n}", *at) for n, at in enumerate(nodes)]
    rules = [
        {"type": "field", "source": [client.address], "outboundTag": f"n{n}"}
        for n, client in enumerate(many_clients(lab))
    ]
    return peers.with_tproxy(lab, "xray", peers.xray(outbounds, rules)).pids


def title_of_many(targets: int) -> str:
    """Return the name of the comparison with a node for each of `targets` clients."""
    return f"{targets} socks5 nodes"


def add_many_nodes(lab: Lab, targets: int) -> list[Address]:
    """Add SOCKS5 nodes, all of one process."""
    addresses = lab.add_engine_node("many", [dict(SOCKS5)] * targets)
    return [(address, SOCKS5["listen_port"]) for address in addresses]


# --- The comparisons. -------------------------------------------------------------------------


def add_node(lab: Lab, protocol: str) -> Address:
    """Add one node of the protocol."""
    if protocol in lab.nodes:
        return lab.nodes[protocol].address, lab.nodes[protocol].port
    if protocol == "socks5":
        return lab.add_engine_node("socks5", [dict(SOCKS5)])[0], SOCKS5["listen_port"]
    certificate, key = lab.authority.certificate(peers.TROJAN_NAME)
    inbound = {
        "type": "trojan",
        "listen_port": TROJAN_PORT,
        "users": [{"password": PASSWORD}],
        "tls": {"enabled": True, "certificate_path": str(certificate), "key_path": str(key)},
    }
    return lab.add_engine_node("trojan", [inbound])[0], TROJAN_PORT


def compare_one(protocol: str, given: argparse.Namespace) -> Tables:
    """Compare all contestants for one protocol."""
    kinds = (protocol,) if protocol == "ss" else ()
    with ExitStack() as stack:
        ways = {}
        for name, start in CONTESTANTS[protocol].items():
            site = stack.enter_context(Site(LabSpec(nodes=kinds)))
            site.pids = start(site.lab, add_node(site.lab, protocol), protocol=protocol)
            ways[name] = Way(site, given.seconds, [site.lab.client(1)]).measure
        return compare(protocol, ways, BASE, given.rounds)


def compare_many(given: argparse.Namespace) -> Tables:
    """Compare the contestants with a node for each of many clients."""
    contestants = {BASE: many_sing_box, "egressd": many_egressd, "Xray": many_xray}
    with ExitStack() as stack:
        ways = {}
        for name, start in contestants.items():
            spec = LabSpec(nodes=(), clients=OWN_NAMESPACE + given.targets)
            site = stack.enter_context(Site(spec))
            site.pids = start(site.lab, add_many_nodes(site.lab, given.targets))
            ways[name] = Way(site, given.seconds, many_clients(site.lab)).measure
        return compare(title_of_many(given.targets), ways, BASE, given.rounds)


def add_options(arguments: Arguments, rounds: int) -> None:
    """Add the options of comparisons through nodes. `rounds` is a default."""
    arguments.number("--rounds", rounds, "rounds of each comparison")
    arguments.number("--seconds", SECONDS, "seconds of each transfer")
    arguments.number("--targets", TARGETS, f"clients and nodes of the part {MANY}")


def main() -> None:
    """Compare each protocol, then many nodes; or only the parts that the command line names."""
    parts = (*CONTESTANTS, MANY)
    arguments = Arguments("nodes", __doc__)
    arguments.parts(parts)
    add_options(arguments, ROUNDS)
    given = arguments.read()
    tables = {}
    for name in given.parts or parts:
        if name == MANY:
            tables[title_of_many(given.targets)] = compare_many(given)
        else:
            tables[name] = compare_one(name, given)
    keep("nodes", tables, given.json)


if __name__ == "__main__":
    main()
