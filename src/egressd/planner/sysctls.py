"""Kernel parameters (sysctl(8)) that the layout needs, as paths below ``/proc/sys``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from egressd.planner.topology import Topology, is_line

_NEIGHBOURS: Final = (4_096, 16_384, 32_768)
"""Entries: ``gc_thresh1`` to ``gc_thresh3``."""
_FLOWS: Final = 262_144
"""Tracked flows that the kernel itself allows with 4 GiB and more."""
_ERRORS: Final = 10_000  # ICMP messages a second, of all hosts together
_PIPES_SHARE: Final = 4  # part of the memory that a user's pipes may take: a quarter


def wanted(topology: Topology, egresses: Iterable[str]) -> dict[str, str]:
    """Return the parameters with a fixed value. `egresses`: the interfaces that the plan sends
    clients to.

    - ``rp_filter`` 0 on WANs, lines and all other interfaces that clients leave by: the reverse
      look-up of an answer has the LAN as input interface and no mark, so the default-deny rules
      prohibit it and strict and loose mode both drop it. The spoofing that it would catch is caught
      by nftables (``lansrc`` and ``lannet``).
    - ``accept_local`` 1: without it the kernel looks up the way back to each packet's source, by
      all policy rules, to see that it isn't an address of its own (``fib_validate_source``). That
      was a fifth of what egressd adds to forwarding; nftables checks a flow's first packet.
    - ``accept_ra`` and ``autoconf`` 0 on interfaces with clients behind them, and
      ``accept_redirects`` 0 there in both families: by one message any client could become this
      machine's router. (A program may listen for routers in the kernel's place: see the chain
      ``input6``.)
    - ``min_pmtu`` 1,280 bytes, the least MTU of every path where there is IPv6 (RFC 8200, 5): a
      forged ICMP error makes packets to a node no smaller. Narrower paths get fragments.
    - ``send_redirects`` 0: in one-arm use redirects would make clients bypass the router.
    - ``bridge-nf-call-iptables`` 0: TPROXY in the bridge's path breaks the engine.
    - ``ip_early_demux`` 0: the engine's sockets have clients' addresses. A packet that the kernel
      should forward is dropped (``ip_forward``) while the engine's end of an earlier connection
      with the same ports is in TIME_WAIT. It costs forwarding a look-up besides.
    - ``nf_conntrack_acct`` and ``nf_conntrack_timestamp`` 1: each flow has its bytes and its age,
      for the list of a client's connections. A flow takes 48 bytes more.
    - ``icmp_ratelimit`` 1 ms: the default of one error a second leaves clients whose UDP is refused
      waiting for a time-out (a browser that tries QUIC opens several flows at once).
    """
    settings = {
        "net/ipv4/icmp_ratelimit": "1",
        "net/ipv4/ip_early_demux": "0",
        "net/ipv4/route/min_pmtu": "1280",
        "net/bridge/bridge-nf-call-iptables": "0",
        "net/bridge/bridge-nf-call-ip6tables": "0",
        "net/netfilter/nf_conntrack_acct": "1",
        "net/netfilter/nf_conntrack_timestamp": "1",
    }
    others = {n for n in topology.routable if is_line(n)} | {*egresses}.difference(topology.lans)
    for name in ("all", "default", *topology.wans, *sorted(others)):
        settings[f"net/ipv4/conf/{name}/rp_filter"] = "0"
    for name in ("all", "default", *topology.lans):
        settings[f"net/ipv4/conf/{name}/send_redirects"] = "0"
    for name in (*topology.lans, *topology.wans):
        settings[f"net/ipv4/conf/{name}/accept_local"] = "1"
    for name in topology.unheard:
        settings[f"net/ipv4/conf/{name}/accept_redirects"] = "0"
        settings[f"net/ipv6/conf/{name}/accept_redirects"] = "0"
    for name in topology.without_router6:
        settings[f"net/ipv6/conf/{name}/accept_ra"] = "0"
        settings[f"net/ipv6/conf/{name}/autoconf"] = "0"
    return settings


def room(memory: int) -> dict[str, int]:
    """Return lower bounds for limits that all clients share, most of them limits of the whole
    machine. `memory`: the machine's, in pages.

    - ``gc_thresh``: of the table of neighbours, whose default has room for 1,024 in all networks
      together. With more clients than that, the kernel cannot send to some of them ("neighbor table
      overflow"). Up to the first limit none is forgotten while it is silent (arp(7)).
    - ``nf_conntrack_max``: of tracked flows; the kernel drops packets that would open a further
      one. It allows 65,536 with 4 GiB or less, and 8,192 with 1 GiB. A flow takes 320 bytes, so
      that one for each page is at most a twelfth of the memory. ``nf_conntrack_buckets`` keeps the
      look-up short.
    - ``icmp_msgs``: of the errors that the machine sends in all, a second and at once; by default
      1,000 and 50. Of 1,000 clients whose UDP is refused at the same time, 46 to 58 received an
      error; the others waited for a time-out. (``icmp_ratelimit`` is of one destination.)
    - ``pipe-user-pages-soft``: of the capacity of a user's pipes. For unencrypted traffic the Go
      runtime splices (splice(2)), through two pipes of 1 MiB for each connection. A user may have
      64 such pipes; all further ones hold two pages (pipe(7)), and splicing by so little costs
      twice the processor time: 200 connections came to 4 Gbit/s where one process of root's made 7.
      Pipes are counted by their capacity, though they seldom hold a page.
    """
    flows = min(_FLOWS, memory)
    neighbours = {
        f"net/{family}/neigh/default/gc_thresh{n}": value
        for family in ("ipv4", "ipv6")
        for n, value in enumerate(_NEIGHBOURS, 1)
    }
    return {
        **neighbours,
        "net/ipv4/icmp_msgs_per_sec": _ERRORS,
        "net/ipv4/icmp_msgs_burst": _ERRORS,
        "net/netfilter/nf_conntrack_buckets": flows,
        "net/netfilter/nf_conntrack_max": flows,
        "fs/pipe-user-pages-soft": memory // _PIPES_SHARE,
    }


def forwarding() -> dict[str, str]:
    """Return the parameters that are switched on last, once the guard and the table are in
    force.
    """
    return {"net/ipv4/ip_forward": "1"}
