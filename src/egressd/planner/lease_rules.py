"""The gate of a member of a site: without a lease no client's packet leaves, and none comes back.

The kernel itself lets the lease run out: it is the elements of the set ``lease``, one for each
family, whose time-out netd renews (`egressd.netd.dataplane.lease`). So the gate also closes if netd
and the api are dead or frozen. Packets are dropped, not refused: another member may serve these
flows, and a reset would end them.

The gate is where clients' packets come in (``from_lan``, ahead of the short chains of known flows),
where sockets of the engine send, and where packets go to clients. The router's own services, the
API among them, and traffic between LANs are not behind it. The fast path has a gate of its own
(`egressd.netd.kernel.fast_path.program`).

All of this is in the table of a plan that is leased, and in no other: `GATED` names the sets and
chains, and each rule of another chain that belongs to them names the set.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.declared import Chain, SetSpec, chain
from egressd.planner.registry import MARK_EGRESS, MARK_ROUTED_MASK

LEASE: Final = "lease"
"""The set whose elements are the lease."""
_CLOSED: Final = f"meta nfproto != @{LEASE}"

SETS: Final = {
    # Filled by netd, never by a load. An element that matches no packet is there for a moment
    # whenever netd renews the lease.
    LEASE: SetSpec(
        "type nf_proto; flags timeout",
        "has ipv4 and ipv6 while this member of a site may let clients through; filled by netd",
    ),
}

FROM_LAN: Final = (f"{_CLOSED} goto unleased",)
FROM_ENGINE: Final = (f"{_CLOSED} jump unleased_engine",)
TO_CLIENT: Final = (f"{_CLOSED} drop",)
TO_LAN: Final = (
    # Established flows between a LAN and a local network would go to to_client.
    f"iifname @localif ip saddr @localnet {_CLOSED} accept",
)
INTO_LAN: Final = (f"{_CLOSED} drop",)
"""For packets to a LAN that belong to no flow: routed multicast."""
TO_LOCAL: Final = (
    f"oifname @localif ct direction reply ct mark & {MARK_ROUTED_MASK:#x} == {MARK_EGRESS:#x}"
    f" {_CLOSED} drop",
)
"""For answers to clients in a local network. Other hosts there are not egressd's concern."""
TO_SERVICE: Final = (f"tcp dport @services {_CLOSED} drop",)
FROM_SERVICE: Final = (f"tcp sport @services fib saddr type local {_CLOSED} drop",)
TO_RELAY: Final = (f"{_CLOSED} drop",)
FROM_RELAY: Final = (
    # The source port, read by its place: its type is not the map's. Sockets send no options.
    f"meta l4proto udp @nh,0,8 0x45 ct direction reply {_CLOSED}"
    " meta mark set @nh,160,16 map @relay_ports drop",
)

CHAINS: Final[dict[str, Chain]] = {
    "unleased": chain(
        "packets of LAN clients without a lease: to the router and between LANs only",
        # IPv6 reaches the router and no further, with a lease as well.
        "meta nfproto ipv6 accept",
        "meta mark set 0",
        "fib saddr type local drop",
        "iifname . ip saddr != @lansrc goto from_elsewhere",
        # DNS takes the client's egress, this router included.
        "meta l4proto { tcp, udp } th dport 53 drop",
        "fib daddr type { local, broadcast, multicast } accept",
        "ip daddr @lannet accept",
        "ip daddr @localnet accept",
        "drop",
    ),
    "unleased_engine": chain(
        "sockets of the engine without a lease send nothing; netd checks servers all the same",
        "meta skuid 0 return",
        "drop",
    ),
}
GATED: Final = frozenset({*SETS, *CHAINS})
"""The sets and chains that only the table of a leased plan has."""


def is_of_gate(rule: str) -> bool:
    """True if a rule belongs to the gate."""
    return f"@{LEASE} " in rule
