"""Remove the remains of moved clients' flows: the engine's sockets, and conntrack entries.

`connmark_check` has cut the flows of a moved client already. The engine's sockets are ended at
once, so that a client notices. The conntrack entries only stand in the way of new flows with the
same ports (a UDP flow would go on without address translation); `netd.kernel.cut_flows` keeps what
had such an entry cut. Walking the kernel's table takes 25 ms even when it is empty, so the walk is
no part of a change: it runs in the background, once for all clients that have moved meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from functools import cache
from ipaddress import IPv4Address
from socket import IPPROTO_TCP, IPPROTO_UDP, inet_aton, inet_ntoa
from typing import Final

import structlog

from egressd.model.plan import Plan, is_routed_member
from egressd.netd.kernel import conntrack, sockets
from egressd.netd.kernel.address_ranges import RangeMap, Ranges
from egressd.netd.kernel.conntrack import TrackedFlow
from egressd.netd.kernel.cut_flows import KeepCut
from egressd.netd.kernel.debounce import Debouncer
from egressd.planner.groups import Choice, member_mark, routed_flows
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_REJECT,
    asker_mark,
    asker_number,
    flow_mark,
    inbound_place,
    is_routed,
)
from egressd.planner.resolvers import asked
from egressd.planner.topology import interface_mark

log = structlog.get_logger()

_MANY: Final = 64
"""Clients above which the engine's sockets are searched in a thread."""
LOOPBACK: Final = IPv4Address("127.0.0.1")
"""The source of flows that an engine instance found to be listed, and hands back."""
_DNS_PORT: Final = 53
_REST: Final = 20
"""Duration of the rest after a walk, in walks. The kernel does not interrupt a walk: a change that
gets the same processor waits up to 10 ms for it, and few changes should."""
_REST_MAX_S: Final = 2.0
"""Seconds at most between walks: with 100,000 flows, a walk takes half a second of a processor."""


async def cut(
    clients: Sequence[str], hosts: Container[str], router_addresses: Collection[IPv4Address]
) -> None:
    """End the sockets that the engine has for these addresses and ranges.

    Within the ranges, the sockets of `hosts` stay unless `clients` names the address itself: these
    hosts have rules of their own.
    """
    named = set(clients)

    def is_other(address: str) -> bool:
        return address in hosts and address not in named

    def destroy() -> None:
        try:
            sockets.destroy_clients(clients, router_addresses, is_other)
        except OSError as error:
            log.warning("cannot end sockets of moved clients", error=str(error))

    if len(clients) > _MANY:
        await asyncio.to_thread(destroy)
    elif clients:
        destroy()


IsAllowed = Callable[[bytes, TrackedFlow], bool]
"""True for a flow that its client (4 bytes, network order) may have: such flows stay."""


class StaleFlows:
    """Removes the conntrack entries of clients in the background.

    `allowed_now` returns a function that is true for a flow that its client may have now: such
    flows stay. That function is called in another thread. `lans` gives the addresses of clients.
    """

    def __init__(
        self,
        allowed_now: Callable[[], IsAllowed],
        lans: Callable[[], Ranges],
        keep_cut: KeepCut,
    ) -> None:
        self._allowed_now = allowed_now
        self._lans = lans
        self._keep_cut = keep_cut
        self._clients: set[str] = set()
        self._is_outdated = threading.Event()
        """Set when the allowed marks change during a walk."""
        self._follower = Debouncer(self._tidy, _REST_MAX_S, rest=_REST)

    def add(self, clients: Iterable[str]) -> None:
        """Remove the entries of these addresses and ranges soon."""
        self._clients.update(clients)
        self._follower.notify()

    def invalidate(self) -> None:
        """Mark a walk in progress as outdated. Call it before the kernel gets other marks: the walk
        knows only the old ones, and would end flows that begin with the new ones. The walk spares
        all further flows, and is repeated.
        """
        self._is_outdated.set()

    async def close(self) -> None:
        """Stop; entries that were not removed yet stay."""
        await self._follower.close()

    async def _tidy(self) -> None:
        clients, self._clients = self._clients, set()
        self._is_outdated = is_outdated = threading.Event()
        is_allowed = self._allowed_now()

        def may_stay(client: bytes, flow: TrackedFlow) -> bool:
            return is_outdated.is_set() or is_allowed(client, flow)

        try:
            await asyncio.to_thread(
                conntrack.delete_stale, clients, self._lans(), may_stay, self._keep_cut
            )
        except BaseException:
            self._clients |= clients  # the follower calls again
            raise
        if is_outdated.is_set():
            self.add(clients)


def may_have(
    plan: Plan,
    ranges: RangeMap,
    choices: Mapping[str, Choice],
    served: Collection[int],
    router_addresses: Collection[IPv4Address],
) -> Callable[[bytes, TrackedFlow], bool]:
    """Return a function that is true if `plan`, with the marks of its ranges and these choices of
    its groups, lets a client's address have a flow. The function may be called in another thread
    while the plan changes. `served` are the marks of the engine instances that run.

    Flows without a mark are not egressd's: to the router, between LANs. All others are judged by
    the present chains: a flow with another mark is cut packet by packet, and each packet keeps its
    entry alive. The same holds for a flow that an instance began from the address of the server
    that the client had asked, if the kernel now sends the client out: nothing translates the
    client's packets, and `planner.chains`'s postrouting_last drops them.
    """
    hosts, policy, listed = plan.hosts, plan.policy, plan.whitelist
    listed_ranges = Ranges(listed.ranges)
    sniffed_ports = {IPPROTO_TCP: set(listed.tcp_ports), IPPROTO_UDP: set(listed.udp_ports)}
    asked_directly = flow_mark(MARK_ASKED_DIRECTLY, listed.epoch)
    lines_asked_directly = {
        interface_mark(name, egress.number)
        for name, egress in plan.egresses.items()
        if egress.is_asked_directly
    }
    has_askers = bool(policy.local_resolvers)
    resolvers = {inet_aton(server) for server in asked(plan, {})}
    own = {address.packed for address in router_addresses}
    groups, chosen = plan.groups.copy(), dict(choices)
    members = Plan(
        policy=policy,
        whitelist=listed,
        instances=plan.instances.copy(),
        egresses=plan.egresses.copy(),
    )

    names_of_groups = {group.mark: name for name, group in groups.items()}

    @cache  # there are far fewer targets and members than flows
    def marks_of(target: int, member: str = "") -> set[int]:
        """Return the marks of a target's flows: of a group's one member, or of all that live."""
        marks = {target}
        if target in names_of_groups:
            for key in (member,) if member else chosen[names_of_groups[target]].living:
                if is_routed_member(key):
                    marks.update(routed_flows(members, key))
                elif (mark := member_mark(members, key)) in served:
                    marks.add(mark)
        return {0, *(flow_mark(mark, listed.epoch) for mark in marks if mark)}

    def member_of(target: int, client: bytes) -> str:
        """Return the only member that a client's flows may have; empty if there may be others."""
        name = names_of_groups.get(target)
        if name is None or groups[name].on_switch != "cut":
            return ""
        return chosen[name].of_client(inet_ntoa(client))

    def is_current(client: bytes, flow: TrackedFlow) -> bool:
        mark = flow.mark
        if inbound_place(mark) is not None:
            return True  # a WAN brought it in, and its answers leave by that WAN under any rules
        if mark == MARK_REJECT and (flow.is_inbound or not policy.stopped):
            return True  # closed by hand: its next packet is reset, or else would open it anew
        if policy.stopped:
            return mark == 0  # flows that still bring packets to a client end, too
        if client == LOOPBACK.packed:
            return mark in marks_of(listed.mark)
        target = not policy.opened and (hosts.get(inet_ntoa(client)) or ranges.get(client))
        if flow.is_backwards and flow.far not in own:
            way = listed.mark if target and flow.far in listed_ranges else target
            if is_routed(mark or way or policy.unmanaged):
                return False
        is_question = flow.port == _DNS_PORT and flow.protocol in sniffed_ports
        is_asked_directly = is_question and (target or policy.unmanaged) in lines_asked_directly
        if not target:
            marks = {0, policy.unmanaged}  # without an epoch
            return mark in marks or (is_asked_directly and mark == MARK_ASKED_DIRECTLY)
        is_sniffed = flow.port in sniffed_ports.get(flow.protocol, ())
        is_apart = flow.is_source_translated or mark & MARK_KIND_MASK != MARK_ENGINE
        if is_sniffed and flow.protocol == IPPROTO_UDP and not is_apart:
            return False  # from before its port was listed: see input_apart in planner.chains
        sniffer = listed.sniffers.get(target, target)
        if is_question:
            if has_askers and is_routed(target) and client not in resolvers:
                return mark in (0, asker_mark(asker_number(target)))
            own_marks = marks_of(target, member_of(target, client))
            is_own = mark in own_marks or mark == sniffer
            return is_own or (is_asked_directly and mark == asked_directly)
        if flow.far in listed_ranges:
            return mark in marks_of(listed.mark)
        if is_sniffed and sniffer != target:
            return mark in marks_of(sniffer)
        return mark in marks_of(target, member_of(target, client))

    return is_current
