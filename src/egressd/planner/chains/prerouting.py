"""Incoming packets: the mark of each client's packet, which decides its egress."""

from __future__ import annotations

from typing import Final

from egressd.planner import lease_rules
from egressd.planner.chains.terms import ENGINE, KIND, MARK_OF_FLOW, NO_KIND, ROUTED, TO_INSTANCE
from egressd.planner.declared import Chain, base_chain, chain
from egressd.planner.lines import line_rules as lines_guard
from egressd.planner.lines.pppd import MTU_MIN
from egressd.planner.registry import (
    MARK_DIRECT,
    MARK_EGRESS,
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_LINE,
    MARK_LISTED,
    MARK_LOCAL,
    MARK_ROUTED_MASK,
)

PREROUTING_PRIORITY: Final = -145
"""Priority of the chain that marks clients' packets: right after ``mangle`` (-150)."""
_HEADERS: Final = 40
"""Bytes of an IPv4 and a TCP header without options, which an MSS leaves out (RFC 879)."""

_PICKED_UP: Final = (
    "ct mark 0 tcp flags & (fin | syn | rst | ack) != syn"
    " ip saddr . tcp sport . ip daddr . tcp dport @cut_flows goto cut"
)
"""A packet of a flow that was cut and whose conntrack entry is gone (netd/kernel/cut_flows.py): the
far end must not see one connection from two addresses."""

CHAINS: Final[dict[str, Chain]] = {
    "prerouting_mark": base_chain(
        # After other programs' chains of that hook: the marks that they set (wg-quick restores
        # those of UDP flows, for example) must not decide the egress of clients' packets.
        f"type filter hook prerouting priority {PREROUTING_PRIORITY}; policy accept;",
        "incoming packets by where they come from: LAN, local network, WAN, engine",
        "iifname @lanif goto from_lan",
        "iifname @localif goto from_local",
        # Answers to flows that the kernel routes, VPN lines' excepted. Most packets meet only the
        # rules up to here, in known and in known_to_engine: each further expression has a
        # measurable cost.
        f"ct mark & {MARK_ROUTED_MASK | MARK_LINE:#x} == {MARK_EGRESS:#x} meta mark set 0 accept",
        'iifname "lo" goto from_self',
        f"ct mark {ROUTED} goto from_line",
        # An instance answers its clients itself: such a packet has a forged source.
        f"ct mark {ENGINE} drop",
        # No outside host may forge the address of a client or of this machine (see routing's
        # accept_local).
        "ip saddr @lannet drop",
        "ct state new,invalid goto from_stranger",
    ),
    "from_stranger": chain(
        "new packets from a WAN or line: no forged sources; remember the WAN",
        "fib saddr type local drop",
        *lines_guard.INVALID,
        # A connection that comes in by a WAN is answered by that WAN.
        "ct state new ct mark set iifname map @inmark",
    ),
    "from_line": chain(
        "answers from a VPN line: lower the MSS in the SYN to what fits",
        # The far end's answer to a SYN announces the segment size that fits, before the client
        # sends any.
        f"tcp flags syn tcp option maxseg size set {MTU_MIN - _HEADERS}",
        "meta mark set 0 accept",
    ),
    "from_self": chain(
        "from the engine by loopback: traffic found to be whitelisted",
        # Traffic that an instance found to be listed goes to the whitelist's own destination.
        f"meta mark != {MARK_LISTED:#x} accept",
        "meta mark set meta mark map @listed goto engine",
        "goto deny",
    ),
    "from_lan": chain(
        "packets of LAN clients: known flows take short chains",
        *lease_rules.FROM_LAN,
        "ip saddr @bound jump bound",
        # Each question is metered, in any flow. (In ICMP these bits mean nothing, and any value may
        # take that path.)
        "@th,16,16 53 goto unknown",
        f"ct mark {ROUTED} goto known",
        f"ct mark {ENGINE} meta l4proto tcp ct direction original goto known_to_engine",
        "goto unknown",
    ),
    "bound": chain(
        "a source that belongs to one device: drop the packets of all others, and note them",
        # On an interface without Ethernet addresses nothing matches but the last rule.
        "ip saddr . ether saddr @bindings return",
        "update @impostors { ip saddr . ether saddr }",
        "drop",
    ),
    "from_local": chain(
        "packets from a local network: clients with a rule are treated as in a LAN",
        # Local IPv6 is not egressd's concern either, unless a client is there: see the default-deny
        # rules in routing.
        "meta nfproto ipv6 accept",
        # Answers to connections that a WAN brought in leave by that WAN.
        f"ct direction reply ct mark {ROUTED} iifname . ip saddr @lansrc goto answering",
        # A source that poses as the far end of a client's flow.
        f"ct direction reply ct mark & {MARK_KIND_MASK:#x}"
        f" {{ {MARK_ENGINE:#x}, {MARK_EGRESS:#x}, {MARK_DIRECT:#x} }} drop",
        "ip saddr @lannet drop",
        "meta mark set ip saddr map @hosts goto from_lan",
        "meta mark set ip saddr map @nets goto from_lan",
        # Where a client is, the default-deny routing rules let nothing pass without a mark: this
        # mark is for hosts there that have no rule. On a stopped device the set is empty.
        f"iifname @unruled meta mark set meta mark & {NO_KIND:#x} | {MARK_LOCAL:#x}",
    ),
    "known": chain(
        "known flow that the kernel routes: is its client's mark still the same?",
        # A flow that the kernel routes, and that passed all of unknown before. While its client
        # keeps the mark of that time, no further check is needed.
        "meta mark set ip saddr map @hosts goto known_host",
        "meta mark set ip saddr map @nets goto known_net",
        "goto unknown",
    ),
    "known_host": chain(
        "known flow of a client with a rule of its own: connmark check, count",
        "ct mark . meta mark != @allowed_connmarks goto unknown",
        "ip saddr @sent accept",
        "accept",
    ),
    "known_net": chain(
        "known flow of a client with a CIDR rule: connmark check, count",
        "ct mark . meta mark != @allowed_connmarks goto unknown",
        "ip saddr @sent_nets accept",
        "accept",
    ),
    "known_to_engine": chain(
        "known TCP connection to an engine instance: is it still allowed?",
        # A TCP connection to an instance that passed all of unknown before. UDP is excluded: each
        # packet is checked against the nodes that carry no UDP.
        "meta mark set ip daddr map @wl goto unknown",
        "meta mark set ip saddr map @hosts goto known_host_to_engine",
        "goto unknown",
    ),
    "known_host_to_engine": chain(
        "known TCP connection to an engine instance: connmark check, count, TPROXY",
        "ct mark . meta mark != @allowed_connmarks goto unknown",
        "jump count",
        TO_INSTANCE,
        "goto deny",
    ),
    "unknown": chain(
        "all other packets of clients: source check, then DNS, local traffic or client",
        # IPv6 reaches the router and no further: see forward and the default-deny rules of routing.
        "meta nfproto ipv6 accept",
        "meta mark set 0",
        "fib saddr type local drop",
        "iifname . ip saddr != @lansrc goto from_elsewhere",
        # Answers to a connection that a WAN brought in, or that the kernel routed.
        f"ct direction reply ct mark {ROUTED} goto answering",
        # DNS takes the client's own egress, for any resolver that it asks, this router included.
        "meta l4proto { tcp, udp } th dport 53 goto asking",
        "fib daddr type { local, broadcast, multicast } accept",
        "ip daddr @lannet accept",
        "ip daddr @localnet accept",
        "goto client",
    ),
    "answering": chain(
        "answers of a LAN host to a flow that a WAN brought in or the kernel routed",
        "jump count",
        # A resolver in a LAN or local network answers this machine, and this machine the client.
        "ct original ip saddr @lannet meta mark set 0 accept",
        "ct original ip saddr @localnet meta mark set 0 accept",
        f"{MARK_OF_FLOW} accept",
    ),
    "from_elsewhere": chain(
        "sources that are not valid on this interface: answers in one-arm use, else drop",
        # In one-arm use answers from outside arrive on the LAN interface too. Otherwise the sender
        # is a LAN host with a forged source.
        "ct direction reply ct state established,related goto from_far_end_in_lan",
        # A resolver on this machine would ask other resolvers by any WAN.
        "meta l4proto { tcp, udp } th dport 53 drop",
        "fib daddr type { broadcast, multicast } accept",
        "drop",
    ),
    "from_far_end_in_lan": chain(
        "answers that come in by the LAN: only where the flow's egress leads there",
        MARK_OF_FLOW,
        "meta mark . iifname != @ways_in drop",
        "meta mark set 0 accept",
    ),
    "client": chain(
        "look up the client's rule: the mark of its target, else the default, else deny",
        "meta mark set ip saddr map @hosts goto managed",
        "meta mark set ip saddr map @nets goto managed",
        "meta mark set iifname map @dflt goto unmanaged",
        "goto refused",
    ),
    "refused": chain(
        "clients without a rule that are blocked: note the destination, then deny",
        # A full set ends this rule, and not the chain.
        "meta l4proto { tcp, udp } update @tried { ip saddr . meta l4proto . ip daddr . th dport }",
        "goto deny",
    ),
    "count": chain(
        "count the bytes that a client sent",
        "ip saddr @sent return",
        "ip saddr @sent_nets return",
    ),
    "unmanaged": chain(
        "clients without a rule: default target, no whitelist; connmark check",
        # The whitelist does not apply to clients without a rule, and its changes do not affect
        # them.
        f"{KIND} {MARK_ENGINE:#x} goto engine",
        "meta mark != @alive goto deny",
        _PICKED_UP,
        "ct mark 0 ct mark set meta mark accept",
        "ct mark . meta mark @unmanaged_connmarks accept",
        "goto cut",
    ),
    "managed": chain(
        "clients with a rule: whitelist first, then the target of the rule",
        "jump count",
        "meta mark set ip daddr map @wl goto dispatch",
        # Kernel-routed targets enter the engine only where whitelist domains must be seen.
        "meta l4proto . th dport @wlports meta mark set meta mark map @sniff goto engine",
        "goto dispatch",
    ),
    "dispatch": chain(
        "by kind of mark: to the engine, to the kernel's routing, or deny",
        f"{KIND} {MARK_ENGINE:#x} goto engine",
        f"meta mark {ROUTED} goto routed",
        # Clients that are otherwise refused have to learn the addresses of listed domains.
        "meta l4proto { tcp, udp } th dport 53 meta mark set meta mark map @sniff goto engine",
        "goto deny",
    ),
    "routed": chain(
        "kernel-routed targets: egress up, pin new flows, connmark check",
        # An egress that is down is answered at once with an error, and its flows are reset.
        "meta mark != @alive goto deny",
        _PICKED_UP,
        # Pinned together with the whitelist's epoch: saving the whitelist cuts existing flows.
        "ct mark 0 ct mark set meta mark map @connmark_of accept",
        "ct mark . meta mark @allowed_connmarks accept",
        "goto cut",
    ),
    "cut": chain(
        "the flow's target has changed: reset TCP, drop all else",
        # A new connection with the ports of an old one that the tidier has not removed yet: the
        # client sends the SYN again in a second.
        "tcp flags & (fin | syn | rst | ack) == syn drop",
        "meta l4proto tcp reject with tcp reset",
        "drop",
    ),
    "deny": chain(
        "refuse: TCP reset, ICMP admin-prohibited",
        "meta l4proto tcp reject with tcp reset",
        "reject with icmpx admin-prohibited",
    ),
    "prerouting_unasked": base_chain(
        # Right after port forwards (priority dstnat, -100): a forwarded packet stops there, and of
        # other flows only the first packet gets here.
        "type nat hook prerouting priority -99; policy accept;",
        "VPN lines bring in only answers and what a port forward expects",
        *lines_guard.UNASKED,
    ),
}
