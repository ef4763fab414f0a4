"""The whitelist in engine documents: which traffic is looked into, and what follows.

Only the ports that entries need are sniffed: on others a protocol whose server speaks first
would wait for the sniffer to give up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from egressd.formats.whitelist import WhitelistEntries, parse_whitelist
from egressd.model.nouns import Whitelist

LISTED: Final = "listed"
"""Tag of the rule set of ordinary entries, and of the outbound that entries go to."""

HTTP_PORTS: Final = (80, 8080)
TLS_PORTS: Final = (443, 8443)
QUIC_PORTS: Final = (443, 8443)
"""Where ordinary entries are recognised."""

_SNIFF_TIMEOUT: Final = "300ms"
_PROTOCOL = {"http": "http", "https": "tls", "quic": "quic"}
"""Scheme of an entry -> sing-box's name of the sniffed protocol."""


@lru_cache(8)
def entries_of(whitelist: Whitelist) -> WhitelistEntries:
    """The entries of a whitelist that was accepted."""
    return parse_whitelist(whitelist.domains, whitelist.ips)


@lru_cache(8)
def ports(whitelist: Whitelist) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The TCP and the UDP ports on which domain entries have to be seen, ascending."""
    tcp: set[int] = set()
    udp: set[int] = set()
    for entry in entries_of(whitelist).domains:
        if not entry.scheme:
            tcp.update(HTTP_PORTS + TLS_PORTS)
            udp.update(QUIC_PORTS)
        elif entry.scheme == "quic":
            udp.add(entry.port)
        else:
            tcp.add(entry.port)
    return tuple(sorted(tcp)), tuple(sorted(udp))


def route_rules(whitelist: Whitelist) -> list[dict[str, Any]]:
    """sing-box rules that send listed traffic to the outbound `LISTED`; the rest goes on."""
    tcp, udp = ports(whitelist)
    rules: list[dict[str, Any]] = [
        {
            "network": network,
            "port": list(numbers),
            "action": "sniff",
            "sniffer": sniffers,
            "timeout": _SNIFF_TIMEOUT,
        }
        for network, numbers, sniffers in (
            ("tcp", tcp, ["http", "tls"]),
            ("udp", udp, ["quic"]),
        )
        if numbers
    ]
    if _ordinary(whitelist):
        rules += [
            {"protocol": protocol, "port": list(numbers), "rule_set": LISTED, "outbound": LISTED}
            for protocol, numbers in (
                ("http", HTTP_PORTS),
                ("tls", TLS_PORTS),
                ("quic", QUIC_PORTS),
            )
        ]
    rules += _bound_rules(whitelist)
    return rules


def rule_sets(whitelist: Whitelist) -> list[dict[str, Any]]:
    """The ordinary entries as an inline rule set."""
    domains = _ordinary(whitelist)
    if not domains:
        return []
    return [{"type": "inline", "tag": LISTED, "rules": [{"domain_suffix": domains}]}]


def _bound_rules(whitelist: Whitelist) -> Iterator[dict[str, Any]]:
    """One rule for each scheme and port that entries are bound to."""
    bound: dict[tuple[str, int], list[str]] = {}
    for entry in entries_of(whitelist).domains:
        if entry.scheme:
            bound.setdefault((entry.scheme, entry.port), []).append(entry.domain)
    for (scheme, port), domains in bound.items():
        yield {
            "protocol": _PROTOCOL[scheme],
            "port": [port],
            "domain_suffix": domains,
            "outbound": LISTED,
        }


def _ordinary(whitelist: Whitelist) -> list[str]:
    # A suffix without a leading dot is the domain itself and what lies below it.
    return [entry.domain for entry in entries_of(whitelist).domains if not entry.scheme]
