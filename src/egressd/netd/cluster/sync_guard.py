"""The table of nftables that lets only the other box of a pair send states of flows, and words.

conntrackd's messages are not authenticated (conntrackd.conf(5)): any host that can send them can
have this kernel let packets of a flow pass that never began here. Those of `cut_flow_sync` are not
either. The boxes' words about the database are authenticated: of them the table keeps other hosts'
datagrams from the api. The table is one of its own, so that no rule of a plan depends on a pair.
"""

from __future__ import annotations

from typing import Final

from egressd.model.pair import WORD_PORT, Pair, PairLink
from egressd.netd.cluster.cut_flow_sync import PORT as CUT_FLOW_PORT
from egressd.netd.cluster.flows import PORT

TABLE: Final = "egressd_pair"


def script(pair: Pair) -> str:
    """Return the nft script that loads the table for this pair."""
    return f"""\
table inet {TABLE} {{
}}
delete table inet {TABLE}
table inet {TABLE} {{
  comment "egressd: states of flows, and words, come from the other box alone"
  chain input {{
    type filter hook input priority raw; policy accept;
    udp dport {PORT} {_from_peer(pair.sync)} accept
    udp dport {WORD_PORT} {_from_peer(pair.sync)} accept
    udp dport {WORD_PORT} {_from_peer(pair.lan)} accept
    udp dport {{ {PORT}, {WORD_PORT} }} drop
    tcp dport {CUT_FLOW_PORT} {_from_peer(pair.sync)} accept
    tcp dport {CUT_FLOW_PORT} drop
  }}
}}
"""


def _from_peer(link: PairLink) -> str:
    return f'iifname "{link.interface}" ip saddr {link.peer} ip daddr {link.own}'


def removal() -> str:
    """Return the nft script that removes the table, if it is there."""
    return f"table inet {TABLE} {{\n}}\ndelete table inet {TABLE}\n"
