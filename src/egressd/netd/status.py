"""netd's view of the device, gathered when somebody asks."""

from __future__ import annotations

from egressd.model.facts import Facts
from egressd.model.messages import InstanceStatus, InterfaceStatus
from egressd.model.plan import Plan
from egressd.netd.kernel import traffic
from egressd.netd.serving import Serving
from egressd.planner.registry import HELPER_INTERFACES
from egressd.planner.topology import Topology, is_line


def interfaces(facts: Facts, topology: Topology) -> tuple[InterfaceStatus, ...]:
    """All but loopback and egressd's own helpers, by name."""
    counted = traffic.read()
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


def _role(name: str, topology: Topology) -> str:
    is_lan, is_wan = name in topology.lans, name in topology.wans
    if is_lan and is_wan:
        return "both"
    if is_lan:
        return "lan"
    if is_wan:
        return "wan"
    return "line" if is_line(name) else ""


def instances(plan: Plan, serving: Serving) -> dict[str, InstanceStatus]:
    """Every instance of the plan, running or not, but for those that just stand by."""
    result = {}
    for key, instance in plan.instances.items():
        running = serving.get(key)
        if running is None and serving.is_idle(instance):
            continue
        if running is None:
            problem = serving.problems.get(key, "it is being started")
            result[key] = InstanceStatus(problem=problem)
        else:
            result[key] = InstanceStatus(worker=running.worker, port=running.port)
    return result
