"""Names that are resolved by a resolver on this machine or in a LAN (``[dns] local``).

Their questions never leave by a WAN, a line or a node: they bear a mark of their own, which is
routed to LANs, local networks and this machine, and nowhere else. Pure.
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
"""Servers of a list that are used: resolv.conf(5) has room for as many."""
PATIENCE_MS: Final = 3000
"""Milliseconds until the last of several servers is asked."""

_OCTET_BITS: Final = 8


def zone_of(name: str, zones: Iterable[LocalZone]) -> LocalZone | None:
    """Return the narrowest of the zones that a name belongs to, or None."""
    found = [zone for zone in zones if is_beneath(name, zone.domain)]
    return max(found, key=lambda zone: zone.domain.count("."), default=None)


def is_beneath(name: str, domain: str) -> bool:
    """True if a name is that domain, or beneath it."""
    return name == domain or name.endswith(f".{domain}")


def servers_of(zones: Iterable[LocalZone]) -> tuple[str, ...]:
    """Return the servers of all zones, each once."""
    return tuple(dict.fromkeys(s for zone in zones for s in zone.servers[:SERVERS_MAX]))


def with_reverse_zones(
    zones: tuple[LocalZone, ...], networks: Iterable[IPv4Network]
) -> tuple[LocalZone, ...]:
    """Return the zones, and the reverse zones of the addresses in these networks.

    A network's reverse zone has the servers of the first zone with a server in that network, else
    those of the first zone. A reverse zone that the configuration names, or that is beneath one,
    keeps the configured servers.
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
    """Yield the domains below ``in-addr.arpa`` that cover exactly the network's addresses (RFC
    1035, 3.5): at most 128, of whole octets.
    """
    octets = max(1, -(-network.prefixlen // _OCTET_BITS))
    for part in network.subnets(new_prefix=octets * _OCTET_BITS):
        labels = str(part.network_address).split(".")[:octets]
        yield ".".join((*reversed(labels), "in-addr", "arpa"))


@lru_cache(8)
def dns_servers(zones: tuple[LocalZone, ...]) -> tuple[dict[str, Any], ...]:
    """Return the ``dns.servers`` that `dns_rules` names."""
    return tuple(
        {"tag": _tag(server), "type": "udp", "server": server, "routing_mark": MARK_ASKED_LOCALLY}
        for server in servers_of(zones)
    )


@lru_cache(8)
def dns_rules(zones: tuple[LocalZone, ...]) -> tuple[dict[str, Any], ...]:
    """Return the ``dns.rules`` for local names, to be put before all others.

    A name that a local resolver does not know in its own zone, and asks for as a client, exists
    nowhere: the question must neither return to that resolver nor leave the network.
    """
    rules: list[dict[str, Any]] = []
    # The narrowest first: the first matching rule counts.
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
