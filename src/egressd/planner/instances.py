"""Nodes, proxy services and the whitelist as engine instances: the work of each, as data.

Each distinct input is built once and cached, so that equal instances are mostly one object, and
comparing them costs nothing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from egressd.model.device import LocalZone, Resolvers
from egressd.model.instances import (
    Dialer,
    GroupPolicy,
    Hop,
    Listed,
    NodePath,
    ProxyListener,
)
from egressd.model.nouns import Node, ProxyService
from egressd.planner.nodes import DialPath, outbound_of, settings_of
from egressd.planner.resolvers import RESOLVERS_MAX
from egressd.planner.service_ports import reason_reserved

_REMEMBERED: Final = 16_384  # results kept, those used last: of a list's nodes before and after
_DECODER: Final = msgspec.msgpack.Decoder(ProxyListener)


@lru_cache(_REMEMBERED)
def dialer(
    paths: tuple[DialPath, ...],
    resolvers: Resolvers,
    *,
    policy: GroupPolicy | None = None,
    listed: Listed | None = None,
    zones: tuple[LocalZone, ...] = (),
) -> Dialer:
    """Return the work of an instance that serves LAN clients through TPROXY.

    Several paths need a `policy`; one takes none. Clients with a rule have the local `zones`.
    """
    asked, is_asked_directly = clients_resolvers(paths[0].hops[0], resolvers)
    return Dialer(
        paths=tuple(node_path(path, resolvers) for path in paths),
        resolvers=asked,
        is_asked_directly=is_asked_directly,
        policy=policy,
        listed=listed,
        zones=zones,
    )


@lru_cache(_REMEMBERED)
def node_path(path: DialPath, resolvers: Resolvers) -> NodePath:
    """Return the hops of a path, and the resolver for the names of their servers."""
    return NodePath(
        hops=tuple(Hop(node=hop.id, outbound=outbound_of(hop)) for hop in path.hops),
        mark=path.mark,
        resolver=resolvers.reached_by(path.interface),
    )


@lru_cache(_REMEMBERED)
def proxy_listener(
    service: ProxyService, mark: int, resolver: str, dns_mark: int
) -> ProxyListener | None:
    """Return a local proxy service with the egress of `mark`.

    None for a service that netd would refuse together with the whole plan. New services were
    checked; one from an earlier egressd or from a backup may not have the form required now.
    """
    if reason_reserved(service.port):
        return None
    made = ProxyListener(
        mark=mark,
        resolver=resolver,
        dns_mark=dns_mark,
        port=service.port,
        username=service.username,
        password=service.password,
    )
    try:
        return _DECODER.decode(msgspec.msgpack.encode(made))
    except msgspec.ValidationError:
        return None


def clients_resolvers(node: Node, resolvers: Resolvers) -> tuple[tuple[str, ...], bool]:
    """Return the resolvers for the node's clients, each asked if those before it do not answer, and
    whether they are asked directly, not through the node.
    """
    settings = settings_of(node)
    servers = {
        "domestic": resolvers.domestic,
        "return": resolvers.home,
        "custom": settings.dns_servers,
    }.get(settings.dns_profile, resolvers.outbound)
    return servers[:RESOLVERS_MAX], settings.dns_profile == "domestic"
