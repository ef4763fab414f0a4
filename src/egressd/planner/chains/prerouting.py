"""Where packets come in: the mark of each client's, and with it where they go."""

from __future__ import annotations

from typing import Final

from egressd.planner.chains.terms import ENGINE, KIND, NO_EPOCH, NO_KIND, ROUTED, TO_INSTANCE
from egressd.planner.lines import guard as lines_guard
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
"""Of the chain that marks clients' packets: right behind ``mangle`` (-150)."""
_HEADERS: Final = 40
"""Bytes of an IPv4 and a TCP header without options: what an MSS leaves out (RFC 879)."""

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "prerouting_mark": (
        # Behind other programs' chains of that hook: the marks that they set (wg-quick restores
        # those of UDP flows, say) are not to decide where clients' packets go.
        f"type filter hook prerouting priority {PREROUTING_PRIORITY}; policy accept;",
        "iifname @lanif goto from_lan",
        "iifname @localif goto from_local",
        # Answers to flows that the kernel routes, VPN lines' aside. The rules up to here, in known
        # and in known_to_engine are what most packets meet: each expression more is felt.
        f"ct mark & {MARK_ROUTED_MASK | MARK_LINE:#x} == {MARK_EGRESS:#x} meta mark set 0 accept",
        'iifname "lo" goto from_self',
        f"ct mark {ROUTED} goto from_line",
        # An instance answers its clients itself: here somebody poses as the far end.
        f"ct mark {ENGINE} drop",
        # Nobody outside may pose as a client, or as this machine (see routing's accept_local).
        "ip saddr @lannet drop",
        "ct state new,invalid goto from_stranger",
    ),
    "from_stranger": (
        "fib saddr type local drop",
        *lines_guard.INVALID,
        # A connection that comes in by a WAN is answered by that WAN.
        "ct state new ct mark set iifname map @inmark",
    ),
    "from_line": (
        # Clients learn how much fits before they send it: the far end's answer to a SYN.
        f"tcp flags syn tcp option maxseg size set {MTU_MIN - _HEADERS}",
        "meta mark set 0 accept",
    ),
    "from_self": (
        # What an instance found to be listed goes to the whitelist's own destination.
        f"meta mark != {MARK_LISTED:#x} accept",
        "meta mark set meta mark map @listed goto engine",
        "goto deny",
    ),
    "from_lan": (
        # Each question is metered, whatever flow it is of. (In ICMP these bits mean nothing, and
        # whatever they are it may go that way.)
        "@th,16,16 53 goto unknown",
        f"ct mark {ROUTED} goto known",
        f"ct mark {ENGINE} meta l4proto tcp ct direction original goto known_to_engine",
        "goto unknown",
    ),
    "from_local": (
        # Its IPv6 is its own matter too, until a client is there: see the routing floor.
        "meta nfproto ipv6 accept",
        # Answers to what a WAN brought in leave by that WAN.
        f"ct direction reply ct mark {ROUTED} iifname . ip saddr @lansrc goto answering",
        # Who poses as the far end of a client's flow.
        f"ct direction reply ct mark & {MARK_KIND_MASK:#x}"
        f" {{ {MARK_ENGINE:#x}, {MARK_EGRESS:#x}, {MARK_DIRECT:#x} }} drop",
        "ip saddr @lannet drop",
        "meta mark set ip saddr map @hosts goto from_lan",
        "meta mark set ip saddr map @nets goto from_lan",
        # Where a client is, the routing floor lets nothing pass without a mark: this is for who has
        # no rule there. On a stopped device the set is empty.
        f"iifname @unruled meta mark set meta mark & {NO_KIND:#x} | {MARK_LOCAL:#x}",
    ),
    "known": (
        # A flow that the kernel routes, and that went through all of unknown before. While
        # its client has the mark it was given then, there is nothing else to look at.
        "meta mark set ip saddr map @hosts goto known_host",
        "meta mark set ip saddr map @nets goto known_net",
        "goto unknown",
    ),
    "known_host": (
        "ct mark . meta mark != @same goto unknown",
        "ip saddr @sent accept",
        "accept",
    ),
    "known_net": (
        "ct mark . meta mark != @same goto unknown",
        "ip saddr @sent_nets accept",
        "accept",
    ),
    "known_to_engine": (
        # A connection that went through all of unknown to an instance. UDP is none: whether a
        # node has it is asked of each packet.
        "meta mark set ip daddr map @wl goto unknown",
        "meta mark set ip saddr map @hosts goto known_host_to_engine",
        "goto unknown",
    ),
    "known_host_to_engine": (
        "ct mark . meta mark != @same goto unknown",
        "jump count",
        TO_INSTANCE,
        "goto deny",
    ),
    "unknown": (
        # IPv6 reaches the router and no further: see forward and the routing floor.
        "meta nfproto ipv6 accept",
        "meta mark set 0",
        "fib saddr type local drop",
        "iifname . ip saddr != @lansrc goto from_elsewhere",
        # Answers to a connection that a WAN brought in, or that was routed by the kernel.
        f"ct direction reply ct mark {ROUTED} goto answering",
        # DNS goes the client's own way, whichever resolver it asks, this router included.
        "meta l4proto { tcp, udp } th dport 53 goto asking",
        "fib daddr type { local, broadcast, multicast } accept",
        "ip daddr @lannet accept",
        "ip daddr @localnet accept",
        "goto client",
    ),
    "answering": (
        "jump count",
        # A resolver in a LAN or local network answers this machine, and this machine the client.
        "ct original ip saddr @lannet meta mark set 0 accept",
        "ct original ip saddr @localnet meta mark set 0 accept",
        f"meta mark set ct mark & {NO_EPOCH:#x} accept",
    ),
    "from_elsewhere": (
        # In one-arm use answers from outside arrive on the LAN interface too. Elsewhere it is a
        # host there that poses as the far end.
        "ct direction reply ct state established,related goto from_far_end_in_lan",
        # A resolver of this machine's would ask others by whichever WAN.
        "meta l4proto { tcp, udp } th dport 53 drop",
        "fib daddr type { broadcast, multicast } accept",
        "drop",
    ),
    "from_far_end_in_lan": (
        f"meta mark set ct mark & {NO_EPOCH:#x}",
        "meta mark . iifname != @ways_in drop",
        "meta mark set 0 accept",
    ),
    "client": (
        "meta mark set ip saddr map @hosts goto managed",
        "meta mark set ip saddr map @nets goto managed",
        "meta mark set iifname map @dflt goto unmanaged",
        "goto deny",
    ),
    "count": (
        "ip saddr @sent return",
        "ip saddr @sent_nets return",
    ),
    "unmanaged": (
        # The whitelist is not for clients without a rule, and its changes are no concern of theirs.
        f"{KIND} {MARK_ENGINE:#x} goto engine",
        "meta mark != @alive goto deny",
        "ct mark 0 ct mark set meta mark accept",
        "ct mark . meta mark @plain accept",
        "goto cut",
    ),
    "managed": (
        "jump count",
        "meta mark set ip daddr map @wl goto dispatch",
        # Kernel-routed targets enter the engine only where whitelist domains must be seen.
        "meta l4proto . th dport @wlports meta mark set meta mark map @sniff goto engine",
        "goto dispatch",
    ),
    "dispatch": (
        f"{KIND} {MARK_ENGINE:#x} goto engine",
        f"meta mark {ROUTED} goto routed",
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
    "cut": (
        # A new connection with the ports of an old one that the tidier has not removed yet: the
        # client asks again in a second.
        "tcp flags & (fin | syn | rst | ack) == syn drop",
        "meta l4proto tcp reject with tcp reset",
        "drop",
    ),
    "deny": (
        "meta l4proto tcp reject with tcp reset",
        "reject with icmpx admin-prohibited",
    ),
    "prerouting_unasked": (
        # Right after port forwards (priority dstnat, -100): what one of them takes gets no further
        # than that, and of other flows only the first packet gets here.
        "type nat hook prerouting priority -99; policy accept;",
        *lines_guard.UNASKED,
    ),
}
