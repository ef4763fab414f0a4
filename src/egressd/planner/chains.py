"""The text of egressd's nftables table: its sets, maps and chains.

The chains are loaded once and never change; a client, a target or an interface is an
element (`planner.nft`). So a change costs the kernel one element, and a packet costs a few hash
look-ups whatever the number of rules.

How a LAN client's packet goes (``docs/dataplane.md`` draws it):

1. ``from_lan`` drops spoofed sources and lets pass what is for the router or another LAN.
2. ``client`` and ``managed`` look up the mark of the client's target.
3. ``dispatch`` sends it to the engine (TPROXY), to the kernel's forwarding, or to ``deny``.
4. ``group``: among a group's nodes a flow keeps the one it has while that lives; a new flow gets
   the one chosen for its client. From here on it bears that node's mark.
5. ``seal`` and ``routed``: a flow keeps its first mark as conntrack mark; once its client's mark
   is another, the flow is reset. So the change of the element is itself the cut. Flows that the
   kernel routes keep the whitelist's epoch beside it.
   A connection's further packets meet less: ``known`` and ``known_to_engine``.
6. ``forward`` checks that the mark and the outgoing interface agree, whatever routing did.

Written for nftables 1.0.6 and 1.1, which make the same of this text: no chain on one line, and
interfaces by name (``iifname``), since an index goes stale when an interface is made again.
"""

from __future__ import annotations

import sys
from ipaddress import IPv4Address
from typing import Final

from egressd.planner import services_guard
from egressd.planner.groups import SLOTS
from egressd.planner.lines import guard as lines_guard
from egressd.planner.lines.pppd import MTU_MIN
from egressd.planner.registry import (
    ANSWER_PORT,
    APART,
    DATAGRAM_MAX,
    HASH_SEED,
    MARK_ANSWER,
    MARK_EGRESS,
    MARK_ENGINE,
    MARK_EPOCH_MASK,
    MARK_GROUP,
    MARK_GROUP_MASK,
    MARK_KIND_MASK,
    MARK_LINE,
    MARK_LISTED,
    MARK_LOCAL,
    MARK_ROUTED_MASK,
    MARK_UNMANAGED,
    SHORT_DATAGRAM,
)

SETS: Final = {
    "lanif": "type ifname",
    "lannet": "type ipv4_addr; flags interval",
    "lansrc": "type ifname . ipv4_addr; flags interval",
    "seen": "type ifname",
    "multicast": "type ifname",
    "resolvers": "type ipv4_addr",
    "here": "type mark . ipv4_addr",
    "localif": "type ifname",
    "localnet": "type ipv4_addr; flags interval",
    "unruled": "type ifname",
    "outside": "type ifname",
    "own": "type ipv4_addr",
    "alive": "type mark",
    "noudp": "type mark",
    "shortudp": "type mark",
    "same": "type mark . mark",
    "plain": "type mark . mark",
    "wlports": "type inet_proto . inet_service",
    **lines_guard.SETS,
    **services_guard.SETS,
    "members": "type mark . mark",
    # Filled by the speed limits' adapter, and by no load: what they count lives on.
    "sent": "type ipv4_addr; counter",
    "sent_nets": "type ipv4_addr; flags interval; counter",
    "received": "type ipv4_addr; counter",
    "received_nets": "type ipv4_addr; flags interval; counter",
}
MAPS: Final = {
    "hosts": "type ipv4_addr : mark",
    "nets": "type ipv4_addr : mark; flags interval",
    "dflt": "type ifname : mark",
    "wl": "type ipv4_addr : mark; flags interval",
    "ports": "type mark : inet_service",
    "sniff": "type mark : mark",
    "listed": "type mark : mark",
    "pairs": "type mark . ifname : verdict",
    "asked": "type mark : mark",
    "askers": "type mark : mark",
    "sealed": "type mark : mark",
    "dns4": "type mark : ipv4_addr",
    "substitutes": "type mark . ipv4_addr : ipv4_addr",
    "inmark": "type ifname : mark",
    "elected": "type mark : mark",
    "kept": "type mark . ipv4_addr : mark",
    "slots": "type mark . mark : mark",
    **services_guard.MAPS,
}

PREROUTING_PRIORITY: Final = -145
"""Of the chain that marks clients' packets: right behind ``mangle`` (-150)."""
_HEADERS: Final = 40
"""Bytes of an IPv4 and a TCP header without options: what an MSS leaves out (RFC 879)."""

_UDP_HEADER: Final = 8
"""Bytes, which the length of a datagram counts (RFC 768)."""

_NO_EPOCH = 0xFFFF_FFFF & ~MARK_EPOCH_MASK
_NO_KIND = 0xFFFF_FFFF & ~MARK_KIND_MASK
_KIND = f"meta mark & {MARK_KIND_MASK:#x}"
_ROUTED = f"& {MARK_ROUTED_MASK:#x} == {MARK_EGRESS:#x}"
_ENGINE = f"& {MARK_KIND_MASK:#x} == {MARK_ENGINE:#x}"


def _as_hashed(address: IPv4Address) -> int:
    """An address as a number in the byte order of the machine, which hashes come in."""
    return int.from_bytes(address.packed, sys.byteorder)


_TO_INSTANCE = "meta l4proto { tcp, udp } tproxy ip to 127.0.0.1:meta mark map @ports accept"

_LOOKED_INTO = (
    # The whitelist is not for clients without a rule.
    f"iifname @lanif {_KIND} {MARK_ENGINE:#x} meta mark != {MARK_UNMANAGED:#x}"
    " meta l4proto udp meta l4proto . th dport @wlports"
)

_OF_ANOTHER_WAN: Final = "oifname @outside ip saddr @own fib saddr . oif type != local drop"
"""Policy rules take this machine's packets to the WAN that has their source address. This is for
those that were routed before they had one (raw sockets), and for rules that are still missing."""

RETIRED: Final = ("input_dns", "input_services", "input_lines", "output_lines")
"""Base chains of earlier versions: a load takes them away, or they would go on beside the new."""
RETIRED_MAPS: Final = {"relays": "type inet_service : mark; size 131072; flags dynamic,timeout"}
"""Maps of earlier versions, which a load takes away: name -> type and flags."""

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
        f"ct mark {_ROUTED} goto from_line",
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
        f"ct mark {_ROUTED} goto known",
        f"ct mark {_ENGINE} meta l4proto tcp ct direction original goto known_to_engine",
        "goto unknown",
    ),
    "from_local": (
        # Its IPv6 is its own matter too, until a client is there: see the routing floor.
        "meta nfproto ipv6 accept",
        # Answers to what a WAN brought in leave by that WAN.
        f"ct direction reply ct mark {_ROUTED} goto answering",
        "ip saddr @lannet drop",
        "meta mark set ip saddr map @hosts goto from_lan",
        "meta mark set ip saddr map @nets goto from_lan",
        # Where a client is, the routing floor lets nothing pass without a mark: this is for who has
        # no rule there. On a stopped device the set is empty.
        f"iifname @unruled meta mark set meta mark & {_NO_KIND:#x} | {MARK_LOCAL:#x}",
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
        _TO_INSTANCE,
        "goto deny",
    ),
    "unknown": (
        # IPv6 reaches the router and no further: see forward and the routing floor.
        "meta nfproto ipv6 accept",
        "meta mark set 0",
        "fib saddr type local drop",
        "iifname . ip saddr != @lansrc goto from_elsewhere",
        # Answers to a connection that a WAN brought in, or that was routed by the kernel.
        f"ct direction reply ct mark {_ROUTED} goto answering",
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
        f"meta mark set ct mark & {_NO_EPOCH:#x} accept",
    ),
    "from_elsewhere": (
        # In one-arm use answers from outside arrive on the LAN interface too.
        "ct direction reply ct state established,related accept",
        # A resolver of this machine's would ask others by whichever WAN.
        "meta l4proto { tcp, udp } th dport 53 drop",
        "fib daddr type { broadcast, multicast } accept",
        "drop",
    ),
    "asking": (
        # What a resolver in the LAN asks others is not to come back to it.
        "ip saddr @resolvers goto client",
        "meta mark set ip saddr map @hosts goto ask",
        "meta mark set ip saddr map @nets goto ask",
        "meta mark set iifname map @dflt goto ask_unmanaged",
        "goto deny",
    ),
    "ask": (
        "jump count",
        # Where there are local names, an instance looks for them among the questions of clients
        # with a rule that the kernel routes.
        "meta mark set meta mark map @askers goto engine",
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
    "count": (
        "ip saddr @sent return",
        "ip saddr @sent_nets return",
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
        "jump count",
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
        f"udp length > {SHORT_DATAGRAM + _UDP_HEADER} jump long",
        "jump seal",
        _TO_INSTANCE,
        # tproxy fails open when nothing listens: what gets here must not go on.
        "goto deny",
    ),
    "long": (
        # Of a longer one the engine would send on as much as its buffer takes.
        f"udp length <= {DATAGRAM_MAX + _UDP_HEADER} meta mark != @shortudp return",
        "goto deny",
    ),
    "group": (
        "meta mark . ct mark @members meta mark set ct mark return",
        "meta mark set meta mark map @elected return",
        "meta mark set meta mark . ip saddr map @kept return",
        "ct mark != 0 goto deny",
        # nftables 1.0.6 cannot have a hash in a key of several parts: it goes by way of a mark.
        "ct mark set meta mark",
        # Of what an instance hands back, only whom it is for tells one from another.
        f'iifname "lo" meta mark set jhash ip saddr . ip daddr mod {SLOTS} seed {HASH_SEED:#x}',
        f'iifname != "lo" meta mark set jhash ip saddr mod {SLOTS} seed {HASH_SEED:#x}',
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
    "prerouting_dns": (
        "type nat hook prerouting priority dstnat; policy accept;",
        "iifname @lanif meta l4proto { tcp, udp } th dport 53 ip saddr != @resolvers"
        " dnat ip to meta mark map @dns4",
        f"iifname @localif meta mark {_ROUTED} meta l4proto {{ tcp, udp }} th dport 53"
        " ip saddr != @resolvers dnat ip to meta mark map @dns4",
    ),
    "prerouting_unasked": (
        # Right after port forwards (priority dstnat, -100): what one of them takes gets no further
        # than that, and of other flows only the first packet gets here.
        "type nat hook prerouting priority -99; policy accept;",
        *lines_guard.UNASKED,
    ),
    "input": (
        "type filter hook input priority filter; policy accept;",
        # On its way to an instance: the port is not one of this machine's.
        f"{_KIND} {MARK_ENGINE:#x} iifname @lanif accept",
        f"{_KIND} {MARK_ENGINE:#x} iifname @localif accept",
        f"iifname @localif meta mark {_ROUTED} goto from_local_to_router",
        "meta l4proto tcp goto input_tcp",
        *lines_guard.INPUT,
        "udp dport { 53, 853 } iifname @lanif jump dns_to_router",
        *services_guard.INPUT,
        *lines_guard.STRANGERS,
        # Sockets of the engine's answers read nothing.
        f"udp dport {ANSWER_PORT} drop",
        "meta l4proto udp goto unknown_flow",
    ),
    "from_local_to_router": (
        "meta l4proto { tcp, udp } th dport 53 meta mark . ip daddr @here accept",
        "drop",
    ),
    "input_tcp": (
        "tcp dport @services jump to_service",
        "tcp dport { 53, 853 } iifname @lanif jump dns_to_router",
        *lines_guard.STRANGERS,
        "tcp flags & (fin | syn | rst | ack) != syn goto unknown_flow",
    ),
    "unknown_flow": (
        # An answer to a client whose flow conntrack has lost looks like something for this
        # machine. A reset or an ICMP error would end what goes on once the client sends again, and
        # a flow that begins the wrong way round would take its place.
        "meta nfproto ipv6 accept",
        "iifname != @outside accept",
        "socket wildcard { 0, 1 } accept",
        "drop",
    ),
    "dns_to_router": (
        # The resolver that the client's questions go to may be this machine's own.
        "meta mark . ip daddr @here return",
        # A kernel-routed client's question that found no resolver of its own stops here.
        f"meta mark {_ROUTED} th dport 53 drop",
        "meta nfproto ipv6 reject",
    ),
    "input_apart": (
        "type nat hook input priority 100; policy accept;",
        # To the engine all UDP that comes from one address and port is one session, and goes where
        # its first packet did. Where names decide, each destination is to be a session of its own:
        # its packets come from an address of its own.
        f"{_LOOKED_INTO} snat ip to (jhash ip saddr . ip daddr . udp dport mod {0xFFFF_FFFF})"
        f" & {_as_hashed(APART.hostmask):#x} | {_as_hashed(APART[0]):#x} fully-random",
    ),
    "input_apart_last": (
        "type filter hook input priority 200; policy accept;",
        # A flow from before its port was listed; the tidier ends it.
        f"{_LOOKED_INTO} ip saddr != {APART} drop",
    ),
    **services_guard.CHAINS,
    "forward": (
        "type filter hook forward priority filter; policy accept;",
        "iifname @lanif goto forward_from_lan",
        "oifname @lanif goto forward_to_lan",
        "iifname @localif goto forward_from_local",
        "goto forward_from_elsewhere",
    ),
    "forward_from_elsewhere": (
        # A LAN that is taken for a WAN (see topology.discover), and answers for addresses that no
        # LAN has any more: nothing goes through this machine from one WAN or line to another.
        "iifname @outside oifname @outside drop",
        # It may be a LAN that nobody has looked at yet, or one that has lost its name.
        "iifname != @seen drop",
        # A client with a rule, on a LAN that the configuration does not name.
        "meta nfproto ipv4 meta mark set ip saddr map @hosts drop",
    ),
    "forward_from_local": (
        "oifname @localif ip daddr @localnet accept",
        f"{_KIND} {{ 0, {MARK_LOCAL:#x} }} goto forward_from_elsewhere",
        "meta mark . oifname vmap @pairs",
        "drop",
    ),
    "forward_from_lan": (
        "meta mark . oifname vmap @pairs",
        "oifname @lanif ip daddr @lannet goto between_lans",
        "oifname @localif ip daddr @localnet accept",
        "drop",
    ),
    "between_lans": (
        "ip saddr @lannet accept",
        # In one-arm use answers from outside come in by the LAN.
        "goto to_client",
    ),
    "to_narrow": (
        # A far end is told what fits, since not everybody hears of it otherwise (RFC 2923, 2.1).
        "tcp flags syn tcp option maxseg size set rt mtu",
        "accept",
    ),
    "forward_to_lan": (
        "ct state established,related goto to_client",
        "ct status dnat goto to_client",
        "iifname @localif ip saddr @localnet accept",
        "ip daddr 224.0.0.0/4 iifname @multicast accept",
        "drop",
    ),
    "to_client": (
        "ip daddr @received accept",
        "ip daddr @received_nets accept",
        "accept",
    ),
    "output_answers": (
        # Ahead of connection tracking (priority -200): it is to see the port of the far end.
        "type filter hook output priority raw; policy accept;",
        f"{_KIND} {MARK_ANSWER:#x} goto from_far_end",
    ),
    "from_far_end": (
        # nftables cannot write a mark into a port, but it can set single bits of one.
        "udp sport set 0",
        *(
            f"meta mark & {1 << bit:#x} != 0 udp sport set udp sport | {1 << bit:#x}"
            for bit in range(16)
        ),
        f"meta mark set {MARK_ANSWER:#x}",
    ),
    "output_dns": (
        "type nat hook output priority -100; policy accept;",
        # What the engine asks itself: the names of nodes' servers, say. What netd asks, to see who
        # answers, goes where it is sent.
        "meta skuid != 0 meta l4proto { tcp, udp } th dport 53"
        " dnat ip to meta mark . ip daddr map @substitutes",
    ),
    "output": (
        "type filter hook output priority filter; policy accept;",
        "meta l4proto tcp goto output_tcp",
        *lines_guard.OUTPUT,
        f"{_KIND} {MARK_EGRESS:#x} goto from_engine",
        f"{_KIND} {MARK_ANSWER:#x} goto answer_in_a_name",
        # The engine's answers to clients bear the address of whom they asked.
        "oifname @lanif ip daddr @lannet ip saddr != @lannet goto answer",
        # No IPv6 is forwarded, so its errors are for clients, and quote their packets. A LAN
        # that was down has lost its IPv6 addresses: the way to its clients is then by a WAN.
        'icmpv6 type < 128 oifname != @lanif oifname != "lo" drop',
        f"meta l4proto icmp ct state related ct mark {_ROUTED} ip daddr != @lannet goto about_flow",
        "icmp type { destination-unreachable, time-exceeded, parameter-problem } goto own_error",
        # Those to an address of input_apart have just got the client's back, not yet its interface.
        'oifname "lo" ct direction reply ct status snat goto to_client',
        _OF_ANOTHER_WAN,
    ),
    "output_tcp": (
        f"{_KIND} {MARK_EGRESS:#x} goto from_engine",
        # At whichever address of this machine they are called; instances answer at any.
        "tcp sport @services fib saddr type local jump from_service",
        # The engine's answers to clients bear the address of whom they asked.
        "oifname @lanif ip daddr @lannet ip saddr != @lannet goto to_client",
        _OF_ANOTHER_WAN,
    ),
    "answer_in_a_name": (
        # A node says whose answer it is. This machine and what is in its LANs do not speak through
        # nodes, but that DNS asked of them is answered for them.
        "udp sport != 53 ip saddr @lannet drop",
        "udp sport != 53 ip saddr @own drop",
        "ct state new ip saddr @lannet drop",
        "ct state new fib saddr type != unicast drop",
        "goto answer",
    ),
    "answer": (
        "meta l4proto udp ct state new goto unasked",
        "goto to_client",
    ),
    "unasked": (
        # A node's client may hear from whom it has not asked.
        "fib saddr type local goto to_client",
        "meta mark set ip daddr map @hosts goto unasked_of",
        "meta mark set ip daddr map @nets goto unasked_of",
        "meta mark set oifname map @dflt goto unasked_of",
        "drop",
    ),
    "unasked_of": (
        # One that has moved away from its node: the flow would begin the wrong way round, and what
        # the client sends there would be answers, which are not translated and get nowhere.
        f"{_KIND} != {MARK_ENGINE:#x} drop",
        "meta mark set 0",
        "goto to_client",
    ),
    "about_flow": (
        # What this machine tells a far end about a client's flow (that its answer could not be
        # delivered) quotes the flow, and bears its address: it leaves by the same interface.
        f"meta mark set ct mark & {_NO_EPOCH:#x}",
        "goto from_engine",
    ),
    "own_error": (
        # One about a flow of the engine's, whose socket has gone, quotes what came for a client. It
        # leaves by the interface that has its address or not at all.
        "ip daddr @lannet accept",
        'oifname "lo" accept',
        "fib saddr . oif type != local drop",
    ),
    "from_engine": (
        # The engine's own sockets: bound to one interface, they leave by it or not at all.
        "meta mark . oifname vmap @pairs",
        "meta l4proto { tcp, udp } th dport 53 ip daddr @resolvers goto to_resolver",
        "drop",
    ),
    "to_resolver": (
        # One that is no further than this machine or what is behind it is asked there.
        'oifname "lo" accept',
        "oifname @lanif ip daddr @lannet accept",
        "oifname @localif ip daddr @localnet accept",
        "drop",
    ),
    "postrouting_nat": (
        "type nat hook postrouting priority srcnat; policy accept;",
        f"meta mark {_ROUTED} ip saddr @lannet fib saddr type != local masquerade",
        f"meta mark {_ROUTED} ip saddr @localnet fib saddr type != local masquerade",
        # A question that output_dns sent elsewhere bears the address for where it was to go.
        "ct status dnat ct direction original meta l4proto { tcp, udp } th dport 53"
        " fib saddr type local fib saddr . oif type != local masquerade",
    ),
    "postrouting_last": (
        "type filter hook postrouting priority 300; policy accept;",
        # A client's own address never shows outside.
        "ip saddr @lannet ip daddr != @lannet ip daddr != @localnet fib saddr type != local drop",
        f"meta mark {_ROUTED} ip saddr @localnet fib saddr type != local drop",
    ),
}
