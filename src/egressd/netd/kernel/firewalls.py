"""Obstacles to egressd's clients in other programs' firewalls.

A packet passes the chains of all tables of a hook, and one chain that drops it is enough (nft(8)).
Docker, ufw and firewalld bring such chains. Nothing leaks that way, but nothing explains why
clients are blocked, either. Marks are reported for the same reason: egressd relies on its own
connection marks and, behind its own chain, packet marks; another program's marks make a flow look
like one that has moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

from egressd.model.wording import Sentence, say
from egressd.netd.kernel import legacy_iptables
from egressd.netd.kernel.nft import Nft
from egressd.planner.chains.prerouting import PREROUTING_PRIORITY
from egressd.planner.registry import NFT_HOLD_TABLE, NFT_TABLE
from egressd.planner.topology import Topology

_OURS = frozenset(f"inet {name}" for name in (NFT_TABLE, NFT_HOLD_TABLE))
_TABLE = re.compile(r"^table (?P<table>(?:ip|inet) \S+) \{\n", re.MULTILINE)
_CHAIN = re.compile(r"^\tchain (?P<chain>\S+) \{\n(?P<rules>.*?)^\t\}", re.MULTILINE | re.DOTALL)
_HOOKED = re.compile(
    r"^\t\ttype (?:filter|route) hook (?P<hook>prerouting|input|forward|output|postrouting)"
    r" priority (?P<priority>-?\d+); policy (?P<policy>\w+);",
    re.MULTILINE,
)
_DROPS_ALL = re.compile(r"^\t\t(?:counter )?(?:drop|reject\b.*)$", re.MULTILINE)
_MARKS_FLOWS = re.compile(
    r'^(?!.*meta mark (?!set)).*(?:ct mark set|xt target "CONNMARK")', re.MULTILINE
)
"""Rules that mark connections whose packets bear no mark of that program: wg-quick's rules only
mark those of its own tunnel."""
_MARKS_PACKETS = re.compile(r"meta mark set")


def problems(nft: Nft, topology: Topology) -> tuple[Sentence, ...]:
    """Return a sentence for each table that may block clients, as far as its text shows. Raises
    Failed.

    A base chain that drops all unmatched packets counts only if no rule of its table names a LAN,
    by its interface or by one of its networks. If rules do, the administrator has taken the clients
    into account, and the rules decide what passes.
    """
    return tuple(_problems(nft, topology))


def legacy_problems(topology: Topology) -> tuple[Sentence, ...]:
    """Do the same for the table of iptables' own kernel interface. Raises OSError."""
    table = legacy_iptables.read()
    if table is None or not table.dropping:
        return ()
    unnamed = [
        lan
        for lan in topology.lans
        if lan not in table.interfaces and table.networks.isdisjoint(_networks(lan, topology))
    ]
    if not unnamed:
        return ()
    return (_dropping(unnamed, "iptables-legacy", "filter", table.dropping),)


def _problems(nft: Nft, topology: Topology) -> Iterator[Sentence]:
    for table in _TABLE.findall(nft.listed("chains")):
        if table in _OURS:
            continue
        rules = nft.listed(f"table {table}")
        dropping, marking = [], []
        for found in _CHAIN.finditer(rules):
            hooked = _HOOKED.search(found["rules"])
            if hooked and (hooked["policy"] == "drop" or _DROPS_ALL.search(found["rules"])):
                dropping.append(found["chain"])
            if _MARKS_FLOWS.search(found["rules"]) or (
                hooked
                and hooked["hook"] == "prerouting"
                and int(hooked["priority"]) > PREROUTING_PRIORITY
                and _MARKS_PACKETS.search(found["rules"])
            ):
                marking.append(found["chain"])
        unnamed = [lan for lan in topology.lans if not _names(rules, lan, topology)]
        if dropping and unnamed:
            yield _dropping(unnamed, "nftables", table, dropping)
        if marking:
            yield say("marks-in-the-way", table=table, chains=tuple(marking))


def _dropping(
    unnamed: list[str], program: str, table: str, chains: list[str] | tuple[str, ...]
) -> Sentence:
    return say(
        "firewall-drops", lans=tuple(unnamed), program=program, table=table, chains=tuple(chains)
    )


def _names(rules: str, lan: str, topology: Topology) -> bool:
    networks = map(str, _networks(lan, topology))
    return any(
        re.search(rf'(?<![\w."]){re.escape(word)}(?![\w."])', rules)
        for word in (f'"{lan}"', *networks)
    )


def _networks(lan: str, topology: Topology) -> list[IPv4Network]:
    return [network for name, network in topology.lan_networks if name == lan]
