"""The kernel's side of a plan: what the machine has, and the tables made for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from typing import Final

import structlog

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed, Invalid
from egressd.model.facts import Facts
from egressd.model.names import DIRECT
from egressd.model.plan import Change, Egress, Plan
from egressd.netd import surroundings
from egressd.netd.kernel import facts as kernel_facts
from egressd.netd.kernel import (
    firewalls,
    lookup,
    neighbours,
    routes,
    sysctl,
)
from egressd.netd.kernel.fast_path import FastPath
from egressd.netd.kernel.fast_path.others import told
from egressd.netd.kernel.nft import Nft
from egressd.planner import exits, local, routing, sysctls
from egressd.planner import nft as script
from egressd.planner.bounds import Bounds
from egressd.planner.groups import Choice
from egressd.planner.lines.address import Taken, objection
from egressd.planner.nft import Crowd, Greedy
from egressd.planner.registry import MARK_DIRECT, MARK_ENGINE
from egressd.planner.resolvers import Resolver, asked, read_resolver
from egressd.planner.sets import Elements
from egressd.planner.shaping import is_limited
from egressd.planner.topology import (
    Topology,
    discover,
    interface_mark,
    is_line,
    recalled,
    uplink,
)

log = structlog.get_logger()

_BOUNDS: Final = Bounds()
_UNKNOWN = ""
"""Chains of which nothing is known: no table lists so."""
_SHORT = 4096
"""Characters of an nft script that is carried out at once (under a millisecond); longer ones
go to a thread."""


class Machine:
    """Routes, policy rules, sysctls and the nftables table, converged to a plan."""

    def __init__(
        self,
        nft: Nft,
        roles: InterfaceRoles,
        engine_uid: int,
        bounds: Bounds = _BOUNDS,
        api_ports: Collection[int] = (),
    ) -> None:
        """`api_ports` are those that the API listens at."""
        self._api_ports = api_ports
        self.bounds = bounds
        """What one client may have."""
        self.fast_path = FastPath()
        self.facts = Facts()
        self.topology = Topology()
        self.problems: tuple[str, ...] = ()
        """What the kernel would not take, in plain words."""
        self.obstacles: tuple[str, ...] = ()
        """What other programs' firewalls may keep from clients, in plain words."""
        self.handed_out: Mapping[str, tuple[str, ...]] = {}
        """VPN line -> the resolvers that its peer hands out, and that may be asked."""
        self.silent: Set[Resolver] = frozenset()
        """Resolvers that do not answer."""
        self.outdated: Collection[str] = ()
        """VPN lines that are still up with settings that no longer hold: nobody leaves by them."""
        self.taken = Taken()
        """Addresses that no VPN line may have: nobody leaves by one that has."""
        self.ruled_locals: tuple[str, ...] = ()
        """Local networks with clients in them, as of the last `route`. To find them takes a look at
        all rules, so that it is not done for a change of others."""
        self.greedy: Collection[Greedy] = ()
        """Clients whose further flows the engine takes none of."""
        self.crowd = Crowd()
        """Callers that no proxy service takes more connections of."""
        self.choices: Mapping[str, Choice] = {}
        """Group key -> where its clients go: what the next load or update says of them."""
        self._nft = nft
        self._roles = roles
        self._engine_uid = engine_uid
        self._elements: Elements = {}
        self._chains: str | None = None
        """The chains as nft listed them when they were loaded last."""
        self._is_doubtful = False

    def look(self) -> None:
        """See what the machine has now."""
        self.facts = kernel_facts.read()
        before, self.topology = self.topology, discover(self.facts, self._roles, self.topology)
        if turned := set(before.lans) - set(self.topology.lans):
            log.warning("no LAN any more, since it has a default route", interfaces=sorted(turned))

    def route(self, plan: Plan, egresses: Mapping[str, Egress]) -> None:
        """Converge routes, policy rules (the floor among them) and sysctls. Repeat-safe."""
        self.ruled_locals = local.ruled(plan, self.topology)
        desired = routing.desired(
            egresses,
            facts=self.facts,
            topology=self.topology,
            roles=self._roles,
            engine_uid=self._engine_uid,
            ruled_locals=self.ruled_locals,
            resolvers=asked(plan, self.handed_out),
        )
        settled = sysctl.write(sysctls.wanted(self.topology, egresses))
        synced = routes.sync(desired.routes, desired.rules)
        # Who asks for a far end's address means another machine; the line's own table needs none.
        listed = {(r.interface, r.destination) for r in self.facts.routes if is_line(r.interface)}
        routes.withdraw_peers(
            interface
            for name, interface in self.facts.interfaces.items()
            if any((name, IPv4Network(peer)) in listed for peer in interface.peers)
        )
        routes.withdraw_advertised(self.topology.without_router6)
        self.problems = (
            *settled.problems,
            *synced.problems,
            *desired.problems,
            *surroundings.problems(self.facts, self.topology),
            *firewalls.legacy_obstacles(self.topology),
        )

    def forward(self) -> None:
        """Let the machine forward packets: the last step of putting up the guard.

        Not before there is a LAN to guard: one that is still to be found, since the configuration
        names none, would be forwarded unruled from its coming up until it is seen.
        """
        if self.topology.lans:
            sysctl.write(sysctls.forwarding())

    def exits(self, plan: Plan) -> dict[str, str]:
        """WAN, interface of the plan or ``DIRECT`` -> why nothing leaves by it; VPN lines tell
        themselves.
        """
        wans = filter(None, (*self.topology.wans, *self.topology.seen_wans))
        names = dict.fromkeys(name for name in (*wans, *plan.egresses) if not is_line(name))
        closed = {name: exits.why_closed(name, self.facts, self._roles) for name in names}
        closed[DIRECT] = exits.why_direct_closed(self.facts, self.topology)
        if self.facts.policy_rules:
            marks = {
                name: interface_mark(name, egress.number) for name, egress in plan.egresses.items()
            }
            marks[DIRECT] = MARK_DIRECT
            for name, mark in marks.items():
                closed[name] = closed.get(name) or self._why_taken(mark)
        return closed

    def why_unserved(self) -> str:
        """Why clients are not handed to the engine; empty when they are."""
        return self._why_taken(MARK_ENGINE, is_local=True) if self.facts.policy_rules else ""

    def _why_taken(self, mark: int, *, is_local: bool = False) -> str:
        """Who keeps what bears `mark` from going its way, as the kernel has it."""
        for lan, network in self.topology.lan_networks:
            interface = self.facts.interfaces.get(lan)
            own = self.topology.router_addresses
            client = next((host for host in network.hosts() if host not in own), None)
            if interface is None or not interface.is_up or client is None:
                continue
            try:
                way = lookup.way_of(client, interface.index, mark)
            except OSError:
                return exits.TAKEN
            if way.is_local != is_local:
                return exits.TAKEN
        return ""

    def is_open(self, way: str) -> bool:
        """Whether anything may leave by an interface, or by ``DIRECT``."""
        if way == DIRECT:
            return not exits.why_direct_closed(self.facts, self.topology)
        return way in self.topology.routable

    def why_unreached(self, way: str) -> str:
        """Why nothing answers by an interface or ``DIRECT``, where that is for its gateway."""
        routes = exits.direct_routes(self.facts) if way == DIRECT else ()
        hops = [(route.interface, route.gateway) for route in routes]
        if way != DIRECT:
            hops = [(way, uplink(way, self.facts, self._roles).gateway)]
        for name, gateway in hops:
            interface = self.facts.interfaces.get(name)
            if interface is None or gateway is None:
                continue
            with suppress(OSError):
                if neighbours.is_unanswered(interface.index, gateway):
                    return f"the gateway {gateway} of {name} does not answer"
        return ""

    def missing_roles(self) -> tuple[str, ...]:
        """A sentence for each role that no interface has."""
        return tuple(exits.missing_roles(self.topology, self._roles))

    def line_addresses(self) -> set[IPv4Address]:
        """The machine's own addresses that are VPN lines'."""
        lines = (found for name, found in self.facts.interfaces.items() if is_line(name))
        return {address.ip for line in lines for address in line.addresses}

    def mapped_ports(self) -> set[int]:
        """The ports of engine instances that the kernel sends clients to."""
        return {int(port) for port in self._elements.get("ports", {}).values()}

    def served(self) -> set[int]:
        """The marks of the targets whose engine instances the kernel sends clients to."""
        return {int(mark, 16) for mark in self._elements.get("ports", {})}

    def has_table(self) -> bool:
        """Whether our table is there, whatever is in it."""
        return self._nft.chains() is not None

    def recall(self) -> None:
        """Take what an earlier netd knew of LANs, WANs and resolvers from its table, and its fast
        path.
        """
        self.fast_path.recall()
        names = ("lansrc", "inmark", "outside", "localif", "substitutes")
        lansrc, inmark, outside, localif, substitutes = (
            self._nft.elements(name) or {} for name in names
        )
        try:
            self.topology = recalled(lansrc, inmark, outside, localif)
            self.silent = frozenset(map(read_resolver, substitutes))
        except ValueError as error:
            log.warning("another program has changed our table", error=str(error))

    def hold_translation(self) -> None:
        """Have known flows stay translated while another program has flushed our table."""
        try:
            self._nft.hold_translation()
        except Failed as error:
            log.warning("a flushed ruleset will cut connections", error=str(error))

    async def load(self, plan: Plan, ports: Mapping[str, int]) -> None:
        """Say everything anew, in one transaction. Raises Failed, and then nothing changed."""
        wanted = self._wanted(plan, ports)
        text = script.load(wanted, self.bounds)
        failure = None
        try:
            self.fast_path.follow(plan, self.facts, self.topology, self._roles)
        except Failed as error:
            failure = error  # who is to be blocked is blocked as far as can be
        try:
            await self._transact(text)
        except Failed as error:
            # Another version's table may have sets of other types, which are not to be changed.
            log.warning("loading a table anew, since this one did not fit", cause=error.cause)
            await self._transact(script.afresh(text))
        del wanted["hosts"]
        self._elements = wanted
        self._is_doubtful = False
        self._chains = _UNKNOWN
        with suppress(Failed):  # what is loaded is in force; `is_intact` will say that it is not
            self._chains = await asyncio.to_thread(self._nft.chains)
        with suppress(Failed):  # it is a hint: what is loaded is in force without it
            self.obstacles = await asyncio.to_thread(firewalls.obstacles, self._nft, self.topology)
        if failure is not None:
            raise failure
        self.fast_path.settle()

    async def update(self, plan: Plan, ports: Mapping[str, int], hosts: str = "") -> None:
        """Change what differs, and the `hosts` script with it, in one transaction.

        Raises Failed, and then nothing changed.
        """
        wanted = self._wanted(plan, ports, hosts=False)
        if self._is_doubtful or script.needs_load(self._elements, wanted):
            await self.load(plan, ports)
            return
        self.fast_path.follow(plan, self.facts, self.topology, self._roles, everybody=False)
        if text := script.INET.update(self._elements, wanted) + hosts:
            await self._transact_or_load(text, plan, ports)
            self._elements = wanted
        self.fast_path.settle()

    async def move(self, plan: Plan, ports: Mapping[str, int], hosts: str) -> None:
        """Carry out a script that only moves hosts: O(change). Raises Failed."""
        if self._is_doubtful:
            await self.load(plan, ports)
            return
        if hosts:
            await self._transact_or_load(hosts, plan, ports)
        self.fast_path.settle()

    def prepare(self, plan: Plan, clients: Collection[str]) -> None:
        """Have known flows of clients whose rule or limit has changed go where the plan says now,
        or the long way, before anything else of the change is in force. Raises Failed.
        """
        self.fast_path.move(plan, clients)

    def is_about_local_clients(self, change: Change) -> bool:
        """Whether the change touches clients in local networks: their floor, and more than one
        element.
        """
        return local.touches(change, self.topology)

    def doubt(self) -> None:
        """The table may say what the plan does not: the next update or move loads all anew."""
        self._is_doubtful = True

    def beside(self, plan: Plan) -> tuple[str, ...]:
        """Say in plain words what other programs' traffic control means for the plan."""
        others, has_fast_path = self.fast_path.others, not self.fast_path.obstacle
        in_the_way = others.diverted | others.passed
        has_limits = in_the_way and any(map(is_limited, plan.limits.values()))
        limited = self.topology.lans if has_limits else ()
        return tuple(told(others, has_fast_path=has_fast_path, limited=limited))

    async def shield(self, ports: Iterable[int]) -> None:
        """Close ports to all but the LAN, ahead of the update that says so. Raises Failed."""
        await self._transact(script.shield(ports))

    async def locate(self, client: str) -> int:
        """The mark that the kernel's own tables give a client with a rule now; else 0.

        Raises Invalid when `client` is no address, Failed when the tables cannot be read.
        """
        try:
            address = str(IPv4Address(client))  # it becomes part of a script
        except ValueError:
            raise Invalid("client must be an IPv4 address") from None
        for name in ("hosts", "nets"):
            mark = await asyncio.to_thread(self._nft.value, name, address)
            if mark is not None:
                return int(mark, 16)
        return 0

    def members(self, client: str) -> dict[str, str]:
        """Group key -> the instance that a client's new flows are sent to, where that is known."""
        found = ((key, choice.of_client(client)) for key, choice in self.choices.items())
        return {key: instance for key, instance in found if instance}

    async def is_intact(self) -> bool:
        """Whether the chains are as they were loaded."""
        return await asyncio.to_thread(self._nft.chains) == self._chains

    def host_script(self, plan: Plan, change: Change) -> str:
        """What moves the hosts of `change`, which starts from `plan`."""
        return script.host_update(plan.hosts, change) if plan.floor.is_ruled else ""

    def _wanted(self, plan: Plan, ports: Mapping[str, int], *, hosts: bool = True) -> Elements:
        return script.elements(
            plan,
            self.topology,
            ports,
            hosts=hosts,
            choices=self.choices,
            handed_out=self.handed_out,
            silent=self.silent,
            outdated=(*self.outdated, *self._refused()),
            ruled_locals=self.ruled_locals,
            greedy=self.greedy,
            api_ports=self._api_ports,
            crowd=self.crowd,
        )

    def _refused(self) -> Iterator[str]:
        """VPN lines with addresses that they must not have."""
        for name in self.facts.interfaces:
            if is_line(name) and objection(name, self.facts, self.taken):
                yield name

    async def _transact_or_load(self, text: str, plan: Plan, ports: Mapping[str, int]) -> None:
        try:
            await self._transact(text)
        except Failed as error:
            # The kernel's sets are not what we left there.
            log.warning("loading all sets, since a change did not fit them", cause=error.cause)
            await self.load(plan, ports)

    async def _transact(self, text: str) -> None:
        if len(text) < _SHORT:
            self._nft.run(text)
        else:
            await asyncio.to_thread(self._nft.run, text)
