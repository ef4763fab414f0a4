"""Every mark, routing table, policy rule priority and port that egressd claims on a machine.

No other module contains such a number. They are in ranges that other software (Docker, WireGuard's
wg-quick, NetworkManager, Tailscale) does not use by default.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

# --- Packet marks: the top four bits are the kind, the rest is a number within it. ------

MARK_KIND_MASK: Final = 0xF000_0000
MARK_ENGINE: Final = 0x1000_0000
"""Kind of packets that an engine instance serves: TPROXYed to its port."""
MARK_EGRESS: Final = 0x2000_0000
"""Kind of packets that the kernel routes by one interface's table. The rest is the egress
number."""
MARK_DIRECT: Final = 0x3000_0000
"""Kind of packets that the kernel routes through the main table."""
MARK_REJECT: Final = 0x4000_0000
"""Kind of packets that are answered with a reset or an ICMP error."""
MARK_LOCAL: Final = 0x5000_0000
"""Kind of packets from a local network (containers, for example), without a rule: egressd does not
decide its egress. The rest of a mark that another program gave it stays."""
MARK_ANSWER: Final = 0x8000_0000
"""The mark of the engine's UDP answers to clients, on their way out of a socket: the lowest 16 bits
are the port that the answer is to come from (`egressd.netd.engine.answers`)."""
MARK_UNROUTED_MASK: Final = 0x7000_0000
"""The mask under which packets without a mark and the engine's answers are equal (0)."""
MARK_ROUTED_MASK: Final = 0xE000_0000
"""The mask under which EGRESS and DIRECT are equal (0x2…): the kinds that the kernel forwards."""

# Bits of engine marks that tell nodes, groups and other instances apart.
_GROUP: Final = 0x0800_0000
_SNIFFER: Final = 0x0400_0000
_SINGLE: Final = _GROUP | _SNIFFER
_NUMBER_MAX: Final = 0x03FF_FFFF
_ASKER: Final = 0x0200_0000  # beside _SINGLE: an instance that answers DNS for an egress

MARK_UNMANAGED: Final = MARK_ENGINE | _SINGLE | 1
"""Mark of clients without a rule, if the engine serves them: by an instance of their own, because
the whitelist does not apply to them."""
MARK_LISTED: Final = MARK_ENGINE | _SINGLE | 2
"""Mark of traffic that an instance found to be listed, on its way to the whitelist's own
destination. Only the kernel knows the destination, so that changing it does not change documents.
"""

MARK_ASKED_DIRECTLY: Final = MARK_DIRECT | 1
"""Mark of DNS of a line's clients whose resolver is not asked through the line."""

MARK_ASKED_LOCALLY: Final = MARK_EGRESS | 0x7FFD
"""Mark of engine instances' questions for names of ``[dns] local``: to this machine, LANs and local
networks, and nowhere else. No WAN gets this number, as with those of `MARK_PAST`."""
RESOLVER_IN_USE: Final = IPv4Address("192.0.0.8")
"""Placeholder address for the resolver that is in use by the question's mark, in documents of
instances that answer the DNS of kernel-routed clients: the kernel replaces it. No host has this
address (RFC 7600)."""

MARK_EPOCH_SHIFT: Final = 16
MARK_EPOCHS: Final = 0x1000
"""Number of whitelist epochs. In the conntrack mark of a flow that the kernel routes 12 bits hold
the whitelist's epoch: flows of an earlier one are cut. They are free in DIRECT's and the egresses'
marks."""
MARK_EPOCH_MASK: Final = (MARK_EPOCHS - 1) << MARK_EPOCH_SHIFT

ENGINE_NUMBER_MAX: Final = _NUMBER_MAX
"""Nodes, groups and sniffers each have 2^26 numbers."""
EGRESS_NUMBER_MAX: Final = 0x0000_7FFF
"""The highest egress number. It is also part of a routing table number, kept short for
readability."""
MARK_LINE: Final = 0x0000_8000
"""A bit in the mark of an egress that is a VPN line, by which lines' flows are recognised."""
_INBOUND: Final = 0x0000_7000
"""The first number for answers to connections that WANs brought in; netd itself assigns these."""
PLANNED_EGRESS_MAX: Final = _INBOUND - 1
"""The highest number that an interface's name is given in the desired state."""

SNIFF_DIRECT: Final = 0
"""Number of the instance that sniffs for DIRECT clients; for an egress it is the egress's
number."""
SNIFF_REJECT: Final = 0x0300_0000
"""Number of the instance that sniffs for REJECT clients."""


MARK_GROUP_MASK: Final = MARK_KIND_MASK | _GROUP | _SNIFFER
MARK_GROUP: Final = MARK_ENGINE | _GROUP
"""The mark of any group, under `MARK_GROUP_MASK`."""


def node_mark(node_id: int) -> int:
    """Return the mark of a node's clients."""
    return MARK_ENGINE | _bounded(node_id, ENGINE_NUMBER_MAX)


def group_mark(number: int) -> int:
    """Return the mark of a group's clients."""
    return MARK_ENGINE | _GROUP | _bounded(number, ENGINE_NUMBER_MAX)


def sniffer_mark(number: int) -> int:
    """Return the mark of a flow that a sniffing instance inspects (`SNIFF_DIRECT`, egress, …)."""
    return MARK_ENGINE | _SNIFFER | _bounded(number, ENGINE_NUMBER_MAX)


def asker_number(mark: int) -> int:
    """Return the number of the instance that answers the DNS of clients whose packets bear this
    mark: an egress's own number, or 0 for DIRECT.
    """
    return 0 if mark & MARK_KIND_MASK == MARK_DIRECT else mark & EGRESS_NUMBER_MAX


def asker_mark(number: int) -> int:
    """Return the mark of DNS that such an instance answers."""
    return MARK_ENGINE | _SINGLE | _ASKER | _bounded(number, EGRESS_NUMBER_MAX)


def egress_mark(number: int) -> int:
    """Return the mark of traffic that leaves by one interface, which is no VPN line."""
    return MARK_EGRESS | _bounded(number, EGRESS_NUMBER_MAX)


def line_mark(number: int) -> int:
    """Return the mark of traffic that leaves by one VPN line."""
    return MARK_LINE | egress_mark(number)


def is_routed(mark: int) -> bool:
    """True if the kernel forwards packets or flows that bear this mark."""
    return mark & MARK_ROUTED_MASK == MARK_EGRESS


def epoch_of(count: int) -> int:
    """Return the epoch of the whitelist of that count: 1 for the first, up to `MARK_EPOCHS` - 1 and
    from 1 again; 0 for none.
    """
    return (count - 1) % (MARK_EPOCHS - 1) + 1 if count else 0


def flow_mark(mark: int, epoch: int) -> int:
    """Return the conntrack mark of a ruled client's flow whose packets bear `mark`.

    Flows of the engine have no epoch in it: their instances and sockets are ended instead.
    """
    return mark | epoch << MARK_EPOCH_SHIFT if is_routed(mark) else mark


MARK_PAST: Final = MARK_EGRESS | EGRESS_NUMBER_MAX
MARK_SIGNED_IN: Final = MARK_EGRESS | (EGRESS_NUMBER_MAX - 1)
MARK_CALLER: Final = MARK_EGRESS | (EGRESS_NUMBER_MAX - 3)
MARK_ASKING: Final = MARK_EGRESS | (EGRESS_NUMBER_MAX - 4)
MARK_ASKING_BY_HTTP: Final = MARK_EGRESS | (EGRESS_NUMBER_MAX - 5)
"""Connmarks of connections to proxy services: handshake with the service finished, authenticated,
accepted without data so far, greeting received by SOCKS or by HTTP. They use the highest numbers of
the inbound-WAN range, which no WAN reaches (`MARK_ASKED_LOCALLY` is the number left out), so the
rest of the ruleset treats such flows as inbound WAN traffic, which client rules do not match."""
SERVICE_MARKS: Final = frozenset(
    {MARK_PAST, MARK_SIGNED_IN, MARK_CALLER, MARK_ASKING, MARK_ASKING_BY_HTTP}
)
"""All connmarks of connections to proxy services."""


HASH_SEED: Final = 0x6567_7265
"""Seed of the hashes in the nftables table: a seed chosen by the kernel changes at each load."""


def inbound_number(place: int) -> int:
    """Return the egress number of answers to a WAN's inbound connections, by its place among the
    WANs.
    """
    return _bounded(_INBOUND + place, EGRESS_NUMBER_MAX)


def inbound_place(mark: int) -> int | None:
    """Return the place of the WAN whose answers bear that mark; None for another mark."""
    is_one = egress_mark(_INBOUND) <= mark <= egress_mark(EGRESS_NUMBER_MAX)
    return mark - egress_mark(_INBOUND) if is_one else None


def _bounded(number: int, maximum: int) -> int:
    if not 0 <= number <= maximum:
        raise ValueError(f"number {number} does not fit a mark (0 to {maximum})")
    return number


# --- Routing tables and policy rules. ---------------------------------------------------

_TABLES: Final = 650_000
"""First of egressd's table numbers: far above those that administrators and other programs choose
(below 1,000 mostly, wg-quick's from 51820 on), because a table has no owner."""
TABLE_LAN: Final = _TABLES + 99
"""The table of routes to the LAN networks only, consulted before all others: replies to clients in
one-arm use arrive and leave by the same interface and must not meet the default-deny rules."""
TABLE_TPROXY: Final = _TABLES + 100
"""The table of ``local default dev lo``: hands TPROXYed packets to this machine's sockets."""
RT_TABLE_MAIN: Final = 254
"""The kernel's own table (linux/rtnetlink.h)."""
_TABLE_EGRESS_BASE: Final = _TABLES + 1000


def egress_table(number: int) -> int:
    """Return the routing table of one egress."""
    return _TABLE_EGRESS_BASE + _bounded(number, EGRESS_NUMBER_MAX)


PRIORITY_DIRECT: Final = 100
"""The first priority, because each rule before it costs DIRECT's packets a look-up. Above are only
the kernel's own rule 0 and its ``local`` table. Other programs' rules come after all of egressd's;
if they do not, egressd's move (`egressd.planner.precedence`)."""
PRIORITY_TPROXY: Final = 110
"""Packets for an engine instance are delivered locally."""
PRIORITY_LAN: Final = 150
"""Packets without a mark, and the engine's answers, look up the LANs' networks."""
PRIORITY_EGRESS: Final = 200
"""Marked packets use the table of their egress."""
PRIORITY_ANSWER: Final = 205
"""Answers to connections that a WAN brought in leave by it."""
PRIORITY_SOURCE: Final = 210
"""Packets of this machine that bear a WAN's or a line's address leave by that interface."""
PRIORITY_ENGINE_DENY: Final = 890
"""Engine sockets that bear no mark are denied (``uidrange … prohibit``)."""
PRIORITY_LAN_DENY: Final = 900
"""Packets from a LAN that no rule above matched are denied (``iif … prohibit``)."""

METRIC_IPV6: Final = 1024
"""Metric of egressd's IPv6 routes, the ``unreachable`` ones excepted: the kernel's default."""
METRIC_UNREACHABLE: Final = 4_294_967_295
"""Metric of the ``unreachable`` routes beneath all others: the highest there is."""

ROUTE_PROTOCOL: Final = 0xE6
"""``rtm_protocol`` and ``FRA_PROTOCOL`` of all routes and rules of egressd, which identifies
them."""

# --- nftables and ports. ------------------------------------------------------------------

NFT_TABLE: Final = "egressd"
"""Name of egressd's tables: family inet, and netdev for speed limits."""

NFT_HOLD_TABLE: Final = "egressd_hold"
"""Name of the table that keeps the kernel translating flows while egressd's is gone."""

ENGINE_PORTS: Final = range(20_000, 30_000)
"""Loopback ports of engine listeners: below Linux's ephemeral range (32768 to 60999)."""

ANSWER_PORT: Final = 19_999
"""The UDP port that all answers of the engine to clients leave from, until the far end's is put
into them. Reserved in the kernel, so that no other program gets it by chance."""

LINE_PORTS: Final = range(16_896, 17_152)
"""Local UDP ports of L2TP lines with an IPsec secret, also below Linux's ephemeral range. Packets
from or to such a port without IPsec are dropped."""

CLEAR_LINE_PORTS: Final = range(17_152, 18_176)
"""Local UDP ports of L2TP lines without a secret. Packets to such a port are dropped unless they
come from the server that this port has called."""

FAST_PATH_PREFERENCE: Final = 0xE6
"""``pref`` of the classifier on LANs and WANs (tc-bpf(8))."""

APART: Final = IPv4Network("127.128.0.0/10")
"""Source addresses by which the engine sees UDP whose egress depends on a domain: one for each
client and destination."""

DATAGRAM_MAX: Final = 15_000
"""Bytes of the longest datagram that engine instances are handed. Each is read into 16 KiB, less
the overhead of its protocol (measured: the smallest room is VMess's over gRPC, 15,987)."""

SHORT_DATAGRAM: Final = 4000
"""Bytes of the longest datagram for nodes that carry no longer ones."""

RULE_SET_FOLDER: Final = "/proc/self/cwd"
"""The folder in which engine documents look for rule sets: the working directory that netd gives
their worker, even if the engine's user has no access to the path above it (proc(5))."""

# --- Speed limits. --------------------------------------------------------------------------

HTB_TREES: Final = 64
"""Trees of each kind (see `planner.shaping`) that a direction may have."""
HTB_TREE_CLASSES: Final = 1024
"""Class numbers of one tree, the unusable 0 included. To create or delete a class costs the kernel
a walk over all others of its tree (``tc_bind_tclass``): 0.1 ms among 1,000, 1.2 ms among 10,000. So
there are many trees of few classes."""
HTB_MAJOR: Final = 0x6500
"""Major number of the first tree's qdisc, ``6500:``; the others' follow it. A packet's class stays
in its priority on its way through later qdiscs, which interpret it as a class of theirs if they
have the same number: so it is one that neither administrators (``1:``) nor the kernel (``8001:``
and up) assign."""
SPLITTER_MAJOR: Final = 0x6600
"""Major number of the qdisc above the first tree that has one; the others' follow it."""

UPLOAD_DEVICE: Final = "egressd-up"
DOWNLOAD_DEVICE: Final = "egressd-down"
"""The intermediate functional blocks (IFB) on which limited clients' packets wait: these names
followed by the number of the tree."""

HELPER_INTERFACES: Final = frozenset(
    f"{name}{tree}" for name in (UPLOAD_DEVICE, DOWNLOAD_DEVICE) for tree in range(2 * HTB_TREES)
)
"""Interfaces of egressd's own, not shown to operators."""
