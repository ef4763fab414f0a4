"""Netd's reconciler, composed of the kernel, the engine, the lines, and all checks that repeat."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from egressd.model.messages import News
from egressd.model.plan import Plan
from egressd.netd.dataplane.instances import RunningInstances
from egressd.netd.health.client_bounds import ClientBounds
from egressd.netd.health.dns_doubts import DnsDoubts
from egressd.netd.health.dns_servers import DnsServerChecks
from egressd.netd.health.group_selection import GroupSelection
from egressd.netd.health.groups import Groups
from egressd.netd.health.node_failures import NodeFailures
from egressd.netd.health.proxy_handshakes import ProxyHandshakes
from egressd.netd.health.refused_sources import RefusedSources
from egressd.netd.health.rotation import ClockRotation
from egressd.netd.health.stalled_connections import StalledConnections
from egressd.netd.health.worker_descriptors import WorkerDescriptors
from egressd.netd.ports import EnginePort, KernelPort, LimitsPort, LinesPort, PairPort
from egressd.netd.reconciler.applier import Applier
from egressd.netd.reconciler.moved_clients import MovedClients
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.netd.reconciler.reconciler import Reconciler
from egressd.netd.reconciler.status import Monitor
from egressd.planner.groups import Turn
from egressd.planner.nft import Crowd, Greedy


def compose(
    *,
    kernel: KernelPort,
    limits: LimitsPort,
    engine: EnginePort,
    lines: LinesPort,
    plan_file: PlanFile,
    groups: Groups,
    publish: Callable[[News], None],
    pair: PairPort | None = None,
) -> Reconciler:
    """Return the reconciler of these, with all checks that repeat."""

    def plan() -> Plan:
        return applier.plan

    def changed() -> None:
        reconciler.notify()

    async def refresh() -> None:
        await reconciler.refresh()

    async def regroup() -> None:
        await reconciler.regroup()

    async def rotate(turns: Mapping[str, Turn]) -> None:
        await reconciler.rotate(turns)

    async def refuse_clients(greedy: Collection[Greedy]) -> None:
        await reconciler.refuse_clients(greedy)

    async def refuse_callers(crowd: Crowd) -> None:
        await reconciler.refuse_callers(crowd)

    instances = RunningInstances(engine)
    moved_clients = MovedClients(kernel, plan)
    selection = GroupSelection(
        groups,
        kernel,
        instances,
        engine,
        plan=plan,
        regroup=regroup,
        publish=publish,
    )
    applier = Applier(
        kernel=kernel,
        limits=limits,
        engine=engine,
        lines=lines,
        plan_file=plan_file,
        instances=instances,
        selection=selection,
        moved_clients=moved_clients,
    )
    dns_servers = DnsServerChecks(kernel, plan, refresh, changed)
    dns_doubts = DnsDoubts(lambda: kernel.topology.wans, dns_servers)
    node_failures = NodeFailures(engine, plan, changed)
    descriptors = WorkerDescriptors(engine.workers, changed)
    client_bounds = ClientBounds(
        bounds=lambda: kernel.bounds,
        own=lambda: kernel.topology.router_addresses,
        ruled=lambda: applier.plan.hosts,
        changed=refuse_clients,
    )
    handshakes = ProxyHandshakes(
        plan=plan,
        bounds=lambda: kernel.bounds,
        topology=lambda: kernel.topology,
        changed=refuse_callers,
    )
    refused_sources = RefusedSources(
        lambda: kernel.bounds,
        changed,
        greedy=lambda: client_bounds.greedy,
        crowd=lambda: handshakes.crowd,
    )
    reconciler = Reconciler(
        kernel=kernel,
        limits=limits,
        engine=engine,
        lines=lines,
        plan_file=plan_file,
        applier=applier,
        instances=instances,
        selection=selection,
        moved_clients=moved_clients,
        dns_servers=dns_servers,
        node_failures=node_failures,
        monitor=Monitor(
            kernel=kernel,
            dns_servers=dns_servers,
            limits=limits,
            engine=engine,
            lines=lines,
            instances=instances,
            groups=groups,
            node_failures=node_failures,
            refused_sources=refused_sources,
            handshakes=handshakes,
            descriptors=descriptors,
            pair=pair,
        ),
        watchers=(
            selection,
            ClockRotation(plan, lambda: selection.choices, rotate),
            dns_doubts,
            dns_servers,
            node_failures,
            StalledConnections(plan, engine.uid),
            client_bounds,
            descriptors,
            refused_sources,
            handshakes,
        ),
        publish=publish,
    )
    return reconciler
