"""The guard of VPN lines: what may not pass, whatever state their daemons are in.

Not one packet of an L2TP line with a secret leaves or comes in clear.

Without an IPsec association L2TP just comes up in clear, or goes on so when the association
ends. Such a line sends from a port of `LINE_PORTS`, and nothing else does; whatever the
daemons' state, a packet from or to those ports that IPsec does not carry is dropped.

Nor does one of a line without a secret, or of a PPTP line, leave by another interface than the one
that has its source address. The policy rule that holds it there goes with the address, and is
missing for a moment when the address is back, or after another program took it.

Nobody but its server talks to the daemon of a line without a secret: whoever names a tunnel's
number (16 bits) could end it, and whoever asks for a tunnel takes of its memory. Such a line
sends from a port of `CLEAR_LINE_PORTS`, and the kernel remembers whom the port has called. The
server may answer from another port than the one that was called (RFC 2661, 8.1), so that its
address counts, not its port. From then on it is a flow that conntrack knows.

And nobody at a line's far end talks to this machine or what is behind it, but to answer, or to what
a port forward leads to. That goes for late packets of flows that ended when the line was down, too:
the reset that would answer them is routed like any packet of this machine, and so would leave by a
WAN. So would the error about a packet that is to be forwarded and has come too far: it must not be
seen as one to be forwarded.
"""

from __future__ import annotations

from typing import Final

from egressd.model.names import LINE_TYPES
from egressd.planner.declared import SetSpec
from egressd.planner.registry import CLEAR_LINE_PORTS, LINE_PORTS

_RANGE: Final = f"{LINE_PORTS.start}-{LINE_PORTS.stop - 1}"
_CLEAR: Final = f"{CLEAR_LINE_PORTS.start}-{CLEAR_LINE_PORTS.stop - 1}"
_IS_PPTP: Final = "@th,16,16 0x880b"
"""GRE's protocol type (RFC 2637, 4.1): other tunnels of this machine are not egressd's."""

SETS: Final = {
    # Filled by OUTPUT. xl2tpd gives a server up that was silent for 7 s.
    "called": SetSpec(
        "type ipv4_addr . inet_service; size 65535; flags dynamic,timeout; timeout 1m",
        "L2TP server and local port, called lately; filled by packets",
    ),
}
OUTPUT: Final = (
    # Engine instances answer clients in the name of whoever they asked, at any port.
    f"udp sport {_RANGE} ip daddr != @lannet rt ipsec missing drop",
    f"udp sport {_RANGE} fib saddr type local rt ipsec missing drop",
    f"udp sport {LINE_PORTS.start}-{CLEAR_LINE_PORTS.stop - 1} fib saddr type local"
    " fib saddr . oif type != local drop",
    f"meta l4proto gre {_IS_PPTP} ip daddr != @lannet fib saddr type local"
    " fib saddr . oif type != local drop",
    f"udp sport {_CLEAR} ct state != established fib saddr type local"
    " update @called { ip daddr . udp sport }",
)
INPUT: Final = (
    # What clients send to such a port of somebody else's comes to instances by TPROXY.
    f"udp dport {_RANGE} fib daddr type local meta ipsec missing drop",
    f"udp dport {_CLEAR} ct state != established fib daddr type local"
    " ip saddr . udp dport != @called drop",
)
UNASKED: Final = tuple(f'iifname "{kind}_*" drop' for kind in LINE_TYPES)
INVALID: Final = tuple(f'ct state invalid iifname "{kind}_*" drop' for kind in LINE_TYPES)
STRANGERS: Final = ("ct state { established, related } accept", *UNASKED)
"""Rules of egressd's own table, for packets of this machine, and to it; fixed, so that they hold
before any line is."""
