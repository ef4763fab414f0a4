"""Other programs' firewalls: one that drops what it does not know holds egressd's clients up.

A packet passes the chains of all tables of a hook, and one that drops it is enough (nft(8)).
Docker, ufw and firewalld bring such chains. Nothing leaks that way, but nothing tells why clients
are blocked, either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from egressd.netd.kernel.nft import Nft
from egressd.planner.registry import NFT_TABLE
from egressd.planner.topology import Topology

_TABLE = re.compile(
    r"^table (?P<table>(?:ip|inet) \S+) \{\n(?P<chains>.*?)^\}", re.MULTILINE | re.DOTALL
)
_DROPPING = re.compile(
    r"^\tchain (?P<chain>\S+) \{\n"
    r"\t\ttype \w+ hook (?:prerouting|input|forward|output|postrouting) [^\n]*policy drop;",
    re.MULTILINE,
)


def obstacles(nft: Nft, topology: Topology) -> tuple[str, ...]:
    """A sentence for each base chain that drops by default, in a table of which no rule names a
    LAN: by its interface, or by a network of its. Raises Failed.

    Where rules do name it, somebody has thought of the clients, and what is let through is theirs
    to say.
    """
    return tuple(_obstacles(nft, topology))


def _obstacles(nft: Nft, topology: Topology) -> Iterator[str]:
    for found in _TABLE.finditer(nft.listed("chains")):
        table, chains = found["table"], found["chains"]
        dropping = [base["chain"] for base in _DROPPING.finditer(chains)]
        if not dropping or table == f"inet {NFT_TABLE}":
            continue
        rules = nft.listed(f"table {table}")
        unnamed = [lan for lan in topology.lans if not _names(rules, lan, topology)]
        if unnamed:
            yield (
                f"another program's firewall drops what its rules do not let through, and none of"
                f" them names {', '.join(unnamed)}: clients may be blocked"
                f" (nftables, table {table}, {', '.join(dropping)})"
            )


def _names(rules: str, lan: str, topology: Topology) -> bool:
    networks = [str(network) for name, network in topology.lan_networks if name == lan]
    return any(
        re.search(rf'(?<![\w."]){re.escape(word)}(?![\w."])', rules)
        for word in (f'"{lan}"', *networks)
    )
