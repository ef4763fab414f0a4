"""The device's DNS servers, from the configuration, or else from resolv.conf(5)."""

from __future__ import annotations

from ipaddress import IPv4Address, collapse_addresses
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.app import network
from egressd.app.config import Dns
from egressd.model.device import InterfaceRoles, LocalZone, Resolvers
from egressd.planner import local_names
from egressd.planner.resolvers import is_inner
from egressd.planner.topology import discover

log = structlog.get_logger()

_RESOLV_CONF: Final = Path("/etc/resolv.conf")
_FOUND: Final = InterfaceRoles()
"""Roles if the configuration names no interface."""


class DeviceResolvers:
    """The resolvers by role. They follow resolv.conf(5) with a delay: an engine instance that is to
    ask another server is started anew, and its clients' connections end.
    """

    def __init__(self, dns: Dns, file: Path = _RESOLV_CONF, roles: InterfaceRoles = _FOUND) -> None:
        self._named = bool(dns.device)
        self._file = file
        self._roles = roles
        self._zones = tuple(
            LocalZone(domain=domain, servers=tuple(map(str, servers)))
            for domain, servers in dns.local.items()
        )
        domestic = tuple(map(str, dns.domestic))
        base = Resolvers(
            device=tuple(map(str, dns.device)) or domestic,
            domestic=domestic,
            outbound=tuple(map(str, dns.outbound)),
            home=tuple(map(str, dns.home)),
            local=self._zones,
        )
        self.current = self._seen = self._look(base)

    def refresh(self) -> bool:
        """Look again. True if `current` has changed.

        It changes when two looks in a row have shown the same. The server in use stays in use while
        it is listed, and the known interface of a server is kept until another one is seen: a link
        that is down for a while is no reason for a change. Neither is an empty list.
        """
        before, self._seen = self._seen, self._look(self.current)
        if self._seen != before or self._seen == self.current:
            return False
        log.info("device DNS servers changed", servers=self._seen.device)
        self.current = self._seen
        return True

    def _look(self, known: Resolvers) -> Resolvers:
        """Return `known`, updated from the present resolv.conf, addresses and routes."""
        return self._with_lans(known if self._named else self._with_listed(known))

    def _with_lans(self, known: Resolvers) -> Resolvers:
        """Add the servers that are in a LAN or on this machine, and the LANs' reverse zones. A
        server that was in a LAN before still counts: a LAN that is down for a while is no reason
        for a change.
        """
        try:
            topology = discover(network.facts(), self._roles)
        except OSError as error:
            log.warning("cannot determine which DNS servers are in a LAN", error=str(error))
            return known
        servers = (*known.device, *known.domestic, *local_names.servers_of(self._zones))
        inner = {*known.inner, *(server for server in servers if is_inner(server, topology))}
        networks = collapse_addresses(found for _, found in topology.lan_networks)
        zones = {zone.domain: zone for zone in known.local}
        for zone in local_names.with_reverse_zones(self._zones, networks):
            zones.setdefault(zone.domain, zone)
        return msgspec.structs.replace(
            known, inner=tuple(sorted(inner)), local=tuple(zones.values())
        )

    def _with_listed(self, known: Resolvers) -> Resolvers:
        try:
            listed = _listed(self._file)
            interfaces = dict(known.near) | {
                str(server): interface
                for server in listed
                if (interface := network.interface_to(server))
            }
        except OSError as error:
            log.warning("cannot determine the device's DNS servers", error=str(error))
            return known
        if not listed:
            return known
        servers = sorted(map(str, listed), key=lambda server: server != known.device[0])
        near = tuple((server, interfaces[server]) for server in servers if server in interfaces)
        return msgspec.structs.replace(known, device=tuple(servers), near=near)


def _listed(file: Path) -> list[IPv4Address]:
    """Return the IPv4 name servers of resolv.conf(5) that are not on this machine. Raises OSError.

    A server on this machine, such as dnsmasq, is for the machine itself: clients' questions leave
    the device.
    """
    if not file.exists():
        return []
    own = network.own_addresses()
    result = []
    for words in map(str.split, file.read_text("utf-8", "replace").splitlines()):
        if words[:1] != ["nameserver"] or not words[1:]:
            continue
        try:
            address = IPv4Address(words[1])
        except ValueError:
            continue
        if not (address.is_loopback or address.is_unspecified or address in own):
            result.append(address)
    return result
