"""Names that are asked at a resolver of this machine's or of a LAN (``[dns] local``).

They never leave by a WAN, a line or a node: their questions bear a mark of their own, which has a
way to LANs, local networks and this machine, and nowhere else. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network
from itertools import groupby
from typing import Any, Final

from egressd.model.device import LocalZone
from egressd.planner.registry import MARK_ASKED_LOCALLY

SERVERS_MAX: Final = 3
"""As many of a list count as resolv.conf(5) has room for."""
PATIENCE_MS: Final = 3000
"""Milliseconds until the last of several is asked."""

_OCTET: Final = 8


def zone_of(name: str, zones: Iterable[LocalZone]) -> LocalZone | None:
    """The narrowest of the zones that a name belongs to."""
    found = [zone for zone in zones if is_beneath(name, zone.domain)]
    return max(found, key=lambda zone: zone.domain.count("."), default=None)


def is_beneath(name: str, domain: str) -> bool:
    """Whether a name is that domain's own, or beneath it."""
    return name == domain or name.endswith(f".{domain}")


def servers_of(zones: Iterable[LocalZone]) -> tuple[str, ...]:
    """All that are asked, each once."""
    return tuple(dict.fromkeys(s for zone in zones for s in zone.servers[:SERVERS_MAX]))


def with_reverse_zones(
    zones: tuple[LocalZone, ...], networks: Iterable[IPv4Network]
) -> tuple[LocalZone, ...]:
    """The zones, and those of the addresses in these networks.

    A network's is asked where the first zone is that has a server in it, else where the first one
    is; one that the configuration names itself, or is beneath one, is asked there.
    """
    if not zones:
        return ()
    found: dict[str, LocalZone] = {}
    for network in networks:
        servers = next((z.servers for z in zones if _has_one_in(z, network)), zones[0].servers)
        for domain in reverse_domains(network):
            if zone_of(domain, zones) is None:
                found.setdefault(domain, LocalZone(domain=domain, servers=servers))
    return (*zones, *found.values())


def reverse_domains(network: IPv4Network) -> Iterator[str]:
    """The domains below ``in-addr.arpa`` that are the network's addresses and no others (RFC 1035,
    3.5): at most 128, of whole octets.
    """
    octets = max(1, -(-network.prefixlen // _OCTET))
    for part in network.subnets(new_prefix=octets * _OCTET):
        labels = str(part.network_address).split(".")[:octets]
        yield ".".join((*reversed(labels), "in-addr", "arpa"))


@lru_cache(8)
def dns_servers(zones: tuple[LocalZone, ...]) -> tuple[dict[str, Any], ...]:
    """The ``dns.servers`` that `dns_rules` name."""
    return tuple(
        {"tag": _tag(server), "type": "udp", "server": server, "routing_mark": MARK_ASKED_LOCALLY}
        for server in servers_of(zones)
    )


@lru_cache(8)
def dns_rules(zones: tuple[LocalZone, ...]) -> tuple[dict[str, Any], ...]:
    """The ``dns.rules`` that have local names asked there, to be put before all others.

    What a local resolver does not know of its own zone, and asks as a client, nobody knows: it is
    not to come back to it, nor to get outside.
    """
    rules: list[dict[str, Any]] = []
    # The narrowest first: the first rule that fits counts.
    ordered = sorted(zones, key=lambda zone: (-zone.domain.count("."), zone.servers))
    for servers, alike in groupby(ordered, key=lambda zone: zone.servers[:SERVERS_MAX]):
        names = {"domain_suffix": [zone.domain for zone in alike]}
        own = {**names, "source_ip_cidr": list(servers)}
        rules.append({**own, "action": "predefined", "rcode": "NXDOMAIN"})
        *first, last = map(_tag, servers)
        for tag in first:
            patience = f"{PATIENCE_MS // len(servers)}ms"
            rules.append({**names, "action": "evaluate", "server": tag, "timeout": patience})
            rules += (
                {**names, "match_response": True, "response_rcode": code, "action": "respond"}
                for code in ("NOERROR", "NXDOMAIN")
            )
        rules.append({**names, "action": "route", "server": last})
    return tuple(rules)


def _has_one_in(zone: LocalZone, network: IPv4Network) -> bool:
    return any(IPv4Address(server) in network for server in zone.servers)


def _tag(server: str) -> str:
    return f"local:{server}"
