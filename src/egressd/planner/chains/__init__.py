"""The text of egressd's nftables table: its sets, maps and chains.

The chains are loaded once and never change; a client, a target or an interface is an element
(`planner.nft`). So a change costs the kernel one element, and a packet costs a few hash look-ups
regardless of the number of rules.

The path of a LAN client's packet (``docs/dataplane.md`` draws it):

1. ``from_lan`` drops spoofed sources and accepts packets for the router or another LAN.
2. ``client`` and ``managed`` look up the mark of the client's target.
3. ``dispatch`` sends it to the engine (TPROXY), to the kernel's forwarding, or to ``deny``.
4. ``group``: among a group's nodes a flow keeps its node while that lives; a new flow gets the
   node chosen for its client. From here on it bears that node's mark.
5. ``connmark_check`` and ``routed``: a flow keeps its first mark as conntrack mark; once its
   client's mark changes, the flow is reset. So the change of the element is itself the cut. Flows
   that the kernel routes keep the whitelist's epoch beside it.
   Further packets of a connection take shorter chains: ``known`` and ``known_to_engine``.
6. ``forward`` checks that the mark and the outgoing interface agree, independent of routing.

The files, by hook:

- prerouting: `prerouting` (steps 1 to 3, and `routed`), `engine` (4 and `connmark_check`), `bounds`
  (the limits of one client) and `dns`;
- forward, input and postrouting: files of these names;
- output: `output`, and `answers` (those of the engine to clients).

Proxy services, VPN lines, the API and a site's lease have files of their own
(`planner.proxy_service_rules`, `planner.lines.line_rules`, `planner.api_guard`,
`planner.lease_rules`), because each of them is about several hooks.

Written for nftables 1.0.6 and 1.1, which parse this text alike: no chain on one line, and
interfaces by name (``iifname``), because an index goes stale when an interface is recreated.
"""

from __future__ import annotations

from typing import Final

from egressd.planner import api_guard, lease_rules, proxy_service_rules
from egressd.planner.chains import (
    answers,
    bounds,
    dns,
    engine,
    forward,
    output,
    postrouting,
    prerouting,
)
from egressd.planner.chains import input as input_hook
from egressd.planner.declared import Chain, SetSpec
from egressd.planner.lines import line_rules as lines_guard

CUT_FLOWS_MAX: Final = 65_535
"""Flows at most in the set ``cut_flows``, of some 200 bytes each."""

SETS: Final = {
    "lanif": SetSpec("type ifname", "LAN interfaces"),
    "lannet": SetSpec("type ipv4_addr; flags interval", "LAN networks"),
    "lansrc": SetSpec(
        "type ifname . ipv4_addr; flags interval",
        "source networks that are valid on a LAN or local interface",
    ),
    "seen": SetSpec(
        "type ifname", "interfaces with a known role; packets from others are not forwarded"
    ),
    "multicast": SetSpec("type ifname", "interfaces by which routed multicast may come in to LANs"),
    "resolvers": SetSpec(
        "type ipv4_addr",
        "DNS servers that egresses use; as clients in a LAN they may ask any other",
    ),
    "here": SetSpec(
        "type mark . ipv4_addr", "DNS servers on this machine, by the mark of clients that use them"
    ),
    "unheard": SetSpec(
        "type ifname", "interfaces whose router advertisements, redirects and DHCPv6 are dropped"
    ),
    "routers6": SetSpec(
        "type ifname . ipv6_addr", "IPv6 routers accepted on interfaces of the set unheard"
    ),
    # Filled by packets: routers that advertise on interfaces whose advertisements do not count.
    "advertised": SetSpec(
        "type ifname . ipv6_addr; size 1024; flags dynamic,timeout; timeout 10m",
        "IPv6 routers whose messages were dropped; filled by packets",
    ),
    # An element takes some 200 bytes, and goes an hour after its last packet.
    "tried": SetSpec(
        "type ipv4_addr . inet_proto . ipv4_addr . inet_service; size 4096; counter;"
        " flags dynamic,timeout; timeout 1h",
        "destinations that clients without a rule were refused; filled by packets",
    ),
    "bound": SetSpec("type ipv4_addr", "clients whose address belongs to one device"),
    "bindings": SetSpec(
        "type ipv4_addr . ether_addr", "clients' addresses and the devices that they belong to"
    ),
    # An element goes an hour after its last packet.
    "impostors": SetSpec(
        "type ipv4_addr . ether_addr; size 1024; counter; flags dynamic,timeout; timeout 1h",
        "addresses of the set bound, with other devices that used them; filled by packets",
    ),
    "neighbours": SetSpec(
        "type ipv4_addr", "private addresses of node servers that the configuration names"
    ),
    "localif": SetSpec("type ifname", "interfaces of local networks (containers, VPN servers)"),
    "localnet": SetSpec("type ipv4_addr; flags interval", "local networks"),
    "unruled": SetSpec(
        "type ifname", "local interfaces with a client behind them: hosts without a rule get a mark"
    ),
    "outside": SetSpec(
        "type ifname", "WANs and VPN lines; nothing is forwarded between two of them"
    ),
    "own": SetSpec("type ipv4_addr", "IPv4 addresses of this machine on WANs and other egresses"),
    "wan_sources": SetSpec(
        "type ipv4_addr",
        "where WANs have configured sources: those, and addresses of one egress alone; each leaves"
        " by the interface that has it",
    ),
    # Interfaces with clients behind them by which flows of this mark leave, too (in one-arm use).
    "ways_in": SetSpec(
        "type mark . ifname",
        "mark and LAN interface by which answers of its flows arrive (one-arm use)",
    ),
    "alive": SetSpec("type mark", "marks of kernel-routed targets whose egress is up"),
    "noudp": SetSpec("type mark", "marks of nodes that carry no UDP"),
    "shortudp": SetSpec("type mark", "marks of nodes that carry only short datagrams"),
    "allowed_connmarks": SetSpec(
        "type mark . mark",
        "connmark check of clients with a rule: connmark and mark that belong together",
    ),
    "unmanaged_connmarks": SetSpec(
        "type mark . mark", "connmark check of clients without a rule: no whitelist epoch"
    ),
    # Filled by netd (netd/kernel/cut_flows.py), and kept when the table is loaded again.
    "cut_flows": SetSpec(
        "type ipv4_addr . inet_service . ipv4_addr . inet_service;"
        f" size {CUT_FLOWS_MAX}; flags timeout",
        "cut TCP flows whose conntrack entries are gone: not picked up again; filled by netd",
    ),
    "wlports": SetSpec(
        "type inet_proto . inet_service",
        "protocols and ports on which the engine looks for whitelisted domains",
    ),
    **lines_guard.SETS,
    **proxy_service_rules.SETS,
    **api_guard.SETS,
    **lease_rules.SETS,
    **bounds.SETS,
    "members": SetSpec(
        "type mark . mark", "group mark and mark of a node of the group that is alive"
    ),
    # Filled by packets: the marks by which names are resolved, with the number of questions.
    "questions": SetSpec(
        "type mark; size 65535; counter; flags dynamic,timeout; timeout 1m",
        "marks by which names were resolved lately, with questions; filled by packets",
    ),
    # Filled by the speed limits' adapter, never by a load: a load keeps their counters.
    "sent": SetSpec(
        "type ipv4_addr; counter", "bytes and packets that each host rule's client sent"
    ),
    "sent_nets": SetSpec(
        "type ipv4_addr; flags interval; counter",
        "bytes and packets that each CIDR rule's clients sent",
    ),
    "received": SetSpec(
        "type ipv4_addr; counter", "bytes and packets that each host rule's client received"
    ),
    "received_nets": SetSpec(
        "type ipv4_addr; flags interval; counter",
        "bytes and packets that each CIDR rule's clients received",
    ),
}
MAPS: Final = {
    "hosts": SetSpec(
        "type ipv4_addr : mark",
        "clients with a rule of their own (/32): address to the target's mark",
    ),
    "nets": SetSpec(
        "type ipv4_addr : mark; flags interval",
        "clients by CIDR rule, most specific first: range to the target's mark",
    ),
    "dflt": SetSpec(
        "type ifname : mark",
        "clients without a rule: LAN interface to the mark of the default target",
    ),
    "wl": SetSpec(
        "type ipv4_addr : mark; flags interval",
        "whitelist: destination range to the mark of the whitelist's target",
    ),
    "ports": SetSpec(
        "type mark : inet_service", "mark to the loopback port of its engine instance (TPROXY)"
    ),
    "sniff": SetSpec(
        "type mark : mark",
        "kernel-routed or refused mark to the instance that looks for whitelisted domains",
    ),
    "listed": SetSpec(
        "type mark : mark",
        "mark of traffic that the engine found listed to the whitelist's own instance",
    ),
    "pairs": SetSpec(
        "type mark . ifname : verdict",
        "egress check: mark and outgoing interface that agree; all else is dropped",
    ),
    "asked": SetSpec(
        "type mark : mark",
        "mark of a VPN line to the mark of its DNS, if that does not use the line",
    ),
    "askers": SetSpec(
        "type mark : mark", "kernel-routed mark to the instance that answers its DNS (local names)"
    ),
    "connmark_of": SetSpec(
        "type mark : mark",
        "kernel-routed mark to the connmark of new flows, with the whitelist epoch",
    ),
    "dns4": SetSpec("type mark : ipv4_addr", "mark to the DNS server in use"),
    "substitutes": SetSpec(
        "type mark . ipv4_addr : ipv4_addr",
        "mark and DNS server that does not answer to the one in use",
    ),
    "snat_sources": SetSpec(
        "type ifname : ipv4_addr", "WAN to its configured source, if the WAN has that address"
    ),
    "inmark": SetSpec(
        "type ifname : mark", "WAN to the connmark of connections that it brought in"
    ),
    "elected": SetSpec(
        "type mark : mark", "group mark to the node of new flows (urltest, fallback)"
    ),
    "kept": SetSpec(
        "type mark . ipv4_addr : mark", "group mark and client to the client's node (sticky)"
    ),
    "slots": SetSpec(
        "type mark . mark : mark", "group mark and hash of the client's address to a node (sticky)"
    ),
    **proxy_service_rules.MAPS,
}

RETIRED: Final = ("input_dns", "input_services", "input_lines", "output_lines")
"""Base chains of earlier versions: a load removes them, or they would stay in force beside the
new."""
RETIRED_MAPS: Final = {"relays": "type inet_service : mark; size 131072; flags dynamic,timeout"}
"""Maps of earlier versions, which a load removes: name -> type and flags."""

CHAINS: Final[dict[str, Chain]] = {
    **prerouting.CHAINS,
    **dns.CHAINS,
    **engine.CHAINS,
    **bounds.CHAINS,
    **input_hook.CHAINS,
    **output.CHAINS,
    **answers.CHAINS,
    **proxy_service_rules.CHAINS,
    **api_guard.CHAINS,
    **lease_rules.CHAINS,
    **forward.CHAINS,
    **postrouting.CHAINS,
}
