"""The whitelist in engine documents: which traffic is looked into, and what follows.

Only the ports that entries need are sniffed: on others a protocol whose server speaks first
would wait for the sniffer to give up. The domains themselves are in rule sets beside the
documents, which refer to them by file name.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Final

import msgspec

from egressd.formats.whitelist import WhitelistEntries, parse_whitelist
from egressd.model.nouns import Whitelist
from egressd.planner import rule_set
from egressd.planner.registry import RULE_SET_FOLDER

LISTED: Final = "listed"
"""Tag of the outbound that entries go to."""

HTTP_PORTS: Final = (80, 8080)
TLS_PORTS: Final = (443, 8443)
QUIC_PORTS: Final = (443, 8443)
"""Where ordinary entries are recognised."""

_SNIFF_TIMEOUT: Final = "300ms"
_PROTOCOL: Final = {"http": "http", "https": "tls", "quic": "quic"}
"""Scheme of an entry -> sing-box's name of the sniffed protocol."""
_USUAL_PORTS: Final = {"http": HTTP_PORTS, "tls": TLS_PORTS, "quic": QUIC_PORTS}


class Listing(msgspec.Struct, frozen=True):
    """The domain entries of a whitelist, as documents and netd need them."""

    tcp_ports: tuple[int, ...]
    udp_ports: tuple[int, ...]
    """The ports on which entries have to be seen, ascending."""
    rules: list[dict[str, Any]]
    """sing-box rules that send listed traffic to the outbound `LISTED`; the rest goes on."""
    references: list[dict[str, Any]]
    """The rule sets that `rules` name, for a document's ``route.rule_set``."""
    rule_sets: dict[str, bytes]
    """Their content by file name."""


def has_entries(whitelist: Whitelist) -> bool:
    """Whether anything is listed."""
    entries = entries_of(whitelist)
    return bool(entries.domains or entries.networks)


@lru_cache(8)
def entries_of(whitelist: Whitelist) -> WhitelistEntries:
    """The entries of a whitelist that was accepted."""
    return parse_whitelist(whitelist.domains, whitelist.ips)


@lru_cache(8)
def listing_of(whitelist: Whitelist) -> Listing:
    """What the domain entries of a whitelist come to."""
    alike: dict[tuple[str, int], list[str]] = {}
    for entry in entries_of(whitelist).domains:
        alike.setdefault((entry.scheme, entry.port), []).append(entry.domain)
    tcp: set[int] = set()
    udp: set[int] = set()
    rules: list[dict[str, Any]] = []
    references: list[dict[str, Any]] = []
    rule_sets: dict[str, bytes] = {}
    for (scheme, port), domains in alike.items():
        content = rule_set.encode(domains)
        name = f"{hashlib.sha256(content).hexdigest()[:32]}.srs"
        rule_sets[name] = content
        tag = f"{scheme}:{port}" if scheme else LISTED
        path = f"{RULE_SET_FOLDER}/{name}"
        references.append({"type": "local", "format": "binary", "tag": tag, "path": path})
        where = {_PROTOCOL[scheme]: (port,)} if scheme else _USUAL_PORTS
        for protocol, ports in where.items():
            (udp if protocol == "quic" else tcp).update(ports)
            rules.append(
                {"protocol": protocol, "port": list(ports), "rule_set": tag, "outbound": LISTED}
            )
    return Listing(
        tcp_ports=tuple(sorted(tcp)),
        udp_ports=tuple(sorted(udp)),
        rules=[*_sniffing("tcp", tcp, "http", "tls"), *_sniffing("udp", udp, "quic"), *rules],
        references=references,
        rule_sets=rule_sets,
    )


def _sniffing(network: str, ports: set[int], *sniffers: str) -> list[dict[str, Any]]:
    if not ports:
        return []
    return [
        {
            "network": network,
            "port": sorted(ports),
            "action": "sniff",
            "sniffer": list(sniffers),
            "timeout": _SNIFF_TIMEOUT,
        }
    ]
