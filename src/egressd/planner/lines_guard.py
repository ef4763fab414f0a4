"""The guard of VPN lines: what may not pass, whatever state their daemons are in.

Not one packet of an L2TP line with a secret leaves or comes in clear.

Without an IPsec association L2TP just comes up in clear, or goes on so when the association
ends. Such a line sends from a port of `LINE_PORTS`, and nothing else does; whatever the
daemons' state, a packet from or to those ports that IPsec does not carry is dropped.

And nobody at a line's far end talks to this machine, but to answer it. That goes for late packets
of flows that ended when the line was down, too: the reset that would answer them is routed like
any packet of this machine, and so would leave by a WAN.
"""

from __future__ import annotations

from typing import Final

from egressd.model.names import LINE_TYPES
from egressd.planner.registry import LINE_PORTS

_RANGE: Final = f"{LINE_PORTS.start}-{LINE_PORTS.stop - 1}"

OUTPUT: Final = (
    # Engine instances answer clients in the name of whoever they asked, at any port.
    f"udp sport {_RANGE} ip daddr != @lannet rt ipsec missing drop",
    f"udp sport {_RANGE} fib saddr type local rt ipsec missing drop",
)
INPUT: Final = (
    # What clients send to such a port of somebody else's comes to instances by TPROXY.
    f"udp dport {_RANGE} fib daddr type local meta ipsec missing drop",
)
STRANGERS: Final = (
    "ct state { established, related } accept",
    *(f'iifname "{kind}_*" drop' for kind in LINE_TYPES),
)
"""Rules of egressd's own table, for packets of this machine, and to it; fixed, so that they hold
before any line is."""
