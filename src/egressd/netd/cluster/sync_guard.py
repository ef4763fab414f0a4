"""The table of nftables that lets only the other box of a pair send states of flows.

conntrackd's messages are not authenticated (conntrackd.conf(5)): any host that can send them can
have this kernel let packets of a flow pass that never began here. The table is one of its own, so
that no rule of a plan depends on a pair.
"""

from __future__ import annotations

from typing import Final

from egressd.model.pair import PairLink
from egressd.netd.cluster.flows import PORT

TABLE: Final = "egressd_pair"


def script(sync: PairLink) -> str:
    """Return the nft script that loads the table for this sync link."""
    return f"""\
table inet {TABLE} {{
}}
delete table inet {TABLE}
table inet {TABLE} {{
  comment "egressd: states of flows come from the other box alone"
  chain input {{
    type filter hook input priority raw; policy accept;
    udp dport {PORT} iifname "{sync.interface}" ip saddr {sync.peer} ip daddr {sync.own} accept
    udp dport {PORT} drop
  }}
}}
"""


def removal() -> str:
    """Return the nft script that removes the table, if it is there."""
    return f"table inet {TABLE} {{\n}}\ndelete table inet {TABLE}\n"
