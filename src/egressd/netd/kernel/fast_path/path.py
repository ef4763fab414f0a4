"""Keeps the fast path in step with the plan."""

from __future__ import annotations

import errno
import math
import os
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Address
from typing import Final

import structlog

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed
from egressd.model.facts import Facts
from egressd.model.messages import RuleCount
from egressd.model.plan import Plan
from egressd.netd.kernel import sysctl, uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import elements, others, program, tracking
from egressd.netd.kernel.fast_path.counts import FlowCounts
from egressd.netd.kernel.fast_path.hooks import NAME, Hooks
from egressd.netd.kernel.fast_path.maps import Maps, counts_of
from egressd.netd.kernel.fast_path.places import FastPlaces
from egressd.netd.kernel.fast_path.program import Entrance
from egressd.netd.kernel.netlink import NetlinkSocket
from egressd.planner.fast_networks import network_places
from egressd.planner.fast_path import (
    FastEgress,
    FastWay,
    Neighbourhood,
    fast_egresses,
    place,
    plain_lans,
    routed_groups,
)
from egressd.planner.groups import Choice
from egressd.planner.topology import Topology

log = structlog.get_logger()

_SETTINGS: Final = {
    # Connection tracking does not see every packet of a connection: it must not treat the next
    # packet that it sees as out of window, nor a reset 2 GiB later (nf_conntrack-sysctl.rst).
    "net/netfilter/nf_conntrack_tcp_be_liberal": "1",
    "net/netfilter/nf_conntrack_tcp_ignore_invalid_rst": "1",
    # It does not see acknowledgements either, and would drop a silent connection after five
    # minutes. An entry must be kept for at least 2 h 4 min (RFC 5382, REQ-5).
    "net/netfilter/nf_conntrack_tcp_timeout_unacknowledged": "7440",
}


_PASSING: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENOBUFS, errno.EINTR})
"""Errors of refusals that may be temporary."""
_REST_S: Final = 60.0
"""Seconds until the next attempt."""
_UNKNOWN_PROGRAM: Final = (None, 0)
_UNKNOWN: Final = FastEgress(0, IPv4Address(0), IPv4Address(0), ())


class FastPath:
    """The fast path of known flows in this network namespace.

    `follow` and `move` come before the nftables transaction that they belong to: a client whose
    egress changes takes the slow path from there on, where that transaction applies to it. `sync`
    comes after it. On a kernel that does not support it (`problem`) all packets take the slow
    path, and so do those of an interface where another program's rules must see all packets
    (`others`).
    """

    def __init__(self, *, has_tcx: bool = True) -> None:
        self.problem = ""
        """The reason why there is no fast path, in plain words; empty while there may be one."""
        self.others = others.Others({})
        """The last look at other programs' hooks on the interfaces of LANs and egresses."""
        self._hooks = Hooks(has_tcx=has_tcx)
        self._maps: Maps | None = None
        self._counts = FlowCounts()
        self._programs: dict[Entrance, int] = {}
        """Kind of interface -> the descriptor of its program."""
        self._hooked: dict[int, tuple[Entrance | None, int]] = {}
        """Interface -> its program, and the number that the kernel gave it."""
        self._places = FastPlaces()
        self._departed: set[str] = set()
        """Addresses whose rules are gone, until their counts are."""
        self._egresses: dict[FastWay, FastEgress] = {}
        self._groups: frozenset[int] = frozenset()
        """The marks of the groups whose clients may take the fast path."""
        self._neighbourhood = Neighbourhood(Facts(), Topology())
        self._made_for: tracking.Timeouts | None = None
        """The time-outs that the programs are made for."""
        self._is_gated = False
        """True if known flows need a lease."""
        self._deadline_ns = 0
        """The end of the lease, in nanoseconds of CLOCK_BOOTTIME."""
        self._may_try_at = 0.0
        """Earliest time of another attempt while there is a problem, on the monotonic clock."""
        self._is_open = False
        """True while egress interfaces have the classifier."""
        self._is_in_sync = False
        """True if nothing that the classifiers' places depend on may have changed."""

    # --- The route of each client. ------------------------------------------------------

    def load_previous(self) -> None:
        """Take over the state of an earlier netd, whose flows continue meanwhile."""
        with self._refusals():
            with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
                found = {}
                for index, _ in socket.if_nameindex():
                    if there := self._hooks.find(kernel, index):
                        found[index] = there
            if not found:
                return
            self._hooked = dict.fromkeys(found, _UNKNOWN_PROGRAM)
            self._maps = Maps.adopt(found.values())
            if self._maps is None:
                self._counts.take_over(counts_of(found.values()))
                self._close()
                return
            self._counts.use(self._maps)
            self._places.load(self._maps)
            self._is_gated = self._maps.lease is not None
            # The values of the egresses do not matter: all of them are written anew.
            ways = map(elements.read_way, self._maps.egresses)
            self._egresses = dict.fromkeys(ways, _UNKNOWN)

    def follow(
        self,
        plan: Plan,
        facts: Facts,
        topology: Topology,
        roles: InterfaceRoles,
        choices: Mapping[str, Choice],
        *,
        outdated: Collection[str] = (),
        all_clients: bool = True,
    ) -> None:
        """Lead the plan's clients by the present egresses, and those of groups by the members of
        their `choices`; `outdated` are VPN lines that they may not leave by. Without `all_clients`,
        clients are examined again only if the LANs have changed, or a group is of another kind.
        """
        self._gate(is_gated=plan.policy.is_leased)
        self._is_in_sync = False
        wanted = fast_egresses(plan, facts, topology, roles, choices, outdated=outdated)
        indexes = {egress.interface for egress in wanted.values()}
        indexes.update(lan.index for lan in plain_lans(facts, topology))
        names = {it.index: it.name for it in facts.interfaces.values() if it.index in indexes}
        self.others = others.Others(names)
        with self._refusals(), NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
            self.others = others.find(kernel, self._hooks, names)
            self._hooks.see(self.others.fronts)
        occupied = self.others.commands.keys()
        self._lead(
            {way: egress for way, egress in wanted.items() if egress.interface not in occupied}
        )
        neighbourhood = Neighbourhood(facts, topology, occupied)
        groups = routed_groups(plan)
        if all_clients or (neighbourhood, groups) != (self._neighbourhood, self._groups):
            self._neighbourhood, self._groups = neighbourhood, groups
            known = {*self._places.clients, *plan.hosts}
            with self._refusals():
                self._counts.forget_clients_but({*map(elements.address_key, known)})
            self.move(plan, known, has_networks=True)

    def move(self, plan: Plan, touched: Collection[str], *, has_networks: bool = False) -> None:
        """Update these clients, whose rules or limits have changed: O(change). With `has_networks`
        CIDR rules or their limits have changed, too: O(rules).
        """
        networks = None
        if has_networks and (plan.nets or self._places.networks):
            networks = network_places(plan, self._neighbourhood, self._groups)
        place_of = partial(place, plan=plan, neighbourhood=self._neighbourhood, groups=self._groups)
        moves = self._places.change(touched, plan.hosts, place_of, networks)
        self._departed = {it for it in (*self._departed, *touched) if it not in plan.hosts}
        with self._refusals():
            if self._maps is not None:
                moves.write(self._maps, self._counts)
            if has_networks:
                rules = {limit.number for limit in plan.limits.values()}
                self._counts.forget_rules_but({*map(elements.RULE.pack, rules)})

    def allow_until(self, deadline_ns: int) -> None:
        """Let known flows pass until then, in nanoseconds of CLOCK_BOOTTIME, if they need a lease.
        Raises Failed.
        """
        self._deadline_ns = deadline_ns
        if self._maps is not None:
            with self._refusals():
                self._put_deadline(self._maps)

    def sync(self) -> None:
        """Open the fast path once a client can use it, and check that it is open. Forget the counts
        of clients whose rules were gone before the transaction.
        """
        self._forget_departed()
        is_wanted = bool(self._places and self._egresses)
        if self._is_in_sync and is_wanted == self._is_open:
            return
        if self.problem and time.monotonic() < self._may_try_at:
            return
        with self._refusals():
            if self._maps is None and is_wanted:
                self._open()
            if self._maps is not None:
                _set_up_tracking()
                if tracking.timeouts() != self._made_for:
                    self._load(self._maps)
                self._hook(is_wanted)
            self._is_open, self._is_in_sync = is_wanted, True
            self.problem = ""

    def carries(self, address: str) -> bool:
        """Return whether known flows of a client may be forwarded here, unseen by conntrack."""
        return self._is_open and self._places.carries(address)

    def is_concerned(self, index: int) -> bool:
        """Return whether another program's changes on an interface matter to known flows."""
        return index in self.others.interfaces

    def counts(self, addresses: Iterable[str]) -> dict[str, RuleCount]:
        """Return the counts of the flows of clients with rules of their own. Raises OSError."""
        keys = {elements.address_key(address): address for address in addresses}
        return {keys[key]: count for key, count in self._counts.read(keys).items()}

    def rule_counts(self, rules: Iterable[int]) -> dict[int, RuleCount]:
        """Return the counts of the flows of CIDR rules' clients, by the rules' numbers. Raises
        OSError.
        """
        keys = {elements.RULE.pack(rule): rule for rule in rules}
        return {keys[key]: count for key, count in self._counts.read(keys).items()}

    def _gate(self, *, is_gated: bool) -> None:
        """Close the fast path if its programs must look at a lease and do not, or the reverse:
        `sync` opens it again. Raises Failed.
        """
        if is_gated == self._is_gated:
            return
        if self._maps is not None:
            try:
                self._close()
            except OSError as error:
                raise Failed("make known flows take the slow path", str(error)) from error
        self._is_gated = is_gated

    # --- The kernel's maps. ---------------------------------------------------------------

    def _forget_departed(self) -> None:
        departed, self._departed = self._departed, set()
        with self._refusals():
            for address in departed:
                self._counts.forget(elements.address_key(address))

    def _lead(self, wanted: Mapping[FastWay, FastEgress]) -> None:
        before, self._egresses = self._egresses, dict(wanted)
        if self._maps is None:
            return
        with self._refusals():
            for way in before.keys() - wanted.keys():
                self._maps.egresses.drop(elements.way_key(way))
            for way, egress in wanted.items():
                if before.get(way) != egress:
                    self._maps.egresses.put(elements.way_key(way), elements.egress_value(egress))

    def _open(self) -> None:
        maps = self._maps = Maps.make(is_gated=self._is_gated)
        self._counts.use(maps)
        self._put_deadline(maps)
        for way, egress in self._egresses.items():
            maps.egresses.put(elements.way_key(way), elements.egress_value(egress))
        self._places.all().write(maps, self._counts)

    def _put_deadline(self, maps: Maps) -> None:
        if maps.lease is not None:
            maps.lease.put(elements.LEASE_KEY, elements.DEADLINE.pack(self._deadline_ns))

    # --- The classifiers. -----------------------------------------------------------------

    def _load(self, maps: Maps) -> None:
        """Load programs into the kernel for the present time-outs."""
        with tracking.kernel() as kernel:
            modules = (kernel.module,) if kernel.module else ()
            self._let_go_of_programs()
            for entrance in Entrance:
                code = program.assemble(kernel, maps.descriptors, entrance)
                self._programs[entrance] = system.load(NAME, code, modules)
            self._made_for = kernel.timeouts_s
        self._hooked = dict.fromkeys(self._hooked, _UNKNOWN_PROGRAM)

    def _let_go_of_programs(self) -> None:
        """Close the descriptors of the programs; these stay where they are attached."""
        for descriptor in self._programs.values():
            os.close(descriptor)
        self._programs, self._made_for = {}, None

    def _hook(self, is_wanted: bool) -> None:
        """Put the classifiers on the LANs and the egress interfaces, and nowhere else.

        They stay on the LANs even if no client can use them, so that the counts are kept.
        """
        wanted = dict.fromkeys(self._neighbourhood.indexes, Entrance.LAN)
        for egress in self._egresses.values() if is_wanted else ():
            wanted[egress.interface] = Entrance.FRAMES if egress.has_frames else Entrance.NO_FRAMES
        with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
            for index in self._hooked.keys() - wanted.keys():
                self._hooks.take_away(kernel, index)
                del self._hooked[index]
            for index, entrance in wanted.items():
                self._hook_one(kernel, index, entrance)

    def _hook_one(self, kernel: NetlinkSocket, index: int, entrance: Entrance) -> None:
        there = self._hooks.find(kernel, index)
        if there is None:
            self._hooked.pop(index, None)
            if self._hooks.is_resting(index):
                return  # until the next look at the machine
        if self._hooked.get(index) == (entrance, there) and self._hooks.is_last(index):
            return
        put = self._hooks.put(kernel, index, self._programs[entrance])
        if put is not None:  # else the interface has just gone, and an event follows
            self._hooked[index] = entrance, put

    # --- When the kernel refuses. ---------------------------------------------------------

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """End the fast path if the kernel refuses something inside. Raises Failed if that fails."""
        try:
            yield
        except OSError as error:
            is_passing = error.errno in _PASSING
            self._may_try_at = time.monotonic() + _REST_S if is_passing else math.inf
            self.problem = f"known flows go through the whole stack: {error.strerror or error}"
            log.warning("fast path disabled", reason=str(error), will_try_again=is_passing)
            try:
                self._close()
            except OSError as problem:
                raise Failed("make known flows take the slow path", str(problem)) from error

    def _close(self) -> None:
        """Remove the fast path from all interfaces. Raises OSError."""
        try:
            close()
        except PermissionError:
            if self._maps is not None:
                raise
            # A process that may not even list the hooks has put nothing there.
        self._hooked = {}
        self._is_open = self._is_in_sync = False
        self._let_go_of_programs()
        with self._counts.kept():
            if self._maps is not None:
                self._maps.close()
            self._maps = None


def close() -> None:
    """Make all packets of this network namespace take the slow path.

    Raises OSError if an interface kept its classifier, once all interfaces have been tried.
    """
    failure: OSError | None = None
    hooks = Hooks()
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        for index, _ in socket.if_nameindex():
            try:
                hooks.take_away(kernel, index)
            except OSError as error:
                failure = error
    if failure is not None:
        raise failure


def _set_up_tracking() -> None:
    """Make connection tracking tolerate packets that it does not see. Raises OSError."""
    done = sysctl.write(_SETTINGS)
    if done.problems:
        raise OSError(errno.EPERM, done.problems[0])
