"""The kernel's side of a plan: the facts of the machine, and the tables made for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from typing import Final

import structlog

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed, Invalid
from egressd.model.facts import Facts
from egressd.model.names import DIRECT, INTERFACE_PREFIX
from egressd.model.plan import Change, Egress, Plan
from egressd.model.wording import NONE, Sentence, say
from egressd.netd.dataplane import network_warnings
from egressd.netd.dataplane.lease import Lease
from egressd.netd.kernel import (
    firewalls,
    lookup,
    neighbours,
    routes,
    sysctl,
)
from egressd.netd.kernel import machine_facts as kernel_facts
from egressd.netd.kernel.cut_flows import CutFlows
from egressd.netd.kernel.fast_path import FastPath
from egressd.netd.kernel.fast_path.others import told
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.set_elements import SWAPPED_MAX
from egressd.planner import egress_problems, local, routing, sysctls
from egressd.planner import nft as script
from egressd.planner.bounds import Bounds
from egressd.planner.groups import Choice
from egressd.planner.lease_rules import LEASE
from egressd.planner.lines.address import Taken, objection
from egressd.planner.nft import Crowd, Greedy, HostUpdate
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
_NO_HOSTS: Final = HostUpdate()
_UNKNOWN = ""
"""Placeholder for unknown chains: nft never lists a table as an empty text."""
_SHORT = 4096
"""Characters at most of an nft script that is carried out at once (under a millisecond); a longer
script goes to a thread."""


class KernelState:
    """Routes, policy rules, sysctls and the nftables table, converged to a plan."""

    def __init__(
        self,
        nft: Nft,
        roles: InterfaceRoles,
        engine_uid: int,
        bounds: Bounds = _BOUNDS,
        api_ports: Collection[int] = (),
    ) -> None:
        """`api_ports` are the ports that the API listens on."""
        self._api_ports = api_ports
        self.bounds = bounds
        """The bounds of one client."""
        self.fast_path = FastPath()
        self.cut_flows = CutFlows()
        self.facts = Facts()
        self.topology = Topology()
        self.problems: tuple[Sentence, ...] = ()
        """Sentences about settings that the kernel refused, and the machine's surroundings."""
        self.firewall_problems: tuple[Sentence, ...] = ()
        """Sentences about other programs' firewalls that may block clients' traffic."""
        self.peer_dns: Mapping[str, tuple[str, ...]] = {}
        """VPN line -> the resolvers that its peer hands out and that may be used."""
        self.silent: Set[Resolver] = frozenset()
        """Resolvers that do not answer."""
        self.outdated: Collection[str] = ()
        """VPN lines that are still up with outdated settings: no client traffic leaves by them."""
        self.taken = Taken()
        """Addresses that no VPN line may have: no client traffic leaves by a line that has one."""
        self.ruled_locals: tuple[str, ...] = ()
        """Local networks that contain clients, as of the last `route`. Finding them takes a look at
        all rules, so a change that touches no local client does not repeat it."""
        self.greedy: Collection[Greedy] = ()
        """Clients whose further flows the engine does not accept."""
        self.crowd = Crowd()
        """Callers whose further connections no proxy service accepts."""
        self.choices: Mapping[str, Choice] = {}
        """Group key -> the nodes of its clients, for the next load or update."""
        self._nft = nft
        self._roles = roles
        self._engine_uid = engine_uid
        self._elements: Elements = {}
        self._chains: str | None = None
        """The chains as nft listed them after the last load."""
        self._needs_load = False
        self._has_gate = False
        """True if the table may have a gate."""
        self._lease = Lease(lambda until_ms: self.fast_path.allow_until(until_ms * 1_000_000))

    def refresh(self) -> None:
        """Read the machine's present facts, and derive the topology."""
        self.facts = kernel_facts.read()
        before, self.topology = self.topology, discover(self.facts, self._roles, self.topology)
        if turned := set(before.lans) - set(self.topology.lans):
            log.warning(
                "interface is no longer a LAN: it has a default route", interfaces=sorted(turned)
            )

    def route(self, plan: Plan, egresses: Mapping[str, Egress]) -> None:
        """Converge routes, policy rules (default-deny rules too) and sysctls. Repeat-safe."""
        self.ruled_locals = local.ruled(plan, self.topology)
        desired = routing.desired(
            egresses,
            facts=self.facts,
            topology=self.topology,
            roles=self._roles,
            engine_uid=self._engine_uid,
            ruled_locals=self.ruled_locals,
            resolvers=asked(plan, self.peer_dns),
        )
        written = sysctl.write(sysctls.wanted(self.topology, egresses))
        synced = routes.sync(desired.routes, desired.rules)
        # A packet to the address of a line's far end is meant for another machine; the line's own
        # table needs no such route.
        listed = {(r.interface, r.destination) for r in self.facts.routes if is_line(r.interface)}
        routes.withdraw_peers(
            interface
            for name, interface in self.facts.interfaces.items()
            if any((name, IPv4Network(peer)) in listed for peer in interface.peers)
        )
        routes.withdraw_advertised(self.topology.without_router6)
        self.problems = (
            *written.problems,
            *synced.problems,
            *desired.problems,
            *network_warnings.problems(self.facts, self.topology),
            *firewalls.legacy_problems(self.topology),
        )

    def forward(self) -> None:
        """Let the machine forward packets: the last step of setting up the guard.

        Do nothing while there is no LAN to guard. If the configuration names no LAN, netd has to
        find it: packets of a LAN that comes up would be forwarded without rules until netd sees it.
        """
        if self.topology.lans:
            sysctl.write(sysctls.forwarding())

    def egress_problems(self, plan: Plan) -> dict[str, Sentence]:
        """Return, for each WAN, interface of the plan and ``DIRECT``, the reason why no traffic
        leaves by it; empty if it is open. VPN lines are left out: they report their own state.
        """
        wans = filter(None, (*self.topology.wans, *self.topology.seen_wans))
        names = dict.fromkeys(name for name in (*wans, *plan.egresses) if not is_line(name))
        closed = {name: egress_problems.why_closed(name, self.facts, self._roles) for name in names}
        closed[DIRECT] = egress_problems.why_direct_closed(self.facts, self.topology)
        if self.facts.policy_rules:
            marks = {
                name: interface_mark(name, egress.number) for name, egress in plan.egresses.items()
            }
            marks[DIRECT] = MARK_DIRECT
            for name, mark in marks.items():
                closed[name] = closed.get(name) or self._why_taken(mark)
        return closed

    def why_unserved(self) -> Sentence:
        """Return the reason why clients do not reach the engine; empty if they do."""
        return self._why_taken(MARK_ENGINE, is_local=True) if self.facts.policy_rules else NONE

    def _why_taken(self, mark: int, *, is_local: bool = False) -> Sentence:
        """Return `egress_problems.TAKEN` if the kernel routes packets with `mark` elsewhere; empty
        if not.
        """
        for lan, network in self.topology.lan_networks:
            interface = self.facts.interfaces.get(lan)
            own = self.topology.router_addresses
            client = next((host for host in network.hosts() if host not in own), None)
            if interface is None or not interface.is_up or client is None:
                continue
            try:
                route = lookup.route_of(client, interface.index, mark)
            except OSError:
                return egress_problems.TAKEN
            if route.is_local != is_local:
                return egress_problems.TAKEN
        return NONE

    def is_open(self, egress: str) -> bool:
        """True if traffic may leave by an interface, or by ``DIRECT``."""
        if egress == DIRECT:
            return not egress_problems.why_direct_closed(self.facts, self.topology)
        return egress in self.topology.routable

    def is_closed(self, member: str) -> bool:
        """True if no traffic can leave by a member of a group that the kernel routes."""
        name = member.removeprefix(INTERFACE_PREFIX)
        return not self.is_open(name) or name in self.outdated

    def why_unreached(self, egress: str) -> Sentence:
        """Return a sentence if a gateway of an interface or of ``DIRECT`` does not answer; empty
        if none is known to be silent.
        """
        routes = egress_problems.direct_routes(self.facts) if egress == DIRECT else ()
        hops = [(route.interface, route.gateway) for route in routes]
        if egress != DIRECT:
            hops = [(egress, uplink(egress, self.facts, self._roles).gateway)]
        for name, gateway in hops:
            interface = self.facts.interfaces.get(name)
            if interface is None or gateway is None:
                continue
            with suppress(OSError):
                if neighbours.is_unanswered(interface.index, gateway):
                    return say("gateway-silent", address=str(gateway), name=name)
        return NONE

    def missing_roles(self) -> tuple[Sentence, ...]:
        """Return a sentence for each role that no interface has."""
        return tuple(egress_problems.missing_roles(self.topology, self._roles))

    def line_addresses(self) -> set[IPv4Address]:
        """Return the machine's own addresses on VPN lines."""
        lines = (found for name, found in self.facts.interfaces.items() if is_line(name))
        return {address.ip for line in lines for address in line.addresses}

    def mapped_ports(self) -> set[int]:
        """Return the ports of engine instances that the kernel sends clients to."""
        return {int(port) for port in self._elements.get("ports", {}).values()}

    def served(self) -> set[int]:
        """Return the marks of the targets whose engine instances the kernel sends clients to."""
        return {int(mark, 16) for mark in self._elements.get("ports", {})}

    def keep_cut(self, keys: Collection[bytes]) -> bool:
        """`CutFlows.put`: a `KeepCut`."""
        return self.cut_flows.put(keys)

    def has_table(self) -> bool:
        """True if egressd's table exists; its content is not checked."""
        return self._nft.chains() is not None

    def load_previous(self) -> None:
        """Read an earlier netd's LANs, WANs, silent resolvers and cut flows from its table, and
        take over its fast path and its lease.
        """
        self.fast_path.load_previous()
        try:
            self.cut_flows.load_previous()
        except OSError as error:
            log.warning("cannot read the flows that were cut", error=str(error))
        self._has_gate = self._nft.elements(LEASE) is not None
        if self._has_gate:
            with suppress(OSError, Failed):  # the next renewal does not need it
                self._lease.load_previous()
        names = ("lansrc", "inmark", "outside", "localif", "substitutes")
        lansrc, inmark, outside, localif, substitutes = (
            self._nft.elements(name) or {} for name in names
        )
        try:
            self.topology = recalled(lansrc, inmark, outside, localif)
            self.silent = frozenset(map(read_resolver, substitutes))
        except ValueError as error:
            log.warning("another program changed the nftables table", error=str(error))

    def hold_translation(self) -> None:
        """Keep known flows translated while another program has flushed egressd's table."""
        try:
            self._nft.hold_translation()
        except Failed as error:
            log.warning(
                "cannot keep NAT state: a ruleset flush will break connections", error=str(error)
            )

    async def load(self, plan: Plan, ports: Mapping[str, int]) -> None:
        """Load the whole table anew, in one transaction. Raises Failed; nothing changes then."""
        wanted = self._wanted(plan, ports)
        is_gated = plan.policy.is_leased
        text = script.load(wanted, self.bounds, is_gated=is_gated, had_gate=self._has_gate)
        self._has_gate |= is_gated
        failure = None
        try:
            self._follow(plan)
        except Failed as error:
            failure = error  # the table is loaded all the same: it blocks the clients it can
        try:
            await asyncio.to_thread(self._load, text)
        except Failed as error:
            # A table of another version may have sets of other types, which cannot be changed.
            log.warning("table update failed; recreating the table", cause=error.cause)
            await asyncio.to_thread(self._load, script.afresh(text))
        self._has_gate = is_gated
        del wanted["hosts"]
        self._elements = wanted
        self._needs_load = False
        self._chains = _UNKNOWN
        with suppress(Failed):  # the table is in force; `is_intact` will have it loaded again
            self._chains = await asyncio.to_thread(self._nft.chains)
        with suppress(Failed):  # only a hint: the table is in force without it
            self.firewall_problems = await asyncio.to_thread(
                firewalls.problems, self._nft, self.topology
            )
        if failure is not None:
            raise failure
        self.fast_path.sync()
        if is_gated:
            await self._put_lease()

    async def update(
        self, plan: Plan, ports: Mapping[str, int], hosts: HostUpdate = _NO_HOSTS
    ) -> None:
        """Change the elements that differ, and `hosts`, in one transaction.

        Raises Failed; the table is then unchanged.
        """
        wanted = self._wanted(plan, ports, hosts=False)
        if self._needs_load or script.needs_load(self._elements, wanted):
            await self.load(plan, ports)
            return
        self._follow(plan, all_clients=False)
        if text := script.INET.update(self._elements, wanted) + hosts.script():
            await self._or_load(self._transact(text), plan, ports)
            self._elements = wanted
        self.fast_path.sync()

    async def move(self, plan: Plan, ports: Mapping[str, int], hosts: HostUpdate) -> None:
        """Carry out an update that only moves hosts: O(change). Raises Failed."""
        if self._needs_load:
            await self.load(plan, ports)
            return
        await self._or_load(self._move(hosts), plan, ports)
        self.fast_path.sync()

    def prepare(self, plan: Plan, clients: Collection[str], *, has_networks: bool) -> None:
        """Send known flows of clients whose rule or limit has changed by the new plan, or through
        the slow path, before anything else of the change is in force; with `has_networks` CIDR
        rules have changed, too. Raises Failed.
        """
        self.fast_path.move(plan, clients, has_networks=has_networks)

    def is_about_local_clients(self, change: Change) -> bool:
        """True if the change touches clients in local networks: it then touches their default-deny
        rules, and more than one element.
        """
        return local.touches(change, self.topology)

    def invalidate(self) -> None:
        """Mark the table as possibly different from the plan: the next update or move then loads it
        whole.
        """
        self._needs_load = True

    def beside(self, plan: Plan) -> tuple[Sentence, ...]:
        """Return sentences about the effect of other programs' traffic control on the plan."""
        others, has_fast_path = self.fast_path.others, not self.fast_path.problem
        in_the_way = others.diverted | others.passed
        has_limits = in_the_way and any(map(is_limited, plan.limits.values()))
        limited = self.topology.lans if has_limits else ()
        return tuple(told(others, has_fast_path=has_fast_path, limited=limited))

    async def restrict_to_lan(self, ports: Iterable[int]) -> None:
        """Close ports to all but the LAN, ahead of the update that does so. Raises Failed."""
        await self._transact(script.restrict_to_lan(ports))

    async def renew_lease(self, until_ms: int, plan: Plan) -> None:
        """Let clients through until then, in milliseconds of CLOCK_BOOTTIME, if they need a lease.

        It depends on nothing that a plan changes, so it need not wait for one that is being put in
        force. Raises Invalid, Failed.
        """
        await self._lease.renew(until_ms, is_gated=self._has_gate and plan.policy.is_leased)

    def lease_ms(self, plan: Plan) -> int | None:
        """Return the milliseconds that clients are let through for; None if they need no lease."""
        return self._lease.left_ms if plan.policy.is_leased else None

    async def _put_lease(self) -> None:
        """Write the lease to a table that may just have got its gate."""
        try:
            await self._lease.put()
        except Failed as error:
            log.warning("clients are blocked until the lease is renewed", error=str(error))

    async def locate(self, client: str) -> int:
        """Return the mark that the kernel's tables give a client with a rule now; else 0.

        Raises Invalid when `client` is no address, Failed when the tables cannot be read.
        """
        try:
            address = str(IPv4Address(client))  # checked, since it becomes part of a script
        except ValueError:
            raise Invalid("client must be an IPv4 address") from None
        for name in ("hosts", "nets"):
            mark = await asyncio.to_thread(self._nft.value, name, address)
            if mark is not None:
                return int(mark, 16)
        return 0

    def members(self, client: str) -> dict[str, str]:
        """Return, by group key, the instance that a client's new flows are sent to, if known."""
        found = ((key, choice.of_client(client)) for key, choice in self.choices.items())
        return {key: instance for key, instance in found if instance}

    async def is_intact(self) -> bool:
        """True if the chains are as they were loaded."""
        return await asyncio.to_thread(self._nft.chains) == self._chains

    def host_update(self, plan: Plan, change: Change) -> HostUpdate:
        """Return the update that moves the hosts of `change`, which starts from `plan`."""
        return script.host_update(plan.hosts, change) if plan.policy.is_ruled else _NO_HOSTS

    def _wanted(self, plan: Plan, ports: Mapping[str, int], *, hosts: bool = True) -> Elements:
        return script.elements(
            plan,
            self.topology,
            ports,
            hosts=hosts,
            choices=self.choices,
            peer_dns=self.peer_dns,
            silent=self.silent,
            outdated=self._closed_lines(),
            ruled_locals=self.ruled_locals,
            greedy=self.greedy,
            api_ports=self._api_ports,
            crowd=self.crowd,
        )

    def _follow(self, plan: Plan, *, all_clients: bool = True) -> None:
        """Lead known flows by the egresses that the table is about to have. Raises Failed."""
        self.fast_path.follow(
            plan,
            self.facts,
            self.topology,
            self._roles,
            self.choices,
            outdated=self._closed_lines(),
            all_clients=all_clients,
        )

    def _closed_lines(self) -> tuple[str, ...]:
        """Return the VPN lines that no client's packets may leave by: they have outdated settings,
        or addresses that they must not have.
        """
        refused = (
            name
            for name in self.facts.interfaces
            if is_line(name) and objection(name, self.facts, self.taken)
        )
        return (*self.outdated, *refused)

    async def _or_load(
        self, transaction: Awaitable[None], plan: Plan, ports: Mapping[str, int]
    ) -> None:
        try:
            await transaction
        except Failed as error:
            # The kernel's sets are not as netd left them.
            log.warning("set update failed; reloading all sets", cause=error.cause)
            await self.load(plan, ports)

    async def _move(self, hosts: HostUpdate) -> None:
        if max(len(hosts.stale), len(hosts.fresh)) <= SWAPPED_MAX:
            self._nft.move_hosts(hosts.stale, hosts.fresh)
        else:
            await self._transact(hosts.script())

    def _load(self, text: str) -> None:
        """Carry out `script.load`. Raises Failed."""
        with self.cut_flows.held() as elements:
            self._nft.run(script.with_cut(text, elements))

    async def _transact(self, text: str) -> None:
        if len(text) < _SHORT:
            self._nft.run(text)
        else:
            await asyncio.to_thread(self._nft.run, text)
