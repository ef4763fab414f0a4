"""The nftables table of egressd: its chains, and the elements that a plan puts in its sets.

The chains are loaded once and never change; a client, a target or an interface is an
element. So a change costs the kernel one element, and a packet costs a few hash look-ups
whatever the number of rules.

How a LAN client's packet goes (``docs/dataplane.md`` draws it):

1. ``from_lan`` drops spoofed sources and lets pass what is for the router or another LAN.
2. ``client`` and ``managed`` look up the mark of the client's target.
3. ``dispatch`` sends it to the engine (TPROXY), to the kernel's forwarding, or to ``deny``.
4. ``group``: among a group's nodes a flow keeps the one it has while that lives; a new flow gets
   the one chosen for its client. From here on it bears that node's mark.
5. ``seal`` and ``routed``: a flow keeps its first mark as conntrack mark; once its client's mark
   is another, the flow is reset. So the change of the element is itself the cut. Flows that the
   kernel routes keep the whitelist's epoch beside it.
6. ``forward`` checks that the mark and the outgoing interface agree, whatever routing did.

Written for nftables 1.0.6: no chain on one line, and interfaces by name (``iifname``), since an
index goes stale when an interface is made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from egressd.model.plan import Change, Plan
from egressd.planner import lines_guard
from egressd.planner.groups import SLOTS, Choice
from egressd.planner.lines_pppd import MTU_MIN
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_EGRESS,
    MARK_ENGINE,
    MARK_EPOCH_MASK,
    MARK_GROUP,
    MARK_GROUP_MASK,
    MARK_KIND_MASK,
    MARK_LINE,
    MARK_LISTED,
    MARK_ROUTED_MASK,
    NFT_TABLE,
    flow_mark,
)
from egressd.planner.topology import Topology, interface_mark, is_line, with_unplanned

Elements = dict[str, dict[str, str]]
"""Set or map name -> key -> value (an empty string in a set)."""

_SETS = {
    "lanif": "type ifname",
    "lannet": "type ipv4_addr; flags interval",
    "lansrc": "type ifname . ipv4_addr; flags interval",
    "alive": "type mark",
    "noudp": "type mark",
    "same": "type mark . mark",
    "plain": "type mark . mark",
    "wlports": "type inet_proto . inet_service",
    "services": "type inet_service",
    "lanonly": "type inet_service",
    "guesses": "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 10m",
    "guessers": "type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m",
    "members": "type mark . mark",
}
_MAPS = {
    "hosts": "type ipv4_addr : mark",
    "nets": "type ipv4_addr : mark; flags interval",
    "dflt": "type ifname : mark",
    "wl": "type ipv4_addr : mark; flags interval",
    "ports": "type mark : inet_service",
    "sniff": "type mark : mark",
    "listed": "type mark : mark",
    "pairs": "type mark . ifname : verdict",
    "asked": "type mark : mark",
    "sealed": "type mark : mark",
    "dns4": "type mark : ipv4_addr",
    "inmark": "type ifname : mark",
    "elected": "type mark : mark",
    "kept": "type mark . ipv4_addr : mark",
    "slots": "type mark . mark : mark",
}
_NOTHING: Final[Mapping[str, str]] = {}
_NO_CHOICES: Final[Mapping[str, Choice]] = {}
_INTERVAL = frozenset(name for name, spec in {**_SETS, **_MAPS}.items() if "flags interval" in spec)
"""Sets that are flushed and filled again as a whole: adding one element to an interval set
makes libnftables read all of it first."""

_INLINED = ("lanif", "lannet")
"""Sets that every packet is looked up in, and that most devices have one element in."""

_GUESSES: Final = "10/minute burst 10 packets"
"""Wrong passwords that one source may send to proxy services before it is made to wait."""
_PROXY_AUTHENTICATION_REQUIRED: Final = f"0x{b'HTTP/1.1 407'.hex()}"

_HEADERS: Final = 40
"""Bytes of an IPv4 and a TCP header without options: what an MSS leaves out (RFC 879)."""

_NO_EPOCH = 0xFFFF_FFFF & ~MARK_EPOCH_MASK
_KIND = f"meta mark & {MARK_KIND_MASK:#x}"
_ROUTED = f"& {MARK_ROUTED_MASK:#x} == {MARK_EGRESS:#x}"

_CHAINS: dict[str, tuple[str, ...]] = {
    "prerouting_mark": (
        "type filter hook prerouting priority mangle; policy accept;",
        "iifname @lanif goto from_lan",
        # Answers to flows that the kernel routes, VPN lines' aside. The rules up to here and in
        # known are what most packets meet: each expression more is felt.
        f"ct mark & {MARK_ROUTED_MASK | MARK_LINE:#x} == {MARK_EGRESS:#x} accept",
        'iifname "lo" goto from_self',
        f"ct mark {_ROUTED} goto from_line",
        # Nobody outside may pose as a client, or as this machine (see routing's accept_local).
        "ip saddr @lannet drop",
        "ct state new,invalid fib saddr type local drop",
        # A connection that comes in by a WAN is answered by that WAN.
        "ct state new ct mark set iifname map @inmark",
    ),
    "from_line": (
        # Clients learn how much fits before they send it: the far end's answer to a SYN.
        f"tcp flags syn tcp option maxseg size set {MTU_MIN - _HEADERS}",
        "accept",
    ),
    "from_self": (
        # What an instance found to be listed goes to the whitelist's own destination.
        f"meta mark != {MARK_LISTED:#x} accept",
        "meta mark set meta mark map @listed goto engine",
        "goto deny",
    ),
    "from_lan": (
        f"ct mark {_ROUTED} goto known",
        "goto unknown",
    ),
    "known": (
        # A flow that the kernel routes, and that went through all of unknown before. While
        # its client has the mark it was given then, there is nothing else to look at.
        "meta mark set ip saddr map @hosts goto unmoved",
        "meta mark set ip saddr map @nets goto unmoved",
        "goto unknown",
    ),
    "unmoved": (
        "ct mark . meta mark @same accept",
        "goto unknown",
    ),
    "unknown": (
        # IPv6 reaches the router and no further: see forward and the routing floor.
        "meta nfproto ipv6 accept",
        "meta mark set 0",
        "fib saddr type local drop",
        "fib daddr type { broadcast, multicast } accept",
        # In one-arm use answers from outside arrive on the LAN interface too.
        "iifname . ip saddr != @lansrc ct direction reply ct state established,related accept",
        "iifname . ip saddr != @lansrc drop",
        # Answers to a connection that a WAN brought in, or that was routed by the kernel.
        f"ct direction reply ct mark {_ROUTED} meta mark set ct mark & {_NO_EPOCH:#x} accept",
        # DNS goes the client's own way, whichever resolver it asks, this router included.
        "meta l4proto { tcp, udp } th dport 53 goto asking",
        "fib daddr type local accept",
        "ip daddr @lannet accept",
        "goto client",
    ),
    "asking": (
        "meta mark set ip saddr map @hosts goto ask",
        "meta mark set ip saddr map @nets goto ask",
        "meta mark set iifname map @dflt goto ask_unmanaged",
        "goto deny",
    ),
    "ask": (
        # The resolver of a line may be one that is not asked through it.
        "meta mark set meta mark map @asked",
        "goto dispatch",
    ),
    "ask_unmanaged": (
        "meta mark set meta mark map @asked",
        "goto unmanaged",
    ),
    "client": (
        "meta mark set ip saddr map @hosts goto managed",
        "meta mark set ip saddr map @nets goto managed",
        "meta mark set iifname map @dflt goto unmanaged",
        "goto deny",
    ),
    "unmanaged": (
        # The whitelist is not for clients without a rule, and its changes are no concern of theirs.
        f"{_KIND} {MARK_ENGINE:#x} goto engine",
        "meta mark != @alive goto deny",
        "ct mark 0 ct mark set meta mark accept",
        "ct mark . meta mark @plain accept",
        "goto cut",
    ),
    "managed": (
        "meta mark set ip daddr map @wl goto dispatch",
        # Kernel-routed targets enter the engine only where whitelist domains must be seen.
        "meta l4proto . th dport @wlports meta mark set meta mark map @sniff goto engine",
        "goto dispatch",
    ),
    "dispatch": (
        f"{_KIND} {MARK_ENGINE:#x} goto engine",
        f"meta mark {_ROUTED} goto routed",
        # Who is refused otherwise has to learn the addresses of listed domains.
        "meta l4proto { tcp, udp } th dport 53 meta mark set meta mark map @sniff goto engine",
        "goto deny",
    ),
    "routed": (
        # An egress that is down answers at once, and resets the flows it had.
        "meta mark != @alive goto deny",
        # Sealed together with the whitelist's epoch: saving the whitelist cuts what there is.
        "ct mark 0 ct mark set meta mark map @sealed accept",
        "ct mark . meta mark @same accept",
        "goto cut",
    ),
    "engine": (
        f"meta mark & {MARK_GROUP_MASK:#x} == {MARK_GROUP:#x} jump group",
        "udp dport != 53 meta mark @noudp reject with icmpx port-unreachable",
        "jump seal",
        "meta l4proto { tcp, udp } tproxy ip to 127.0.0.1:meta mark map @ports accept",
        # tproxy fails open when nothing listens: what gets here must not go on.
        "goto deny",
    ),
    "group": (
        "meta mark . ct mark @members meta mark set ct mark return",
        "meta mark set meta mark map @elected return",
        "meta mark set meta mark . ip saddr map @kept return",
        "ct mark != 0 goto deny",
        # nftables 1.0.6 cannot have a hash in a key of several parts: it goes by way of a mark.
        "ct mark set meta mark",
        f"meta mark set jhash ip saddr mod {SLOTS}",
        "meta mark set ct mark . meta mark map @slots goto hashed",
        "ct mark set 0",
        "goto deny",
    ),
    "hashed": ("ct mark set 0",),
    "seal": (
        "ct mark 0 ct mark set meta mark return",
        "ct mark . meta mark @same return",
        "goto cut",
    ),
    "cut": (
        "meta l4proto tcp reject with tcp reset",
        "drop",
    ),
    "deny": (
        "meta l4proto tcp reject with tcp reset",
        "reject with icmpx admin-prohibited",
    ),
    "prerouting_dns": (
        "type nat hook prerouting priority dstnat; policy accept;",
        "iifname @lanif meta l4proto { tcp, udp } th dport 53 dnat ip to meta mark map @dns4",
    ),
    "input_dns": (
        "type filter hook input priority filter; policy accept;",
        # A kernel-routed client's question that found no resolver of its own stops here.
        f"iifname @lanif meta mark {_ROUTED} meta l4proto {{ tcp, udp }} th dport 53 drop",
        "iifname @lanif meta nfproto ipv6 meta l4proto { tcp, udp } th dport { 53, 853 } reject",
    ),
    "input_services": (
        "type filter hook input priority filter; policy accept;",
        "tcp dport @services goto to_service",
    ),
    "to_service": (
        # A proxy service that asks for no password is for LAN clients.
        'tcp dport @lanonly ip saddr != @lannet iifname != "lo" reject with tcp reset',
        # Who guesses passwords has to wait before the next connection.
        "ct state new ip saddr @guessers reject with tcp reset",
    ),
    "from_service": (
        # What it answers to a wrong password: status 1 (RFC 1929), or HTTP's 407.
        "@ih,0,16 0x0101 goto guessed",
        f"@ih,0,96 {_PROXY_AUTHENTICATION_REQUIRED} goto guessed",
    ),
    "guessed": (f"update @guesses {{ ip daddr limit rate over {_GUESSES} }} goto wait",),
    "wait": ("update @guessers { ip daddr }",),
    "forward": (
        "type filter hook forward priority filter; policy accept;",
        "iifname @lanif goto forward_from_lan",
        "oifname @lanif goto forward_to_lan",
    ),
    "forward_from_lan": (
        "meta mark . oifname vmap @pairs",
        "oifname @lanif ip daddr @lannet accept",
        "drop",
    ),
    "to_line": (
        "tcp flags syn tcp option maxseg size set rt mtu",
        "accept",
    ),
    "forward_to_lan": (
        "ct state established,related accept",
        "ct status dnat accept",
        "drop",
    ),
    "output": (
        "type filter hook output priority filter; policy accept;",
        f"{_KIND} {MARK_EGRESS:#x} goto from_engine",
        "tcp sport @services goto from_service",
    ),
    "from_engine": (
        # The engine's own sockets: bound to one interface, they leave by it or not at all.
        "meta mark . oifname vmap @pairs",
        "drop",
    ),
    **lines_guard.CHAINS,
    "postrouting_nat": (
        "type nat hook postrouting priority srcnat; policy accept;",
        f"meta mark {_ROUTED} ip saddr @lannet fib saddr type != local masquerade",
    ),
    "postrouting_last": (
        "type filter hook postrouting priority 300; policy accept;",
        # A client's own address never shows outside.
        "ip saddr @lannet ip daddr != @lannet fib saddr type != local drop",
    ),
}


def elements(
    plan: Plan,
    topology: Topology,
    ports: Mapping[str, int],
    *,
    hosts: bool = True,
    choices: Mapping[str, Choice] = _NO_CHOICES,
    handed_out: Mapping[str, str] = _NOTHING,
) -> Elements:
    """Every element of every set. `ports`: instance key -> port that it listens on; `choices`:
    group key -> where its clients go; `handed_out`: VPN line -> the resolver that its peer hands
    out.

    Without `hosts`, the one large map is left out: it has `host_update`.

    A target without a port, or an egress without its interface, has no element that lets
    traffic through; its clients stay in ``hosts`` and meet ``deny``.
    """
    result: Elements = {
        "lanif": {_quoted(name): "" for name in topology.lans},
        "lannet": {str(network): "" for _, network in topology.lan_networks},
        "lansrc": {f"{_quoted(i)} . {n}": "" for i, n in topology.lan_networks},
        "hosts": {},
        "nets": {_range(k): _mark(m) for k, m in plan.nets.items()} if plan.floor.is_ruled else {},
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
    if plan.floor.unmanaged and not plan.floor.stopped:
        result["dflt"] = {_quoted(name): _mark(plan.floor.unmanaged) for name in topology.lans}
    if hosts and plan.floor.is_ruled:
        result["hosts"] = {address: _mark(mark) for address, mark in plan.hosts.items()}
    elif not hosts:
        del result["hosts"]
    result.update(_target_elements(plan, topology, ports, handed_out))
    result.update(_group_elements(plan, choices))
    return result


def _target_elements(
    plan: Plan, topology: Topology, ports: Mapping[str, int], handed_out: Mapping[str, str]
) -> Elements:
    """The sets that follow from engine instances, egresses and WANs.

    A line that is not to be up has no way out, though its interface takes a moment to go.
    """
    served = {i.mark: ports[i.key] for i in plan.instances.values() if i.mark and i.key in ports}
    every = with_unplanned(plan.egresses, topology)
    egresses = {name: interface_mark(name, e.number) for name, e in every.items()}
    ways = [name for name in egresses if not is_line(name) or name in plan.lines]
    alive = {egresses[name]: every[name] for name in ways if name in topology.routable}
    asked = [mark for mark, egress in alive.items() if egress.is_asked_directly]
    direct = [MARK_DIRECT, MARK_ASKED_DIRECTLY] if asked else [MARK_DIRECT]
    routed = [*alive, *direct]
    flows = {mark: flow_mark(mark, plan.whitelist.epoch) for mark in routed}
    seals = [*((mark, mark) for mark in served), *((flow, mark) for mark, flow in flows.items())]
    pairs = {
        f"{_mark(mark)} . {_quoted(name)}": "accept"
        for name in topology.direct_exits
        for mark in direct
    }
    pairs |= {
        f"{_mark(egresses[name])} . {_quoted(name)}": "goto to_line" if is_line(name) else "accept"
        for name in ways
    }
    resolvers = {MARK_DIRECT: plan.floor.resolver}
    for name, egress in every.items():
        mark = MARK_ASKED_DIRECTLY if egress.is_asked_directly else egresses[name]
        natural = (handed_out.get(name) or plan.floor.resolver) if is_line(name) else ""
        resolvers[mark] = egress.resolver or natural
    return {
        "alive": {_mark(m): "" for m in routed},
        "noudp": {_mark(i.mark): "" for i in plan.instances.values() if i.mark and not i.udp},
        "same": {f"{_mark(flow)} . {_mark(mark)}": "" for flow, mark in seals},
        "plain": {f"{_mark(mark)} . {_mark(mark)}": "" for mark in routed},
        "sealed": {_mark(mark): _mark(flow) for mark, flow in flows.items()},
        "pairs": pairs,
        "asked": {_mark(mark): _mark(MARK_ASKED_DIRECTLY) for mark in asked},
        "ports": {_mark(mark): str(port) for mark, port in served.items()},
        "dns4": {_mark(mark): server for mark, server in resolvers.items() if server},
        "inmark": {_quoted(name): _mark(egresses[name]) for name in topology.wans},
    }


@lru_cache(4)
def _listed(ranges: tuple[str, ...], mark: int) -> dict[str, str]:
    return {_range(r): _mark(mark) for r in ranges}


def _listed_engine(mark: int) -> dict[str, str]:
    """Where what instances found to be listed goes, when that is another instance."""
    return {_mark(MARK_LISTED): _mark(mark)} if mark & MARK_KIND_MASK == MARK_ENGINE else {}


def _group_elements(plan: Plan, choices: Mapping[str, Choice]) -> Elements:
    """Who serves whom in the groups."""
    result: Elements = {"members": {}, "elected": {}, "kept": {}, "slots": {}}
    marks = {key: _mark(instance.mark) for key, instance in plan.instances.items()}
    for name, group in plan.groups.items():
        choice, own = choices[name], _mark(group.mark)
        result["members"] |= {f"{own} . {marks[key]}": "" for key in choice.living}
        if choice.elected:
            result["elected"][own] = marks[choice.elected]
        result["kept"] |= {f"{own} . {c}": marks[key] for c, key in choice.kept.items()}
        result["slots"] |= {f"{own} . {_mark(n)}": marks[key] for n, key in enumerate(choice.slots)}
    return result


def load(wanted: Elements) -> str:
    """One transaction that makes the table just so, from whatever it is now.

    Sets are flushed and filled in place. Deleting and adding a table or an interval set on a
    live machine lets packets through in between (measured: 61 of 1.44 million).
    """
    lines = [f"add table inet {NFT_TABLE}"]
    lines += [f"add set inet {NFT_TABLE} {name} {{ {spec}; }}" for name, spec in _SETS.items()]
    lines += [f"add map inet {NFT_TABLE} {name} {{ {spec}; }}" for name, spec in _MAPS.items()]
    for chain, rules in _CHAINS.items():
        hook = f" {{ {rules[0]} }}" if rules[0].startswith("type ") else ""
        lines.append(f"add chain inet {NFT_TABLE} {chain}{hook}")
    lines += [f"flush chain inet {NFT_TABLE} {chain}" for chain in _CHAINS]
    for chain, rules in _CHAINS.items():
        lines += [
            f"add rule inet {NFT_TABLE} {chain} {_inlined(rule, wanted)}"
            for rule in rules
            if not rule.startswith("type ")
        ]
    for name, content in wanted.items():
        lines += _refill(name, content)
    return "\n".join(lines) + "\n"


def needs_load(before: Elements, after: Elements) -> bool:
    """Whether the chains themselves have to be another text: they name what is the only one."""
    return any(before.get(name) != after[name] for name in _INLINED)


def update(before: Elements, after: Elements) -> str:
    """The transaction that leads from `before` to `after`; empty when nothing differs.

    Only the sets present in `after` are looked at.
    """
    lines: list[str] = []
    for name, content in after.items():
        known = before.get(name, {})
        if content == known:
            continue
        if name in _INTERVAL:
            lines += _refill(name, content)
        else:
            stale = [k for k, v in known.items() if content.get(k) != v]
            fresh = {k: v for k, v in content.items() if known.get(k) != v}
            lines += _swap(name, stale, fresh)
    return "\n".join(lines) + "\n" if lines else ""


def host_update(before: Mapping[str, int], change: Change) -> str:
    """The transaction for the hosts of `change`, at a cost that only grows with the change."""
    patch = change.hosts
    stale = [ip for ip in (*patch.put, *patch.drop) if ip in before]
    lines = _swap("hosts", stale, {ip: _mark(mark) for ip, mark in patch.put.items()})
    return "\n".join(lines) + "\n" if lines else ""


def shield(ports: Iterable[int]) -> str:
    """The transaction that closes ports to all but the LAN, before anybody listens there."""
    fresh = {str(port): "" for port in ports}
    lines = [*_swap("lanonly", (), fresh), *_swap("services", (), fresh)]
    return "\n".join(lines) + "\n"


def _inlined(rule: str, wanted: Elements) -> str:
    """The rule with sets of one element replaced by it: a comparison is cheaper than a look-up."""
    for name in _INLINED:
        if len(wanted[name]) == 1:
            rule = rule.replace(f"@{name}", next(iter(wanted[name])))
    return rule


def _refill(name: str, content: Mapping[str, str]) -> list[str]:
    kind = "map" if name in _MAPS else "set"
    return [f"flush {kind} inet {NFT_TABLE} {name}", *_swap(name, (), content)]


def _swap(name: str, stale: Iterable[str], fresh: Mapping[str, str]) -> list[str]:
    lines = []
    if keys := ", ".join(stale):
        lines.append(f"delete element inet {NFT_TABLE} {name} {{ {keys} }}")
    if items := ", ".join(f"{k} : {v}" if v else k for k, v in fresh.items()):
        lines.append(f"add element inet {NFT_TABLE} {name} {{ {items} }}")
    return lines


def _mark(mark: int) -> str:
    return f"{mark:#010x}"


def _quoted(interface: str) -> str:
    return f'"{interface}"'


def _range(text: str) -> str:
    """``first-last`` as nft takes it: one address when both are the same."""
    first, _, last = text.partition("-")
    return first if first == last else text
