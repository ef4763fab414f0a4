"""The status of the device as netd sees it, gathered on request."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Final

import msgspec

from egressd.model.facts import Facts
from egressd.model.messages import InstanceStatus, InterfaceStatus, RuleCount, Status
from egressd.model.plan import Plan, is_routed_member
from egressd.model.wording import NONE, Sentence, say
from egressd.netd.dataplane.instances import RunningInstances
from egressd.netd.health.dns_servers import DnsServerChecks
from egressd.netd.health.groups import Groups, nodes_in
from egressd.netd.health.node_failures import NodeFailures
from egressd.netd.health.proxy_handshakes import ProxyHandshakes
from egressd.netd.health.refused_sources import RefusedSources
from egressd.netd.health.worker_descriptors import WorkerDescriptors
from egressd.netd.kernel import conntrack, memory, neighbours, nft, traffic
from egressd.netd.kernel.address_ranges import RangeMap, Ranges
from egressd.netd.kernel.traffic import InterfaceTraffic
from egressd.netd.ports import EnginePort, KernelPort, LimitsPort, LinesPort, PairPort
from egressd.netd.reconciler.cached import Cached
from egressd.planner.registry import HELPER_INTERFACES
from egressd.planner.topology import Topology, is_line

_USAGE_KEPT: Final = 10
"""Multiple of a measurement's own duration for which it is valid. While platforms poll, counting
100,000 flows takes a sixth of a processor's time at most."""

_LIBRARY_REPLACED: Final = say("library-replaced")
_NO_LEASE: Final = say("site-no-lease")
_NODE_SILENT: Final = say("silent")
_BEING_STARTED: Final = say("being-started")


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The present use of the device."""

    connections: int
    """Tracked flows of LAN clients."""
    memory: int
    """Bytes that netd and the engine workers hold."""
    neighbours: frozenset[bytes]
    """Addresses in use in the LANs, 4 bytes each in network order."""


class Monitor:
    """Reports the status of the device, and the traffic of each rule's clients."""

    def __init__(
        self,
        *,
        kernel: KernelPort,
        dns_servers: DnsServerChecks,
        limits: LimitsPort,
        engine: EnginePort,
        lines: LinesPort,
        instances: RunningInstances,
        groups: Groups,
        node_failures: NodeFailures,
        refused_sources: RefusedSources,
        handshakes: ProxyHandshakes,
        descriptors: WorkerDescriptors,
        pair: PairPort | None = None,
    ) -> None:
        self._kernel = kernel
        self._dns_servers = dns_servers
        self._limits = limits
        self._engine = engine
        self._lines = lines
        self._instances = instances
        self._groups = groups
        self._node_failures = node_failures
        self._refused_sources = refused_sources
        self._handshakes = handshakes
        self._descriptors = descriptors
        self._pair = pair
        self._usage = Cached(lambda: asyncio.to_thread(self._measure), kept=_USAGE_KEPT)
        self._counts = Cached(limits.counters)

    async def status(self, plan: Plan, state: str) -> Status:
        """Return the status of the device with this plan. Its use was measured a moment ago."""
        usage = await self._usage.read()
        tracked, tracked_max = conntrack.fullness()
        return msgspec.structs.replace(
            self.view(plan, state),
            interfaces=_interfaces(self._kernel.facts, self._kernel.topology, traffic.read()),
            connections=usage.connections,
            tracked=tracked,
            tracked_max=tracked_max,
            workers=len(self._engine.workers()),
            memory=usage.memory,
            strangers=self._strangers(plan, usage.neighbours),
            delays=self._groups.measured(plan),
            lease_ms=self._kernel.lease_ms(plan),
            refused={**self._refused_sources.totals, "handshakes": self._handshakes.ended},
        )

    def view(self, plan: Plan, state: str) -> Status:
        """Return the status without the figures that change all the time. Cheap: 3 ms with 2,000
        nodes.
        """
        facts, topology = self._kernel.facts, self._kernel.topology
        return Status(
            state=state,
            revision=plan.revision,
            interfaces=_interfaces(facts, topology, {}),
            lines=self._lines.status(),
            instances=_instances(plan, self._instances, self._descriptors.full),
            failing=self._failing(plan),
            elected=self._groups.elected(plan),
            silent_members=tuple(filter(is_routed_member, self._groups.dead(plan))),
            egress_problems=self._kernel.egress_problems(plan),
            dead_ends=dict(self._dns_servers.dead_ends),
            nameless=dict(self._dns_servers.nameless),
            unserved=self._kernel.why_unserved(),
            lease_ms=0 if (is_shut := self._kernel.lease_ms(plan) == 0) else None,
            pair_role=None if self._pair is None else self._pair.role,
            full=conntrack.why_full(),
            doubts=(*self._kernel.firewall_problems, *conntrack.crowding()),
            reached=self._refused_sources.reached,
            wans=topology.wans,
            networks=_networks(topology),
            problems=(
                *([_NO_LEASE] if is_shut else ()),
                *self._kernel.missing_roles(),
                *(self._pair.problems() if self._pair is not None else ()),
                *self._engine.problems(),
                *(
                    say("worker-fails", n=n, reason=why)
                    for n, why in self._descriptors.full.items()
                ),
                *self._kernel.problems,
                *self._kernel.firewall_problems,
                *self._kernel.beside(plan),
                *self._dns_servers.problems,
                *self._limits.problems,
                *conntrack.crowding(),
                *([_LIBRARY_REPLACED] if nft.is_library_replaced() else ()),
            ),
        )

    async def counters(self) -> dict[int, RuleCount]:
        """Return each enabled rule's traffic, by its id, at most a second old. Raises Failed."""
        return await self._counts.read()

    def _failing(self, plan: Plan) -> dict[str, Sentence]:
        dead = dict.fromkeys(nodes_in(self._groups.dead(plan)), _NODE_SILENT)
        return dead | self._node_failures.reasons

    def _strangers(self, plan: Plan, living: frozenset[bytes]) -> int:
        """Return the number of the addresses `living` that no rule covers."""
        without = [each for each in living if str(IPv4Address(each)) not in plan.hosts]
        if without and plan.nets:
            ranges = RangeMap(plan.nets)
            without = [each for each in without if not ranges.get(each)]
        return len(without)

    def _measure(self) -> Usage:
        topology, facts = self._kernel.topology, self._kernel.facts
        networks = [network for _, network in topology.lan_networks]
        indexes = {facts.interfaces[lan].index for lan in topology.lans if lan in facts.interfaces}
        within = Ranges(map(str, networks))
        living = neighbours.living(indexes)
        return Usage(
            neighbours=frozenset(each for each in living if each in within),
            connections=conntrack.count(networks),
            memory=memory.resident(
                {
                    os.getpid(),
                    *self._engine.pids(),
                    *self._lines.pids(),
                    *(self._pair.pids() if self._pair is not None else ()),
                }
            ),
        )


def _interfaces(
    facts: Facts, topology: Topology, counted: Mapping[str, InterfaceTraffic]
) -> tuple[InterfaceStatus, ...]:
    """Return all interfaces except loopback and egressd's own helpers, sorted by name."""
    return tuple(
        InterfaceStatus(
            name=interface.name,
            ip=str(interface.addresses[0].ip) if interface.addresses else "",
            is_up=interface.is_up,
            role=_role(interface.name, topology),
            received=counted.get(interface.name, traffic.NONE).received,
            sent=counted.get(interface.name, traffic.NONE).sent,
        )
        for interface in sorted(facts.interfaces.values(), key=lambda i: i.name)
        if not interface.is_loopback and interface.name not in HELPER_INTERFACES
    )


def _networks(topology: Topology) -> tuple[str, ...]:
    networks = (*topology.lan_networks, *topology.local_networks)
    return tuple(dict.fromkeys(str(network) for _, network in networks))


def _role(name: str, topology: Topology) -> str:
    is_lan, is_wan = name in topology.lans, name in topology.wans
    if is_lan and is_wan:
        return "both"
    if is_lan:
        return "lan"
    if is_wan:
        return "wan"
    if name in topology.local:
        return "local"
    return "line" if is_line(name) else ""


def _instances(
    plan: Plan, instances: RunningInstances, full: Mapping[int, Sentence]
) -> dict[str, InstanceStatus]:
    """Return every instance of the plan, running or not, except idle ones that do not run.

    `full`: slot of a worker -> reason why it takes no further connection.
    """
    result = {}
    for key, instance in plan.instances.items():
        running = instances.get(key)
        if running is None and instances.is_idle(instance):
            continue
        if running is None:
            problem = instances.problems.get(key, _BEING_STARTED)
            result[key] = InstanceStatus(problem=problem)
        else:
            problem = full.get(running.worker, NONE) if instance.mark else NONE
            result[key] = InstanceStatus(worker=running.worker, port=running.port, problem=problem)
    return result
