"""The guard of VPN lines: rules that drop packets in every state of the lines' daemons.

No packet of an L2TP line with a secret leaves or arrives in clear text. Without an IPsec
association L2TP comes up in clear text, or continues so when the association ends. Such a line
sends from a port of `LINE_PORTS`, which nothing else uses. In every state of the daemons, a packet
from or to those ports that IPsec does not carry is dropped.

No packet of a line without a secret, or of a PPTP line, leaves by another interface than the one
with its source address. The policy rule that holds it there is bound to the address, and is missing
for a moment when the address is back, or after another program took it.

Only its server reaches the daemon of a line without a secret. Any other host that names a tunnel's
number (16 bits) could end the tunnel, and each request for a tunnel takes memory. Such a line sends
from a port of `CLEAR_LINE_PORTS`, and the kernel remembers the addresses that the port has called.
The server may answer from another port than the called one (RFC 2661, 8.1), so the rule compares
its address, not its port. From then on conntrack knows the flow.

Hosts at a line's far end reach this machine, or the hosts behind it, only with answers and through
port forwards. This includes late packets of flows that ended when the line was down: the reset that
would answer them is routed like any packet of this machine, and so would leave by a WAN. So would
the error about a packet to be forwarded whose hop limit is used up: it must not be seen as one to
be forwarded.

conntrack does not know the GRE of a PPTP line that another line carries: each end names the calls
of the other (RFC 2637, 4.1), so the server's packets are a flow of their own. They are let in from
the server that this machine calls by that line.
"""

from __future__ import annotations

from typing import Final

from egressd.model.names import LINE_TYPES
from egressd.planner.declared import SetSpec
from egressd.planner.registry import CLEAR_LINE_PORTS, LINE_PORTS

_RANGE: Final = f"{LINE_PORTS.start}-{LINE_PORTS.stop - 1}"
_CLEAR: Final = f"{CLEAR_LINE_PORTS.start}-{CLEAR_LINE_PORTS.stop - 1}"
_IS_PPTP: Final = "@th,16,16 0x880b"
"""GRE's protocol type (RFC 2637, 4.1). Other tunnels of this machine are not egressd's."""

SETS: Final = {
    # The rules of OUTPUT fill it. xl2tpd gives up a server that was silent for 7 s.
    "called": SetSpec(
        "type ipv4_addr . inet_service; size 65535; flags dynamic,timeout; timeout 1m",
        "L2TP server and local port, called lately; filled by packets",
    ),
    # The rules of OUTPUT fill it. pppd sends at least every second.
    "called_gre": SetSpec(
        "type ipv4_addr . ifname; size 4096; flags dynamic,timeout; timeout 1m",
        "PPTP server and line that carries the call; filled by packets",
    ),
}
OUTPUT: Final = (
    # Engine instances answer clients from the address and port that the client asked: any port.
    f"udp sport {_RANGE} ip daddr != @lannet rt ipsec missing drop",
    f"udp sport {_RANGE} fib saddr type local rt ipsec missing drop",
    f"udp sport {LINE_PORTS.start}-{CLEAR_LINE_PORTS.stop - 1} fib saddr type local"
    " fib saddr . oif type != local drop",
    f"meta l4proto gre {_IS_PPTP} ip daddr != @lannet fib saddr type local"
    " fib saddr . oif type != local drop",
    f"udp sport {_CLEAR} ct state != established fib saddr type local"
    " update @called { ip daddr . udp sport }",
    *(
        f'meta l4proto gre {_IS_PPTP} oifname "{kind}_*" fib saddr type local'
        " update @called_gre { ip daddr . oifname }"
        for kind in LINE_TYPES
    ),
    # pptp ends on the error that a packet is too large for the path. Without the error large
    # packets are lost. So they may be fragmented.
    f"meta l4proto gre {_IS_PPTP} fib saddr type local ip frag-off set 0",
)
_CALLED_GRE: Final = f"meta l4proto gre {_IS_PPTP} ip saddr . iifname @called_gre accept"
INPUT: Final = (
    # TPROXY delivers clients' packets to such a port of another host to the instances.
    f"udp dport {_RANGE} fib daddr type local meta ipsec missing drop",
    f"udp dport {_CLEAR} ct state != established fib daddr type local"
    " ip saddr . udp dport != @called drop",
)
UNASKED: Final = (_CALLED_GRE, *(f'iifname "{kind}_*" drop' for kind in LINE_TYPES))
INVALID: Final = tuple(f'ct state invalid iifname "{kind}_*" drop' for kind in LINE_TYPES)
STRANGERS: Final = ("ct state { established, related } accept", *UNASKED)
"""Rules of egressd's own table, for packets from and to this machine. They are fixed, so that they
are in force before any line exists.
"""
