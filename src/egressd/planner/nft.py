"""The elements of a plan in the sets of the nftables table, and the transactions that load them.

The table's text is in `planner.chains`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, collapse_addresses
from typing import Final, NamedTuple

from egressd.model.plan import Change, Plan, is_routed_member
from egressd.planner.bounds import Bounds
from egressd.planner.chains import CHAINS, MAPS, RETIRED, RETIRED_MAPS, SETS
from egressd.planner.flatten import range_text
from egressd.planner.groups import Choice, member_mark, routed_flows
from egressd.planner.lease_rules import GATED, is_of_gate
from egressd.planner.open_egresses import open_egresses
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_LISTED,
    NFT_TABLE,
    RESOLVER_IN_USE,
    asker_mark,
    asker_number,
    flow_mark,
)
from egressd.planner.resolvers import Resolver, candidates, first_answering, passed_over
from egressd.planner.sets import Elements, Sets
from egressd.planner.topology import Topology, inbound, interface_mark, is_line

INET: Final = Sets("inet", SETS, MAPS, "egressd: the egress of each client; see docs/dataplane.md")

_NOTHING: Final[Mapping[str, tuple[str, ...]]] = {}
_NO_CHOICES: Final[Mapping[str, Choice]] = {}
_NO_CHOICE: Final = Choice()
_BOUNDS: Final = Bounds()
_TAKE_AWAY = ("add", "flush", "delete")
_INLINED = ("lanif", "lannet", "localif")
"""Sets that every packet is looked up in, and that have one element on most devices."""
_LEFT_OUT = ("localif", "localnet", "wan_sources", "bound", "wl", "wlports")
"""Sets and maps that are empty on most devices; rules about an empty one are left out."""
_SOURCES = "lansrc"
"""The set of LANs and their networks. A look-up in it costs 0.8 µs, of 10.5 µs for a flow's first
packet, so a LAN with one network does without."""


class HostUpdate(NamedTuple):
    """An update of the map ``hosts``, at a cost that grows only with the change."""

    stale: Collection[str] = ()
    """Addresses to take out first."""
    fresh: Mapping[str, int] = {}
    """Addresses to put in, with their marks."""

    def script(self) -> str:
        """Return the update as commands; empty if there is nothing to do."""
        fresh = {ip: _mark(mark) for ip, mark in self.fresh.items()}
        lines = INET.swap("hosts", self.stale, fresh)
        return "\n".join(lines) + "\n" if lines else ""


class Greedy(NamedTuple):
    """A client that has too much open in the engine by a protocol, ``tcp`` or ``udp``."""

    client: str
    protocol: str
    is_of_network: bool = False
    """True if the bound is its network's, of addresses without a rule of their own, and the client
    has an undue share of it."""


class Crowd(NamedTuple):
    """Clients of proxy services that have reached the limit of connections."""

    callers: frozenset[str] = frozenset()
    """Addresses of these clients."""
    is_full: bool = False
    """True if the connections from outside of LANs have reached their limit."""


_NO_CROWD: Final = Crowd()


def elements(
    plan: Plan,
    topology: Topology,
    ports: Mapping[str, int],
    *,
    hosts: bool = True,
    choices: Mapping[str, Choice] = _NO_CHOICES,
    peer_dns: Mapping[str, tuple[str, ...]] = _NOTHING,
    silent: Collection[Resolver] = (),
    outdated: Collection[str] = (),
    ruled_locals: Collection[str] = (),
    greedy: Collection[Greedy] = (),
    api_ports: Collection[int] = (),
    crowd: Crowd = _NO_CROWD,
) -> Elements:
    """Return every element of every set.

    `ports`: instance key -> port that it listens on; `choices`: group key -> the choice of nodes
    for its clients; `peer_dns`: VPN line -> the resolvers that its peer hands out; `silent`:
    resolvers that do not answer; `outdated`: lines still up with outdated settings; `ruled_locals`:
    local networks with clients in them; `greedy`: clients whose further flows the engine refuses;
    `api_ports`: ports of the API; `crowd`: clients of which proxy services accept no further
    connections.

    Without `hosts`, the one large map is left out: it has `host_update`.

    A target without a port, or an egress without its interface, has no element that lets traffic
    through; its clients stay in ``hosts`` and meet ``deny``.
    """
    bindings = plan.bindings if plan.policy.is_ruled else {}
    own = {
        str(address): ""
        for name, address in topology.outer_addresses
        if address.version == 4 and (name in topology.wans or name in plan.egresses)
    }
    fixed = {str(address): "" for _, address in topology.fixed_sources}
    twins = {*map(str, topology.twin_addresses)}
    single = {address: "" for address in own if address not in twins}
    result: Elements = {
        **_lan_elements(topology),
        **_local_elements(plan, topology, ruled_locals),
        "seen": {_quoted(name): "" for name in topology.known},
        "outside": {
            _quoted(name): "" for name in (*topology.seen_wans, *plan.lines, *outdated) if name
        },
        "own": own,
        "wan_sources": {**single, **fixed} if fixed else {},
        "snat_sources": {_quoted(name): str(address) for name, address in topology.sources},
        "neighbours": dict.fromkeys(plan.neighbours.values(), ""),
        "greedy": {f"{each.client} . {each.protocol}": "" for each in greedy},
        "api_ports": {str(port): "" for port in api_ports},
        "busy_callers": dict.fromkeys(sorted(crowd.callers), ""),
        "busy_outside": {"tcp": ""} if crowd.is_full else {},
        "bound": dict.fromkeys(bindings, ""),
        "bindings": {f"{address} . {mac}": "" for address, mac in bindings.items()},
        "hosts": {},
        "nets": {range_text(k): _mark(m) for k, m in plan.nets.items()}
        if plan.policy.is_ruled
        else {},
        "dflt": {},
        "wl": _listed(plan.whitelist.ranges, plan.whitelist.mark),
        "wlports": {
            **{f"tcp . {port}": "" for port in plan.whitelist.tcp_ports},
            **{f"udp . {port}": "" for port in plan.whitelist.udp_ports},
        },
        "sniff": {_mark(k): _mark(m) for k, m in plan.whitelist.sniffers.items()},
        "listed": _listed_engine(plan.whitelist.mark),
        "services": {str(i.port): "" for i in plan.instances.values() if i.port},
        "lanonly": {str(i.port): "" for i in plan.instances.values() if i.port and i.lan_only},
    }
    if plan.policy.unmanaged and not plan.policy.stopped:
        result["dflt"] = {_quoted(name): _mark(plan.policy.unmanaged) for name in topology.lans}
    if hosts and plan.policy.is_ruled:
        result["hosts"] = {address: _mark(mark) for address, mark in plan.hosts.items()}
    elif not hosts:
        del result["hosts"]
    result.update(_target_elements(plan, topology, ports, outdated))
    servers = candidates(plan, peer_dns)
    result.update(_resolver_elements(servers, silent, topology, plan.policy.local_resolvers))
    result.update(_group_elements(plan, choices, ports))
    return result


def _lan_elements(topology: Topology) -> Elements:
    """Return the LANs and their networks. One within another, which a second address may have, is
    left out: ranges of a set must not overlap.
    """
    of_lan: dict[str, list[IPv4Network]] = {}
    for name, network in topology.lan_networks:
        of_lan.setdefault(name, []).append(network)
    networks = collapse_addresses(network for _, network in topology.lan_networks)
    for name, network in topology.local_networks:
        of_lan.setdefault(name, []).append(network)
    return {
        "lanif": {_quoted(name): "" for name in topology.lans},
        "lannet": {str(network): "" for network in networks},
        "lansrc": {
            f"{_quoted(name)} . {network}": ""
            for name, of_this in of_lan.items()
            for network in collapse_addresses(of_this)
        },
        "unheard": {_quoted(name): "" for name in topology.unheard},
        "routers6": {f"{_quoted(name)} . {router}": "" for name, router in topology.routers6},
        "multicast": {_quoted(name): "" for name in topology.known if topology.multicast},
    }


def _local_elements(plan: Plan, topology: Topology, ruled_locals: Collection[str]) -> Elements:
    """Return the local networks; their hosts without a rule keep their access while the device
    runs.
    """
    networks = collapse_addresses(network for _, network in topology.local_networks)
    passing = () if plan.policy.stopped else ruled_locals
    return {
        "localif": {_quoted(name): "" for name in topology.local},
        "localnet": {str(network): "" for network in networks},
        "unruled": {_quoted(name): "" for name in passing},
    }


def _target_elements(
    plan: Plan,
    topology: Topology,
    ports: Mapping[str, int],
    outdated: Collection[str],
) -> Elements:
    """Return the sets that follow from engine instances, egresses and WANs."""
    served = {i.mark: ports[i.key] for i in plan.instances.values() if i.mark and i.key in ports}
    egresses = {name: interface_mark(name, e.number) for name, e in plan.egresses.items()}
    answers = {name: interface_mark(name, e.number) for name, e in inbound(topology).items()}
    names = open_egresses(plan, topology, outdated)
    alive = {egresses[n]: plan.egresses[n] for n in names if n in topology.routable}
    asked = [mark for mark, egress in alive.items() if egress.is_asked_directly]
    direct = [MARK_DIRECT, MARK_ASKED_DIRECTLY] if asked else [MARK_DIRECT]
    routed = [*alive, *direct]
    flows = {mark: flow_mark(mark, plan.whitelist.epoch) for mark in routed}
    allowed = [*((mark, mark) for mark in served), *((flow, mark) for mark, flow in flows.items())]
    exits = [(mark, name) for name in topology.direct_exits for mark in direct]
    exits += [(egresses[name], name) for name in names]
    exits += [(mark, name) for name, mark in answers.items()]
    pairs = {
        f"{_mark(mark)} . {_quoted(name)}": (
            "goto to_narrow" if is_line(name) or name in topology.narrow else "accept"
        )
        for mark, name in exits
    }
    return {
        "alive": {_mark(m): "" for m in routed},
        "noudp": {_mark(i.mark): "" for i in plan.instances.values() if i.mark and not i.udp},
        "shortudp": {_mark(i.mark): "" for i in plan.instances.values() if i.mark and i.short},
        "allowed_connmarks": {f"{_mark(flow)} . {_mark(mark)}": "" for flow, mark in allowed},
        "unmanaged_connmarks": {f"{_mark(mark)} . {_mark(mark)}": "" for mark in routed},
        "connmark_of": {_mark(mark): _mark(flow) for mark, flow in flows.items()},
        "pairs": pairs,
        # This machine's own flows have no mark.
        "ways_in": {
            f"{_mark(mark)} . {_quoted(name)}": ""
            for egress, name in exits
            if name in topology.lans
            for mark in (egress, 0)
        },
        "asked": {_mark(mark): _mark(MARK_ASKED_DIRECTLY) for mark in asked},
        "askers": {
            _mark(mark): _mark(asker_mark(asker_number(mark)))
            for mark in ([*alive, MARK_DIRECT] if plan.policy.local_resolvers else ())
        },
        "ports": {_mark(mark): str(port) for mark, port in served.items()},
        "inmark": {_quoted(name): _mark(mark) for name, mark in answers.items()},
    }


def _resolver_elements(
    servers: Mapping[int, tuple[str, ...]],
    silent: Collection[Resolver],
    topology: Topology,
    local_resolvers: Collection[str],
) -> Elements:
    """Return the resolver of each egress, and the resolvers that may be asked."""
    chosen = first_answering(servers, silent)
    own = set(map(str, topology.router_addresses))
    return {
        "dns4": {_mark(mark): server for mark, server in chosen.items()},
        "substitutes": {
            f"{_mark(mark)} . {server}": chosen[mark]
            for mark, server in passed_over(servers, chosen)
        }
        | {
            f"{_mark(mark)} . {RESOLVER_IN_USE}": server
            for mark, server in (chosen.items() if local_resolvers else ())
        },
        "resolvers": {
            server: "" for each in (*servers.values(), local_resolvers) for server in each
        },
        "here": {f"{_mark(m)} . {server}": "" for m, server in chosen.items() if server in own},
    }


@lru_cache(4)
def _listed(ranges: tuple[str, ...], mark: int) -> dict[str, str]:
    return {range_text(r): _mark(mark) for r in ranges}


def _listed_engine(mark: int) -> dict[str, str]:
    """Return the instance for traffic that instances found to be listed, if an instance serves
    it.
    """
    return {_mark(MARK_LISTED): _mark(mark)} if mark & MARK_KIND_MASK == MARK_ENGINE else {}


def _group_elements(
    plan: Plan, choices: Mapping[str, Choice], ports: Mapping[str, int]
) -> Elements:
    """Return the members of groups and their clients' members. Without a choice, which is the case
    before the engine runs, no client is served.
    """
    result: Elements = {"members": {}, "elected": {}, "kept": {}, "slots": {}}
    for name, group in plan.groups.items():
        choice, own = choices.get(name, _NO_CHOICE), _mark(group.mark)
        marks = {key: _mark(member_mark(plan, key)) for key in group.members}
        flows = (flow for key in choice.living for flow in _flows_of_member(plan, key, ports))
        result["members"] |= {f"{own} . {_mark(flow)}": "" for flow in flows}
        if choice.elected:
            result["elected"][own] = marks[choice.elected]
        result["kept"] |= {f"{own} . {c}": marks[key] for c, key in choice.kept.items()}
        result["slots"] |= {f"{own} . {_mark(n)}": marks[key] for n, key in enumerate(choice.slots)}
    return result


def _flows_of_member(plan: Plan, key: str, ports: Mapping[str, int]) -> Iterable[int]:
    """Return the conntrack marks of the flows that go by a member of a group."""
    if is_routed_member(key):
        return routed_flows(plan, key)
    # A standby node may have lived, and have been lost with its worker.
    return (member_mark(plan, key),) if key in ports else ()


def load(
    wanted: Elements,
    bounds: Bounds = _BOUNDS,
    *,
    is_gated: bool = False,
    had_gate: bool = False,
) -> str:
    """Return one transaction that brings the table to this state, from any previous state.

    Sets are flushed and filled in place. Deleting and adding a table or an interval set on a live
    machine lets packets through in between (measured: 61 of 1.44 million).

    `is_gated`: clients' packets need a lease. The lease itself stays as it is; there is none in a
    table that had no gate before. `had_gate`: the table may have a gate, which is removed if the
    new one has none.
    """
    texts = {**bounds.words(), **_inlined(wanted)}
    left_out = frozenset[str]() if is_gated else GATED
    chains = {name: chain for name, chain in CHAINS.items() if name not in left_out}
    lines = INET.ensure(name for name in INET.names if name not in left_out)
    # Added first, so that the deletion always finds one.
    lines += [f"{does} chain inet {NFT_TABLE} {c}" for c in RETIRED for does in _TAKE_AWAY]
    lines += [f"add chain inet {NFT_TABLE} {name} {c.declared()}" for name, c in chains.items()]
    lines += [f"flush chain inet {NFT_TABLE} {chain}" for chain in chains]
    if had_gate and not is_gated:
        lines += _without_gate()
    for name, spec in RETIRED_MAPS.items():
        lines += [f"add map inet {NFT_TABLE} {name} {{ {spec}; }}"]
        lines += [f"delete map inet {NFT_TABLE} {name}"]
    for name, chain in chains.items():
        lines += [
            f"add rule inet {NFT_TABLE} {name} {_replaced(rule, texts)}"
            for rule in chain.rules
            if not _is_left_out(rule, wanted) and (is_gated or not is_of_gate(rule))
        ]
    for name, content in wanted.items():
        lines += INET.refill(name, content)
    return "\n".join(lines) + "\n"


def with_cut(text: str, elements: Iterable[str]) -> str:
    """Return the transaction `text`, a `load`, with elements of the set ``cut_flows`` besides.

    Those that are in the set already stay as they are. Each element takes 6 µs.
    """
    lines = INET.swap("cut_flows", (), dict.fromkeys(elements, ""))
    return "".join((text, *(f"{line}\n" for line in lines)))


def needs_load(before: Elements, after: Elements) -> bool:
    """True if the text of the chains has to change: it contains the only element of some sets, and
    no rules about some empty ones.
    """
    return any(before.get(name) != after[name] for name in (*_INLINED, _SOURCES)) or any(
        bool(before.get(name)) != bool(after[name]) for name in _LEFT_OUT
    )


def host_update(before: Mapping[str, int], change: Change) -> HostUpdate:
    """Return the update for the hosts of `change`."""
    patch = change.hosts
    stale = [ip for ip in (*patch.put, *patch.drop) if ip in before]
    return HostUpdate(stale, patch.put)


def restrict_to_lan(ports: Iterable[int]) -> str:
    """Return the transaction that closes ports to all but the LAN, before a socket listens
    there.
    """
    fresh = {str(port): "" for port in ports}
    lines = [*INET.swap("lanonly", (), fresh), *INET.swap("services", (), fresh)]
    return "\n".join(lines) + "\n"


def afresh(text: str) -> str:
    """Return the transaction that loads a table by `text` in place of any of its name."""
    return f"add table inet {NFT_TABLE}\ndelete table inet {NFT_TABLE}\n{text}"


def block() -> str:
    """Return the transaction that leaves no client an egress, independent of the loaded plan."""
    maps = "".join(f"flush map inet {NFT_TABLE} {name}\n" for name in ("hosts", "nets", "dflt"))
    return f"{maps}flush set inet {NFT_TABLE} unruled\n"


def _without_gate() -> list[str]:
    """Return the commands that remove the gate's chains and sets, once no rule leads to them."""
    chains = [name for name in CHAINS if name in GATED]
    lines = [f"{does} chain inet {NFT_TABLE} {name}" for name in chains for does in _TAKE_AWAY]
    for name in (name for name in SETS if name in GATED):
        lines += INET.ensure((name,))[1:]
        lines.append(f"delete set inet {NFT_TABLE} {name}")
    return lines


def _inlined(wanted: Elements) -> dict[str, str]:
    """Return what is put in place of look-ups in one-element sets, because a comparison is cheaper
    than a look-up.
    """
    found = {f"@{name}": next(iter(wanted[name])) for name in _INLINED if len(wanted[name]) == 1}
    if (network := _only_source(wanted)) is not None:
        found[f"iifname . ip saddr != @{_SOURCES}"] = f"ip saddr != {network}"
    return found


def _replaced(rule: str, texts: Mapping[str, str]) -> str:
    for text, other in texts.items():
        rule = rule.replace(text, other)
    return rule


def _only_source(wanted: Elements) -> str | None:
    """Return the network of the only LAN if it has one, and no local network is beside it: packets
    of no other interface are then looked up in `_SOURCES`.
    """
    if wanted["localif"] or len(wanted["lanif"]) != 1 or len(wanted[_SOURCES]) != 1:
        return None
    interface, _, network = next(iter(wanted[_SOURCES])).partition(" . ")
    return network if interface in wanted["lanif"] else None


def _is_left_out(rule: str, wanted: Elements) -> bool:
    """True if the rule is about something that does not exist on this device."""
    missing = (f"@{name} " for name in _LEFT_OUT if not wanted[name])
    return any(each in rule and f"!= {each}" not in rule for each in missing)


def _mark(mark: int) -> str:
    return f"{mark:#010x}"


def _quoted(interface: str) -> str:
    return f'"{interface}"'
