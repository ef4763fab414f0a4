"""The desired state compiled to a plan, table by table.

`compile_plan` builds everything and is O(n); `change.plan_change` calls the same functions for only
the entries that a few edits touch. Each function here is one table of `Plan`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network
from typing import Final

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.instances import Asker, GroupPolicy, Instance, Listed, Sniffer
from egressd.model.names import AUTO, INTERFACE_PREFIX, parse_target
from egressd.model.nouns import NEVER, Line, Node, Rule, Whitelist
from egressd.model.plan import Egress, GlobalPolicy, Group, Limit, Plan, WhitelistPlan
from egressd.planner import local_names, whitelist_entries
from egressd.planner.flatten import flatten, merge
from egressd.planner.instances import dialer, proxy_listener
from egressd.planner.lines.dial import malformed
from egressd.planner.nodes import neighbour_of
from egressd.planner.outbounds import TUNNELS
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_REJECT,
    MARK_UNMANAGED,
    SNIFF_DIRECT,
    SNIFF_REJECT,
    asker_mark,
    asker_number,
    epoch_of,
    group_mark,
    is_routed,
    node_mark,
    sniffer_mark,
)
from egressd.planner.targets import (
    change_ip_targets,
    dial_path,
    dial_paths,
    errand_targets,
    interfaces_of,
    is_ruled,
    mark_of,
    members_of,
    nodes_of,
    reached,
    ruled_targets,
    used_targets,
)
from egressd.planner.topology import interface_mark

UNMANAGED_KEY: Final = "default:0"
"""Key of the engine instance of clients without a rule."""


def compile_plan(state: DesiredState, resolvers: Resolvers, *, is_leased: bool = False) -> Plan:
    """Return the plan for a whole state. O(n).

    `is_leased`: the device is one of several members of a site.
    """
    return Plan(
        revision=state.revision,
        policy=policy(state, resolvers, is_leased=is_leased),
        whitelist=whitelist(state),
        delay_url=state.settings.delay_url,
        hosts=hosts(state, state.rules.values()),
        nets=nets(state),
        instances={
            **instances(state, resolvers, ruled_targets(state)),
            **unmanaged_instance(state, resolvers),
            **services(state, resolvers),
        },
        groups=groups(state, ruled_targets(state)),
        egresses=egresses(state, resolvers),
        limits=limits(state.rules.values()),
        lines=lines(state),
        bindings=bindings(state.rules.values()),
        neighbours=neighbours(state.nodes.values()),
    )


def policy(state: DesiredState, resolvers: Resolvers, *, is_leased: bool = False) -> GlobalPolicy:
    """Return the settings that hold for the device as a whole."""
    return GlobalPolicy(
        unmanaged=_unmanaged_mark(state),
        resolvers=resolvers.all_reached_by(""),
        local_resolvers=local_names.servers_of(resolvers.local),
        stopped=state.settings.stopped,
        opened=state.settings.opened,
        is_leased=is_leased,
    )


def _unmanaged_mark(state: DesiredState) -> int:
    if state.settings.opened:
        return MARK_DIRECT
    mark = mark_of(state, state.settings.unmanaged)
    if mark & MARK_KIND_MASK == MARK_ENGINE:
        return MARK_UNMANAGED
    return 0 if mark == MARK_REJECT else mark


def hosts(state: DesiredState, rules: Iterable[Rule]) -> dict[str, int]:
    """Return the marks of the enabled rules among `rules` that name one address."""
    marks: dict[str, int] = {}
    result = {}
    for rule in rules:
        if rule.is_enabled and rule.is_host:
            target = rule.target_node
            if target not in marks:
                marks[target] = mark_of(state, target)
            result[rule.host] = marks[target]
    return result


def nets(state: DesiredState) -> dict[str, int]:
    """Return the enabled CIDR rules, flattened."""
    return flatten(
        {
            IPv4Network(rule.ip): mark_of(state, rule.target_node)
            for rule in state.rules.values()
            if rule.is_enabled and not rule.is_host
        }
    )


def limits(rules: Iterable[Rule]) -> dict[str, Limit]:
    """Return the limits of the enabled rules among `rules`, by address or CIDR."""
    return {
        rule.host: Limit(
            number=rule.id,
            upload_kbps=rule.upload_limit_kbps,
            download_kbps=rule.download_limit_kbps,
        )
        for rule in rules
        if rule.is_enabled
    }


def bindings(rules: Iterable[Rule]) -> dict[str, str]:
    """Return the devices that the enabled rules among `rules` belong to, by address."""
    return {
        rule.host: rule.bound_mac
        for rule in rules
        if rule.bound_mac and rule.is_enabled and rule.is_host
    }


def instances(
    state: DesiredState, resolvers: Resolvers, targets: Iterable[str]
) -> dict[str, Instance]:
    """Return the engine instances that serve `targets`: a node's own, and those of a group's nodes.

    A target that cannot work (its relay was deleted, for example) has none, and so blocks.
    """
    targets = reached(state, targets)
    return {
        **sniffers(state, resolvers, targets),
        **askers(state, resolvers, targets),
        **nodes(state, resolvers, nodes_of(state, targets)),
    }


def sniffers(
    state: DesiredState, resolvers: Resolvers, targets: Iterable[str]
) -> dict[str, Instance]:
    """Return an instance for each of `targets` whose traffic the kernel routes, if it is
    inspected.
    """
    listed = _listed(state)
    made = (_sniffer(state, resolvers, target, listed) for target in targets)
    return {instance.key: instance for instance in made if instance is not None}


def askers(
    state: DesiredState, resolvers: Resolvers, targets: Iterable[str]
) -> dict[str, Instance]:
    """Return an instance for the DNS of each of `targets` that the kernel routes, if there are
    local names: the kernel does not look into questions.
    """
    if not resolvers.local:
        return {}
    made = {}
    for target in targets:
        mark = mark_of(state, target)
        if is_routed(mark):
            directly = is_asked_directly(state, resolvers, parse_target(target).name)
            made[asker_number(mark)] = MARK_ASKED_DIRECTLY if directly else mark
    return {
        (key := f"dns:{number}"): Instance(
            key=key,
            mark=asker_mark(number),
            work=Asker(mark=mark, zones=resolvers.local),
        )
        for number, mark in made.items()
    }


def unmanaged_instance(state: DesiredState, resolvers: Resolvers) -> dict[str, Instance]:
    """Return the engine instance of clients without a rule, if their target requires one.

    Nodes that are tunnels have none here: each has one instance, for clients with a rule.

    It is separate from the instance of clients with a rule to the same target: the whitelist does
    not apply to clients without a rule, and a change of it does not cut them.
    """
    paths = tuple(
        path
        for path in dial_paths(state, parse_target(state.settings.unmanaged))
        if path.hops[0].protocol not in TUNNELS
    )
    if not paths:
        return {}
    policy = GroupPolicy.of(state.settings) if len(paths) > 1 else None
    work = dialer(paths, resolvers, policy=policy)
    return {UNMANAGED_KEY: Instance(key=UNMANAGED_KEY, mark=MARK_UNMANAGED, work=work)}


def nodes(state: DesiredState, resolvers: Resolvers, wanted: Iterable[Node]) -> dict[str, Instance]:
    """Return an instance for each of the nodes that can be dialled."""
    listed = _listed(state)
    made = (_node(state, resolvers, node, listed) for node in wanted)
    return {instance.key: instance for instance in made if instance is not None}


def group_key(state: DesiredState, target: str) -> str:
    """Return the key of an existing group, given as a target."""
    return f"group:{state.numbers[target]}"


def groups(state: DesiredState, targets: Iterable[str]) -> dict[str, Group]:
    """Return the groups among `targets`, with those of their members that traffic can go to."""
    names = [t for t in targets if parse_target(t).kind == "group" and t in state.numbers]
    made = {name: _group(state, name) for name in names}
    return {group_key(state, name): group for name, group in made.items() if group is not None}


def _group(state: DesiredState, target: str) -> Group | None:
    name = parse_target(target).name
    keys = {t: _member_key(state, t) for t in members_of(state, name)}
    members = {t: key for t, key in keys.items() if key}
    if not members:
        return None
    its = state.group_settings(name)
    strategy = state.strategy_of(its)
    weights = {members[t]: w for t, w in its.weights.items() if t in members and w != 1}
    return Group(
        mark=group_mark(state.numbers[target]),
        members=tuple(members.values()),
        strategy=strategy,
        url=its.check_url or state.settings.delay_url,
        interval_s=its.check_interval_s,
        weights=weights if strategy == "spread" else {},
        tolerance_ms=its.tolerance_ms,
        failback_s=its.failback_min * 60 if its.failback_min != NEVER else -1,
        on_switch=its.on_switch,
        rotate_every_s=its.rotate_every_s if strategy == "sticky" else 0,
    )


def _member_key(state: DesiredState, target: str) -> str:
    """Return the key of a group's member, which is no group; empty if no traffic can go there."""
    node = state.node_named(target)
    if node is not None:
        return "" if dial_path(state, node) is None else f"node:{node.id}"
    return "" if mark_of(state, target) == MARK_REJECT else target


def service_key(service_id: int) -> str:
    """Return the key of a proxy service's instance."""
    return f"service:{service_id}"


def services(state: DesiredState, resolvers: Resolvers) -> dict[str, Instance]:
    """Return an engine instance for each enabled proxy service; none while the device is
    stopped.
    """
    if state.settings.stopped:
        return {}
    result = {}
    for service in state.services.values():
        number = state.numbers.get(INTERFACE_PREFIX + service.outbound_interface)
        if service.is_enabled and number is not None:
            name = service.outbound_interface
            mark = interface_mark(name, number)
            work = proxy_listener(
                service,
                mark,
                (egress_resolvers(state, resolvers, name) or resolvers.all_reached_by(name))[0],
                MARK_ASKED_DIRECTLY if is_asked_directly(state, resolvers, name) else mark,
            )
            key = service_key(service.id)
            if work is not None:
                result[key] = Instance(key=key, work=work)
    return result


def instance_keys(state: DesiredState, target: str, resolvers: Resolvers) -> set[str]:
    """Return the keys of the instances that may serve clients with a rule to `target`."""
    number = sniffer_number(state, target)
    if number is not None:
        sniffing = {f"sniff:{number}"} if _listed(state) else set()
        return sniffing | askers(state, resolvers, (target,)).keys()
    return {f"node:{node.id}" for node in nodes_of(state, (target,))}


def sniffer_number(state: DesiredState, target: str) -> int | None:
    """Return the number of the instance that sniffs for a kernel-routed target, or None."""
    parsed = parse_target(target)
    match parsed.kind:
        case "direct":
            return SNIFF_DIRECT
        case "reject":
            return SNIFF_REJECT
        case "interface":
            return state.numbers.get(target)
        case _:
            return None


def _sniffer(
    state: DesiredState, resolvers: Resolvers, target: str, listed: Listed | None
) -> Instance | None:
    number = sniffer_number(state, target)
    if number is None or listed is None or target == state.whitelist.node:
        return None  # listed traffic goes there anyway
    work = Sniffer(
        mark=mark_of(state, target),
        resolver=resolvers.reached_by(parse_target(target).name),
        listed=listed,
        zones=resolvers.local,
    )
    return Instance(key=f"sniff:{number}", mark=sniffer_mark(number), work=work)


def _node(
    state: DesiredState, resolvers: Resolvers, node: Node, listed: Listed | None
) -> Instance | None:
    path = dial_path(state, node)
    if path is None:
        return None
    if state.whitelist.node == node.name:
        listed = None  # listed traffic goes there anyway
    return Instance(
        key=f"node:{node.id}",
        mark=node_mark(node.id),
        work=dialer((path,), resolvers, listed=listed, zones=resolvers.local),
        standby=not is_ruled(state, node.name),
    )


def _listed(state: DesiredState) -> Listed | None:
    """Return the whitelist for instances; None if no domain has to be seen.

    For instances every destination but DIRECT is one mark: they do not know which destination it
    is, whether it exists and how it is reached, so that changing it cuts no other flows.
    """
    if (
        not state.settings.sniff_domains
        or not whitelist_entries.entries_of(state.whitelist).domains
    ):
        return None
    is_direct = parse_target(state.whitelist.node).kind == "direct"
    return Listed(sets=whitelist_entries.listing_of(state.whitelist).sets, is_direct=is_direct)


def egresses(state: DesiredState, resolvers: Resolvers) -> dict[str, Egress]:
    """Return the interfaces that rules, nodes in use, proxy services, lines, alerts and changes of
    nodes' addresses send traffic to.
    """
    asked = {*errand_targets(state), *change_ip_targets(state)}
    names = interfaces_of(state, {*used_targets(state), *asked})
    names.update(s.outbound_interface for s in state.services.values() if s.is_enabled)
    names.update(line.interface for line in lines(state).values() if line.interface != AUTO)
    result = {}
    for name in sorted(names):
        number = state.numbers.get(INTERFACE_PREFIX + name)
        if number is not None:
            result[name] = Egress(
                number=number,
                resolvers=egress_resolvers(state, resolvers, name),
                default_resolvers=resolvers.all_reached_by(name),
                is_asked_directly=is_asked_directly(state, resolvers, name),
            )
    return result


def egress_resolvers(state: DesiredState, resolvers: Resolvers, name: str) -> tuple[str, ...]:
    """Return the resolvers of clients that leave by interface `name`; none for those of a line's
    peer.
    """
    line_id = state.line_by_name.get(name)
    if line_id is None:
        return resolvers.all_reached_by(name)
    return line_resolvers(state.lines[line_id], resolvers)


def is_asked_directly(state: DesiredState, resolvers: Resolvers, name: str) -> bool:
    """True if the resolvers are asked without going through interface `name` itself."""
    line_id = state.line_by_name.get(name)
    is_domestic = line_id is not None and state.lines[line_id].dns_profile == "domestic"
    return is_domestic and resolvers.has_line_dns


def line_resolvers(line: Line, resolvers: Resolvers) -> tuple[str, ...]:
    """Return the resolvers that a line's DNS profile names; none for those that its peer hands
    out.
    """
    match line.dns_profile if resolvers.has_line_dns else "auto":
        case "custom":
            return line.dns_servers
        case "domestic":
            return resolvers.domestic
        case "outbound":
            return resolvers.outbound
        case "return":
            return resolvers.home
        case _:
            return ()


def lines(state: DesiredState) -> dict[str, Line]:
    """Return the enabled lines, by interface name.

    A line from an earlier egressd or from a backup may have a form that netd refuses. It is left
    out, so that it blocks its own clients only.
    """
    enabled = (line for line in state.lines.values() if line.is_enabled)
    return {line.name: line for line in enabled if not malformed(line)}


def neighbours(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the servers of those of `nodes` that may be in a LAN. Unused nodes are included: a
    node is measured before it is used.
    """
    return {f"node:{node.id}": server for node in nodes if (server := neighbour_of(node))}


def whitelist(state: DesiredState) -> WhitelistPlan:
    """Return the target of listed destinations and the parts of the plan that detect them."""
    epoch = epoch_of(state.whitelist_count)
    if not whitelist_entries.has_entries(state.whitelist):
        return WhitelistPlan(epoch=epoch)
    mark = mark_of(state, state.whitelist.node)
    if _listed(state) is None:
        return WhitelistPlan(mark=mark, ranges=_ranges(state.whitelist), epoch=epoch)
    domains = whitelist_entries.listing_of(state.whitelist)
    return WhitelistPlan(
        mark=mark,
        ranges=_ranges(state.whitelist),
        sniffers=_sniffers(state),
        tcp_ports=domains.tcp_ports,
        udp_ports=domains.udp_ports,
        rule_sets=domains.rule_sets,
        epoch=epoch,
    )


def _sniffers(state: DesiredState) -> dict[int, int]:
    """Return mark of a kernel-routed target of rules -> mark of the instance that sniffs for it."""
    return {
        mark_of(state, target): sniffer_mark(number)
        for target in reached(state, ruled_targets(state)) - {state.whitelist.node}
        if (number := sniffer_number(state, target)) is not None
    }


@lru_cache(8)
def _ranges(listed: Whitelist) -> tuple[str, ...]:
    return merge(whitelist_entries.entries_of(listed).networks)
