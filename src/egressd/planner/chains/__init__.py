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
5. ``seal`` and ``routed``: a flow keeps its first mark as conntrack mark; once its client's mark
   changes, the flow is reset. So the change of the element is itself the cut. Flows that the
   kernel routes keep the whitelist's epoch beside it.
   Further packets of a connection take shorter chains: ``known`` and ``known_to_engine``.
6. ``forward`` checks that the mark and the outgoing interface agree, independent of routing.

The files: `prerouting` (steps 1 to 3, and `routed`), `engine` (4, `seal`, and the answers of
instances), `bounds` (the limits of one client), `dns`, `forward`, and `own` for packets to and from
this machine. Proxy services, VPN lines and the API have chains of their own
(`planner.services_guard`, `planner.lines.guard`, `planner.api_guard`).

Written for nftables 1.0.6 and 1.1, which parse this text alike: no chain on one line, and
interfaces by name (``iifname``), because an index goes stale when an interface is recreated.
"""

from __future__ import annotations

from typing import Final

from egressd.planner import api_guard, services_guard
from egressd.planner.chains import bounds, dns, engine, forward, own, prerouting
from egressd.planner.lines import guard as lines_guard

SETS: Final = {
    "lanif": "type ifname",
    "lannet": "type ipv4_addr; flags interval",
    "lansrc": "type ifname . ipv4_addr; flags interval",
    "seen": "type ifname",
    "multicast": "type ifname",
    "resolvers": "type ipv4_addr",
    "here": "type mark . ipv4_addr",
    "unheard": "type ifname",
    "routers6": "type ifname . ipv6_addr",
    # Filled by packets: routers that advertise on interfaces whose advertisements do not count.
    "advertised": "type ifname . ipv6_addr; size 1024; flags dynamic,timeout; timeout 10m",
    "neighbours": "type ipv4_addr",
    "localif": "type ifname",
    "localnet": "type ipv4_addr; flags interval",
    "unruled": "type ifname",
    "outside": "type ifname",
    "own": "type ipv4_addr",
    # Interfaces with clients behind them by which flows of this mark leave, too (in one-arm use).
    "ways_in": "type mark . ifname",
    "alive": "type mark",
    "noudp": "type mark",
    "shortudp": "type mark",
    "same": "type mark . mark",
    "plain": "type mark . mark",
    "wlports": "type inet_proto . inet_service",
    **lines_guard.SETS,
    **services_guard.SETS,
    **api_guard.SETS,
    **bounds.SETS,
    "members": "type mark . mark",
    # Filled by packets: the marks by which names are resolved, with the number of questions.
    "questions": "type mark; size 65535; counter; flags dynamic,timeout; timeout 1m",
    # Filled by the speed limits' adapter, never by a load: a load keeps their counters.
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

RETIRED: Final = ("input_dns", "input_services", "input_lines", "output_lines")
"""Base chains of earlier versions: a load removes them, or they would stay in force beside the
new."""
RETIRED_MAPS: Final = {"relays": "type inet_service : mark; size 131072; flags dynamic,timeout"}
"""Maps of earlier versions, which a load removes: name -> type and flags."""

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    **prerouting.CHAINS,
    **dns.CHAINS,
    **engine.CHAINS,
    **bounds.CHAINS,
    **own.CHAINS,
    **services_guard.CHAINS,
    **api_guard.CHAINS,
    **forward.CHAINS,
}
