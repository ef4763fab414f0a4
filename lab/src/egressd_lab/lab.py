"""The lab: `Lab` builds it, gives access to its parts, and leaves nothing behind.

with Lab() as lab:
    with lab.plain_router():
        assert lab.client(1).http("http://203.0.113.10/").seen == lab.wan(1).address
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from egressd.model.errors import Failed, Invalid
from egressd_lab import lines, netns, nodes, ownership, wireguard
from egressd_lab import spec as plan
from egressd_lab.authority import Authority
from egressd_lab.client import Client
from egressd_lab.device import Api, Device, Settings
from egressd_lab.engine import node_document, started_file
from egressd_lab.host import Host
from egressd_lab.lines import LineServer
from egressd_lab.nodes import Node
from egressd_lab.process import Program, require
from egressd_lab.servers import Internet
from egressd_lab.spec import LabSpec
from egressd_lab.topology import Topology
from egressd_lab.wan import Wan
from egressd_lab.wireguard import WireGuardServer

LAN_RANGES: Final = "10.77.0.0/16, 10.78.0.0/24"
_WIREGUARD_NUMBER: Final = 99
"""The number of the WireGuard server among the nodes, above those of the others."""
_LISTEN_SECONDS: Final = 15.0
"""Seconds for a node to listen, on a busy machine."""
_CONTROL_TABLE: Final = "lab_control"
_CONTROL_RULES: Final = f"""
table ip {_CONTROL_TABLE} {{
  chain post {{
    type nat hook postrouting priority srcnat
    ip saddr {{ {LAN_RANGES} }} ip daddr != {{ {LAN_RANGES} }} masquerade
  }}
}}
"""


class Lab:
    """A lab. A context manager: built on entry, removed with everything in it on exit."""

    def __init__(self, spec: LabSpec | None = None) -> None:
        self.spec = spec or LabSpec()
        self.spec.check()
        self.name = self.spec.name or secrets.token_hex(3)
        self.folder = netns.RUN_DIR / self.name
        self.topology = Topology(self.name, self.spec)
        boxes = range(1, self.spec.boxes + 1)
        self.routers = [Host(self.name, plan.router_role(box), self.folder) for box in boxes]
        self.router = self.routers[0]
        self.internet = Internet(self.name, self.folder)
        hosts = {p.role: Host(self.name, p.role, self.folder) for p in self.topology.places}
        self._clients = {p.name: Client(hosts[p.role], p) for p in self.topology.places}
        self._hosts = [*self.routers, self.internet, *hosts.values()]
        self._wans = [Wan(self.topology, wan) for wan in self.topology.wans]
        self.nodes: dict[str, Node] = {}
        self.line_servers: list[LineServer] = []
        self._programs: list[Program] = []
        self._tunnels: list[WireGuardServer] = []
        self._devices: dict[int, Device] = {}
        self._authority: Authority | None = None

    # --- Parts. ---

    @property
    def clients(self) -> list[Client]:
        """client1, client2, …"""
        return [c for c in self._clients.values() if c.name.startswith("client")]

    def client(self, number: int) -> Client:
        """Return the LAN client of that number, from 1."""
        return self._clients[f"client{number}"]

    def guest(self, number: int) -> Client:
        """Return a client of the second LAN, 1 or 2."""
        return self._clients[f"guest{number}"]

    @property
    def spoofer(self) -> Client:
        """A client whose tests send false source addresses."""
        return self._clients["spoofer"]

    @property
    def wans(self) -> list[Wan]:
        """All WANs."""
        return list(self._wans)

    def wan(self, number: int) -> Wan:
        """Return the WAN of that number, from 1."""
        return self._wans[number - 1]

    @property
    def authority(self) -> Authority:
        """The certificate authority that signs the HTTPS servers' certificates."""
        if self._authority is None:
            raise Failed("find the lab's authority", "the lab has not been built")
        return self._authority

    @property
    def device(self) -> Device:
        """egressd in the router."""
        return self.box(1)

    def box(self, number: int) -> Device:
        """Return egressd in the router of that number, from 1."""
        if number not in self._devices:
            raise Failed("find the lab's egressd", "start_egressd has not been called")
        return self._devices[number]

    @property
    def api(self) -> Api:
        """egressd's API."""
        return self.device.api

    # --- Building. ---

    def __enter__(self) -> Self:
        try:
            self.build()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def build(self) -> None:
        """Build the lab. Raises Failed with the names of missing or unusable parts."""
        if os.geteuid() != 0:
            raise Failed("build the lab", "network namespaces need root")
        if self.name in netns.labs():
            raise Failed("build the lab", f"there is one called {self.name} already")
        if unknown := [kind for kind in self.spec.nodes if kind not in nodes.RECIPES]:
            known = ", ".join(nodes.RECIPES)
            raise Invalid(f"nodes must be among {known}, not {', '.join(unknown)}")
        recipes = [nodes.recipe(kind, "192.0.2.1", self.folder) for kind in self.spec.nodes]
        require("ip", "nft", "sysctl", *sorted({p for r in recipes for p in r.programs}))
        self.folder.mkdir(parents=True)
        ownership.note(self.name, detached=False)
        self._authority = Authority(self.folder)
        self.topology.build()
        for host in self._hosts:
            if host.role not in ("spoofer", "guest1", "guest2"):
                host.start()
        servers = self.internet.configure(self.authority, self.spec.zone)
        self._program("internet", servers, self.folder / "servers.log").start()
        for kind in self.spec.nodes:
            self.add_node(kind)
        self.internet.servers.wait_ready()

    def remove(self) -> None:
        """Stop and remove everything. Safe to repeat."""
        problem: Failed | None = None
        for device in self._devices.values():
            try:
                device.stop()
            except Failed as error:
                problem = error
        for host in self._hosts:
            host.close()
        for program in self._programs:
            program.kill()
        for tunnel in self._tunnels:
            tunnel.remove()
        netns.remove_lab(self.name)
        if problem is not None:
            raise problem

    def detach(self) -> None:
        """Let the lab outlive this process; `netns.remove_lab` ends it."""
        ownership.note(self.name, detached=True)
        for host in self._hosts:
            host.close()

    # --- Programs. ---

    @contextmanager
    def plain_router(self) -> Iterator[None]:
        """Let the router forward and masquerade like any box without egressd.

        The positive control: a probe must see all traffic that it lets through.
        """
        self.router.run("nft", "-f", "-", stdin=_CONTROL_RULES)
        self._forward(True)
        try:
            yield
        finally:
            self._forward(False)
            self.router.run("nft", "delete", "table", "ip", _CONTROL_TABLE)

    def _forward(self, on: bool) -> None:
        for name in ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"):
            self.router.sysctl(name, int(on))

    def start_egressd(
        self, settings: Settings | None = None, environment: Mapping[str, str] | None = None
    ) -> Device:
        """Start egressd in the router and wait until it is healthy.

        `settings` override the configuration file's tables, `environment` its variables.
        """
        device = self.install(1, settings, environment)
        device.start()
        return device

    def install(
        self,
        box: int,
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Device:
        """Return egressd in the router of that number, with its configuration; it is not started.

        The settings of the first call stay.
        """
        if box not in self._devices:
            lan = ["lan0", "lan1"] if self.spec.second_lan else ["lan0"]
            self._devices[box] = Device(
                self.routers[box - 1],
                self.folder / ("egressd" if box == 1 else f"egressd{box}"),
                lan=lan,
                wan=[w.interface for w in self._wans],
                trusted=self.authority.file,
                settings=settings or {},
                environment=environment or {},
                address=str(plan.lan_address(self.spec, box)),
            )
        return self._devices[box]

    def add_node(self, kind: str, name: str = "") -> Node:
        """Start a node of a kind of `egressd_lab.nodes` in a namespace of its own."""
        name = name or kind
        address = nodes.node_address(len(self.nodes))
        folder = self.folder / f"node-{name}"
        folder.mkdir()
        made = nodes.recipe(kind, address, folder)
        require(*made.programs)
        for file, text in made.files.items():
            (folder / file).write_text(text)
        self.topology.add_node(name, [address])
        for file, text in made.etc.items():
            self.topology.write_etc(f"node-{name}", file, text)
        program = self._program(f"node-{name}", made.argv, folder / "log")
        node = Node(name, address, made.protocol, made.clash, program)
        self.nodes[name] = node
        self.start_node(node)
        return node

    def start_node(self, node: Node) -> None:
        """Start a node (again) and wait until it accepts connections."""
        node.program.start()
        self._wait_listening(node.program, node.address, node.port)

    def add_line_server(self) -> LineServer:
        """Start the next VPN server. Raises Failed if programs are missing."""
        require(*lines.PROGRAMS)
        server = LineServer(len(self.line_servers) + 1)
        role = f"node-{server.name}"
        folder = self.folder / role
        folder.mkdir()
        self.topology.add_node(server.name, [server.address], forwards=True)
        way = f"{server.assigned_address}/32 via {server.address} dev {server.link} onlink"
        self.topology.ip("internet", [f"route add {way}"])
        for file, text in server.etc().items():
            self.topology.write_etc(role, file, text)
        self._program(role, server.argv(folder), folder / "log").start()
        self.line_servers.append(server)
        return server

    def add_wireguard(self, *, in_kernel: bool = False) -> WireGuardServer:
        """Start a WireGuard server, wireguard-go or the kernel's own. Raises Failed if programs or
        the kernel's module are missing.
        """
        require(wireguard.TOOL, *(() if in_kernel else (wireguard.GO,)))
        address = nodes.node_address(_WIREGUARD_NUMBER)
        folder = self.folder / "node-wireguard"
        folder.mkdir()
        self.topology.add_node("wireguard", [address], forwards=True)
        host = Host(self.name, "node-wireguard", folder)
        server = WireGuardServer(address, host, folder, in_kernel=in_kernel)
        self._tunnels.append(server)
        server.start()
        return server

    def add_engine_node(
        self, name: str, inbounds: Sequence[dict[str, Any]], network: int = 0
    ) -> list[str]:
        """Start one sing-box with an inbound per address. Return the addresses, in the inbounds'
        order.

        Inbounds are as sing-box documents them, without ``tag`` and ``listen``; each leaves by its
        own address. Several such nodes take `network` 0, 1, … so that their addresses (198.18.N.1
        and on) differ.
        """
        base = plan.ENGINE_NETWORK[network << 8]
        addresses = [str(base + 1 + n) for n in range(len(inbounds))]
        self.topology.add_node(name, addresses)
        self.start_engine(f"node-{name}", node_document(inbounds, addresses))
        return addresses

    def start_engine(self, role: str, document: dict[str, Any]) -> Program:
        """Start a sing-box with the given configuration in the namespace of `role`, and wait until
        it listens.
        """
        number = len(self._programs)
        config = self.folder / f"engine{number}.json"
        config.write_text(json.dumps(document))
        argv = [sys.executable, "-m", "egressd_lab.engine", str(config)]
        program = self._program(role, argv, self.folder / f"engine{number}.log")
        program.start()
        deadline = time.monotonic() + _LISTEN_SECONDS
        while not started_file(config).exists():
            if not program.running or time.monotonic() > deadline:
                raise Failed(f"start the engine in {role}", program.tail())
            time.sleep(0.01)
        return program

    def _program(self, role: str, argv: Sequence[str], log: Path) -> Program:
        program = Program(netns.namespace(self.name, role), argv, log)
        self._programs.append(program)
        return program

    def _wait_listening(self, program: Program, address: str, port: int) -> None:
        deadline = time.monotonic() + _LISTEN_SECONDS
        while True:
            with suppress(Failed):
                self.internet.socket(address, port, 1.0).close()
                return
            if not program.running or time.monotonic() > deadline:
                raise Failed(f"start {program.argv[0]} at {address}:{port}", program.tail())
            time.sleep(0.01)
