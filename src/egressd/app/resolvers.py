"""The device's DNS servers: those that the configuration names, or else resolv.conf(5)."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.app import network
from egressd.app.config import Dns
from egressd.model.device import Resolvers

log = structlog.get_logger()

_RESOLV_CONF: Final = Path("/etc/resolv.conf")


class DeviceResolvers:
    """The resolvers by role. What resolv.conf(5) says is followed, without haste: engine instances
    that ask another server begin anew, and their clients' connections end.
    """

    def __init__(self, dns: Dns, file: Path = _RESOLV_CONF) -> None:
        self._named = bool(dns.device)
        self._file = file
        domestic = tuple(map(str, dns.domestic))
        base = Resolvers(
            device=tuple(map(str, dns.device)) or domestic,
            domestic=domestic,
            outbound=tuple(map(str, dns.outbound)),
            home=tuple(map(str, dns.home)),
        )
        self.current = self._seen = self._look(base)

    def look(self) -> bool:
        """Look again: whether `current` is another now.

        It changes when two looks in a row have shown the same. The server in use stays in use while
        it is listed, and what is known of ways to servers is known until another way is seen: a
        link that is down for a while is no reason to change anything. Nor is an empty list.
        """
        before, self._seen = self._seen, self._look(self.current)
        if self._seen != before or self._seen == self.current:
            return False
        log.info("the device's resolvers are others now", servers=self._seen.device)
        self.current = self._seen
        return True

    def _look(self, known: Resolvers) -> Resolvers:
        """What `known` becomes by what resolv.conf and the routes say now."""
        if self._named:
            return known
        try:
            listed = _listed(self._file)
            ways = dict(known.near) | {
                str(server): way for server in listed if (way := network.way_to(server))
            }
        except OSError as error:
            log.warning("cannot tell the device's resolvers", error=str(error))
            return known
        if not listed:
            return known
        servers = sorted(map(str, listed), key=lambda server: server != known.device[0])
        near = tuple((server, ways[server]) for server in servers if server in ways)
        return msgspec.structs.replace(known, device=tuple(servers), near=near)


def _listed(file: Path) -> list[IPv4Address]:
    """IPv4 name servers of resolv.conf(5) that are not on this machine. Raises OSError.

    A server here (dnsmasq, say) is for the machine itself: what clients ask goes out.
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
