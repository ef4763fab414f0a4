"""Namespaces, links, addresses and routes of a lab.

```
client1 ─┐                          ┌─ wan1 ── isp1 ─┐            ┌─ node-socks5
client2 ─┼─ lan0 (router) ──────────┤                ├─ internet ─┼─ node-http
 crowd  ─┘                          └─ wan2 ── isp2 ─┘            └─ …
```

In one-arm use a namespace ``switch`` holds the bridge, and the router, the clients and the
internet's ``isp1`` are all plugged into it. The internet has routes back to the LANs' own
addresses, so a packet that leaks without NAT is answered and seen, not just lost.

Two boxes, ``router`` and ``router2``, are plugged into the bridges of the ``switch`` and of the
internet (``isp1``, …), and are linked by ``sync0``. Each has addresses of its own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from egressd.model.errors import Failed
from egressd_lab import spec as plan
from egressd_lab.netns import ETC_DIR, exec_argv, namespace, run_ip
from egressd_lab.spec import (
    LabSpec,
    Place,
    WanPlan,
    client_places,
    lan_address,
    router_role,
    sync_address,
    wan_plans,
)

_QUIET_IPV6 = (
    # Addresses are usable at once: no other host could have them (duplicate detection off).
    "net.ipv6.conf.all.accept_dad=0",
    "net.ipv6.conf.default.accept_dad=0",
)
_FORWARDING = (
    "net.ipv4.ip_forward=1",
    "net.ipv6.conf.all.forwarding=1",
    "net.ipv6.conf.all.keep_addr_on_down=1",
    "net.ipv6.conf.default.keep_addr_on_down=1",
)


class Topology:
    """The network of one lab, from the outside: the work of an installer."""

    def __init__(self, lab: str, spec: LabSpec) -> None:
        self.lab = lab
        self.spec = spec
        self.wans = wan_plans(spec)
        self.places = client_places(spec)
        self._boxes = range(1, spec.boxes + 1)

    def build(self) -> None:
        """Make everything but the nodes. Raises Failed with the error message of ``ip``."""
        roles = [*map(router_role, self._boxes), "internet"]
        roles += dict.fromkeys(p.role for p in self.places)
        if self.has_switch:
            roles.append("switch")
        for role in roles:
            self._add_namespace(role, _FORWARDING if role == "internet" else ())
        self._build_internet()
        for lan, gateway in self._lans():
            self._build_lan(lan, gateway)
        for box in self._boxes:
            for wan in wan_plans(self.spec, box):
                self.connect_wan(wan)
        if self.spec.boxes > 1:
            self._link("router", "sync0", "router2", "sync0")
            for box in self._boxes:
                address = f"{sync_address(box)}/{plan.SYNC_NETWORK.prefixlen}"
                self.ip(router_role(box), ["link set sync0 up", f"address add {address} dev sync0"])

    @property
    def has_switch(self) -> bool:
        """True if ``lan0`` is a bridge in a namespace of its own, and not in the router."""
        return self.spec.one_arm or self.spec.boxes > 1

    def power(self, box: int, *, is_on: bool) -> None:
        """Cut all cables of a box, as a power loss does, or plug them in again."""
        self.plug_lan(box, is_in=is_on)
        for wan in wan_plans(self.spec, box):
            self._plug(wan, is_in=is_on)
        self.plug_sync(is_in=is_on)

    def plug_sync(self, *, is_in: bool) -> None:
        """Plug the cable between two boxes in, or pull it out."""
        for each in map(router_role, self._boxes):
            self.ip(each, [f"link set sync0 {'up' if is_in else 'down'}"])

    def plug_lan(self, box: int, *, is_in: bool) -> None:
        """Plug a box's cable to the LAN in, or pull it out."""
        state = "up" if is_in else "down"
        self.ip("switch", [f"link set p-{router_role(box)} {state}"])

    def plug_wan(self, box: int, number: int, *, is_in: bool) -> None:
        """Plug a box's cable to a WAN in, or pull it out. WANs are counted from 1."""
        self._plug(wan_plans(self.spec, box)[number - 1], is_in=is_in)

    def _plug(self, wan: WanPlan, *, is_in: bool) -> None:
        self.ip("internet", [f"link set {_port(wan)} {'up' if is_in else 'down'}"])

    def ip(self, role: str, lines: Iterable[str]) -> None:
        """Run lines of ``ip -batch`` in the namespace of `role`."""
        run_ip("-n", namespace(self.lab, role), batch=lines)

    def write_etc(self, role: str, name: str, text: str) -> None:
        """Let the programs of a namespace see `text` as /etc/`name`; a script becomes
        executable.
        """
        file = ETC_DIR / namespace(self.lab, role) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        if text.startswith("#!"):
            file.chmod(0o755)

    def connect_wan(self, wan: WanPlan) -> None:
        """Plug a WAN in: the link, both ends' addresses, the routes over it."""
        if self.spec.one_arm:
            self._link("switch", f"p-{wan.far}", "internet", wan.far)
            self.ip("switch", [f"link set p-{wan.far} master lan0 up"])
        elif self.spec.boxes > 1:
            if wan.box == 1:
                self.ip("internet", [f"link add {wan.far} type bridge mcast_snooping 0"])
            self._link("internet", _port(wan), router_role(wan.box), wan.interface)
            self.ip("internet", [f"link set {_port(wan)} master {wan.far} up"])
        else:
            self._link("internet", wan.far, "router", wan.interface)
        self.raise_wan(wan)

    def raise_wan(self, wan: WanPlan) -> None:
        """Bring a WAN's ends up with their addresses and routes. Safe to repeat."""
        prefix6 = 64
        self.ip(
            "internet",
            [
                f"link set {wan.far} up",
                f"address replace {wan.gateway}/{wan.prefix} dev {wan.far}",
                f"address replace {wan.gateway6}/{prefix6} dev {wan.far}",
            ],
        )
        role = router_role(wan.box)
        if not self.spec.one_arm:
            self.ip(
                role,
                [
                    f"link set {wan.interface} up",
                    f"address replace {wan.address}/{wan.prefix} dev {wan.interface}",
                    f"address replace {wan.address6}/{prefix6} dev {wan.interface}",
                ],
            )
            if wan.number == wan.box == 1:
                self.ip("internet", self._ways_back(wan))
        self.ip(
            role,
            [
                f"route replace default via {gateway} dev {wan.interface} metric {wan.metric}"
                for gateway in (wan.gateway, wan.gateway6)
            ],
        )

    def add_node(self, name: str, addresses: list[str], *, forwards: bool = False) -> None:
        """Add a namespace ``node-<name>`` to the internet, with `addresses` on its ``eth0``."""
        role = f"node-{name}"
        self._add_namespace(role, _FORWARDING if forwards else ())
        self.write_etc(role, "resolv.conf", f"nameserver {plan.RESOLVERS['node']}\n")
        self._link("internet", f"to-{name}", role, "eth0")
        self.ip(
            "internet",
            [
                f"link set to-{name} up",
                *(
                    f"route add {address}/32 dev to-{name} src {plan.NODE_GATEWAY}"
                    for address in addresses
                ),
            ],
        )
        self.ip(
            role,
            [
                "link set eth0 up",
                *(f"address add {address}/32 dev eth0" for address in addresses),
                f"route add {plan.NODE_GATEWAY} dev eth0 src {addresses[0]}",
                f"route add default via {plan.NODE_GATEWAY} src {addresses[0]}",
            ],
        )

    def _add_namespace(self, role: str, sysctls: tuple[str, ...]) -> None:
        name = namespace(self.lab, role)
        run_ip("netns", "add", name)
        argv = exec_argv(name, ["sysctl", "-q", "-w", *_QUIET_IPV6, *sysctls])
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"set kernel parameters of {name}", done.stderr.strip())
        self.ip(role, ["link set lo up"])

    def _link(self, role: str, end: str, peer_role: str, peer_end: str) -> None:
        """Add a veth pair, with each end made in its own namespace."""
        run_ip(
            *("link", "add", "name", end, "netns", namespace(self.lab, role)),
            *("type", "veth", "peer", "name", peer_end),
            *("netns", namespace(self.lab, peer_role)),
        )

    def _build_internet(self) -> None:
        servers = (*plan.WEB_SERVERS, *plan.RESOLVERS.values(), plan.NODE_GATEWAY)
        self.ip(
            "internet",
            [
                *(f"address add {address}/32 dev lo" for address in servers),
                *(f"address add {address}/128 dev lo" for address in plan.SERVERS6),
            ],
        )
        for role in map(router_role, self._boxes):
            self.write_etc(role, "resolv.conf", f"nameserver {plan.RESOLVERS['device']}\n")

    def _lans(self) -> list[tuple[str, str]]:
        """Return each LAN's interface and the router's address on it."""
        lans = [("lan0", str(plan.LAN_ADDRESS))]
        if self.spec.second_lan:
            lans.append(("lan1", str(plan.GUEST_NETWORK[1])))
        return lans

    def _build_lan(self, lan: str, gateway: str) -> None:
        prefix = self.spec.lan_prefix if lan == "lan0" else plan.GUEST_NETWORK.prefixlen
        has_switch = self.has_switch and lan == "lan0"
        bridge_role = "switch" if has_switch else "router"
        # No snooping: without a querier it would hold back IPv6's neighbour discovery.
        self.ip(bridge_role, [f"link add {lan} type bridge mcast_snooping 0", f"link set {lan} up"])
        for box in self._boxes:
            role, own = router_role(box), gateway if box == 1 else ""
            if has_switch:
                self._link("switch", f"p-{role}", role, lan)
                self.ip("switch", [f"link set p-{role} master {lan} up"])
            if self.spec.boxes > 1:
                own = str(lan_address(self.spec, box))
            self.ip(role, [f"link set {lan} up", f"address add {own}/{prefix} dev {lan}"])
        if lan == "lan0":
            self.ip("router", [f"address add {plan.LAN6}1/64 dev {lan}"])
        places: dict[str, list[Place]] = {}
        for place in self.places:
            if place.lan == lan:
                places.setdefault(place.role, []).append(place)
        for role, group in places.items():
            self.write_etc(role, "resolv.conf", f"nameserver {gateway}\n")
            self._link(bridge_role, f"p-{role}", role, "eth0")
            self.ip(bridge_role, [f"link set p-{role} master {lan} up"])
            self.ip(role, _client_lines(group, gateway, prefix))

    def _ways_back(self, wan: WanPlan) -> list[str]:
        """Return the internet's routes to the LANs' own addresses, for packets that leak without
        NAT.
        """
        return [
            f"route replace 10.77.0.0/16 via {wan.address} dev {wan.far}",
            f"route replace {plan.GUEST_NETWORK} via {wan.address} dev {wan.far}",
            f"route replace {plan.LAN6}/64 via {wan.address6} dev {wan.far}",
        ]


def _port(wan: WanPlan) -> str:
    """Return the internet's port for a box on a WAN that two boxes have."""
    return f"p-{wan.far}-{wan.box}"


def _client_lines(places: list[Place], gateway: str, prefix: int) -> list[str]:
    lines = ["link set eth0 up"]
    for place in places:
        lines.append(f"address add {place.address}/{prefix} dev eth0")
        if place.address6:
            lines.append(f"address add {place.address6}/64 dev eth0")
            lines.append(f"route add default via {plan.LAN6}1 dev eth0")
    lines.append(f"route add default via {gateway} dev eth0 src {places[0].address}")
    return lines
