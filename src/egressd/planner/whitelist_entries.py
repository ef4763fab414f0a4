"""The whitelist in engine documents: the traffic that is inspected, and the rules that follow.

Only the ports that entries need are sniffed: on others a protocol whose server speaks first would
wait for the sniffer to give up. The domains themselves are in rule sets beside the documents, which
refer to them by file name. The api names the sets, and netd makes the rules from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from egressd.formats.whitelist import WhitelistEntries, parse_whitelist
from egressd.model.instances import ListedSet
from egressd.model.nouns import Whitelist
from egressd.planner import rule_set
from egressd.planner.registry import RULE_SET_FOLDER

LISTED: Final = "listed"
"""Tag of the outbound that entries go to."""

HTTP_PORTS: Final = (80, 8080)
TLS_PORTS: Final = (443, 8443)
QUIC_PORTS: Final = (443, 8443)
"""Ports on which ordinary entries are recognised."""

_SNIFF_TIMEOUT: Final = "300ms"
_PROTOCOL: Final = {"http": "http", "https": "tls", "quic": "quic"}
"""Scheme of an entry -> sing-box's name of the sniffed protocol."""
_USUAL_PORTS: Final = {"http": HTTP_PORTS, "tls": TLS_PORTS, "quic": QUIC_PORTS}


class DomainListing(msgspec.Struct, frozen=True):
    """The domain entries of a whitelist, in the form for instances and the plan."""

    tcp_ports: tuple[int, ...]
    udp_ports: tuple[int, ...]
    """The ports on which entries have to be seen, ascending."""
    sets: tuple[ListedSet, ...]
    rule_sets: dict[str, bytes]
    """The content of the rule sets that `sets` name."""


def has_entries(whitelist: Whitelist) -> bool:
    """True if the whitelist has an entry."""
    entries = entries_of(whitelist)
    return bool(entries.domains or entries.networks)


@lru_cache(8)
def entries_of(whitelist: Whitelist) -> WhitelistEntries:
    """Return the entries of a whitelist that was accepted."""
    return parse_whitelist(whitelist.domains, whitelist.ips)


@lru_cache(8)
def listing_of(whitelist: Whitelist) -> DomainListing:
    """Return the ports, sets and rule sets of a whitelist's domain entries."""
    alike: dict[tuple[str, int], list[str]] = {}
    for entry in entries_of(whitelist).domains:
        alike.setdefault((entry.scheme, entry.port), []).append(entry.domain)
    sets = []
    rule_sets = {}
    for (scheme, port), domains in alike.items():
        content = rule_set.encode(domains)
        name = rule_set.name_of(content)
        rule_sets[name] = content
        sets.append(ListedSet(rule_set=name, scheme=scheme, port=port))
    tcp, udp = _ports(sets)
    return DomainListing(tcp_ports=tcp, udp_ports=udp, sets=tuple(sets), rule_sets=rule_sets)


def rules_of(sets: Iterable[ListedSet]) -> Iterator[dict[str, Any]]:
    """Yield the sing-box rules that send listed traffic to the outbound `LISTED`; the rest goes
    on.
    """
    sets = tuple(sets)
    tcp, udp = _ports(sets)
    yield from _sniffing("tcp", tcp, "http", "tls")
    yield from _sniffing("udp", udp, "quic")
    for each in sets:
        for protocol, ports in _where(each).items():
            yield {
                "protocol": protocol,
                "port": list(ports),
                "rule_set": _tag(each),
                "outbound": LISTED,
            }


def references_of(sets: Iterable[ListedSet]) -> Iterator[dict[str, Any]]:
    """Yield the rule sets that `rules_of` names, for a document's ``route.rule_set``."""
    for each in sets:
        path = f"{RULE_SET_FOLDER}/{each.rule_set}"
        yield {"type": "local", "format": "binary", "tag": _tag(each), "path": path}


def _tag(each: ListedSet) -> str:
    return f"{each.scheme}:{each.port}" if each.scheme else LISTED


def _where(each: ListedSet) -> Mapping[str, tuple[int, ...]]:
    """Return sing-box's name of each protocol in which the domains are seen, with its ports."""
    return {_PROTOCOL[each.scheme]: (each.port,)} if each.scheme else _USUAL_PORTS


def _ports(sets: Iterable[ListedSet]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ports of TCP and of UDP on which entries have to be seen, ascending."""
    tcp: set[int] = set()
    udp: set[int] = set()
    for each in sets:
        for protocol, ports in _where(each).items():
            (udp if protocol == "quic" else tcp).update(ports)
    return tuple(sorted(tcp)), tuple(sorted(udp))


def _sniffing(network: str, ports: tuple[int, ...], *sniffers: str) -> Iterator[dict[str, Any]]:
    if ports:
        yield {
            "network": network,
            "port": list(ports),
            "action": "sniff",
            "sniffer": list(sniffers),
            "timeout": _SNIFF_TIMEOUT,
        }
