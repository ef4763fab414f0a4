"""Encoding and decoding of routes and policy rules as rtnetlink messages.

The formats are those of linux/rtnetlink.h and linux/fib_rules.h. Encoded routes and rules bear
`ROUTE_PROTOCOL`; decoding recognises only these.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from socket import AF_INET, AF_INET6
from typing import Final, Literal

from egressd.model.facts import ForeignRule
from egressd.model.routing import PolicyRule, RouteEntry
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkSocket,
    attributes,
    encode,
    number,
    text,
    u32,
)
from egressd.planner.registry import ROUTE_PROTOCOL, TABLE_MAIN

NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 24, 25, 26
NEW_RULE, DELETE_RULE, GET_RULE = 32, 33, 34

_ROUTE = struct.Struct("=8BI")
"""rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags."""
_DESTINATION, _DEVICE, _GATEWAY, _METRIC, _TABLE = 1, 4, 5, 6, 15
_KIND_NAMES: Final[dict[int, Literal["unicast", "local", "unreachable"]]] = {
    1: "unicast",
    2: "local",
    7: "unreachable",
}
_KINDS: Final = {name: kind for kind, name in _KIND_NAMES.items()}
_ON_LINK: Final = 4
"""RTNH_F_ONLINK: the gateway of a WAN whose address is a single one (/32) is in no network."""
_MADE_BY_KERNEL: Final = 2
"""RTPROT_KERNEL."""
_ADVERTISED: Final = 9
"""RTPROT_RA: routes from the kernel's own router discovery, and from systemd-networkd's."""
_SCOPE_GLOBAL, _SCOPE_LINK, _SCOPE_HOST = 0, 253, 254

_RULE = struct.Struct("=8BI")
"""fib_rule_hdr: family, lengths of destination and source, tos, table, 2 spare, action, flags."""
_SOURCE, _IIF, _PRIORITY, _MARK, _RULE_TABLE, _MASK, _UIDS, _PROTOCOL = 2, 3, 6, 10, 15, 16, 20, 21
_L3MDEV: Final = 19
_TABLE_LOCAL: Final = 255
"""RT_TABLE_LOCAL."""
_UID_RANGE = struct.Struct("=II")
_ACTION_NAMES: Final[dict[int, Literal["lookup", "prohibit"]]] = {1: "lookup", 8: "prohibit"}
_ACTIONS: Final = {name: action for action, name in _ACTION_NAMES.items()}
FAMILIES: Final[tuple[Literal[4, 6], ...]] = (4, 6)
_FAMILIES: Final = {4: AF_INET, 6: AF_INET6}
NO_SUCH_FAMILY: Final = (errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
"""The errors of a kernel without IPv6."""


def listed(kernel: NetlinkSocket, kind: int, request: bytes) -> list[bytes]:
    """Return everything that the kernel has of a kind; nothing if it lacks the family. Raises
    OSError.
    """
    try:
        return list(kernel.dump(kind, request))
    except NetlinkError as error:
        if error.errno not in NO_SUCH_FAMILY:
            raise
        return []


def encode_route(route: RouteEntry, indexes: Mapping[str, int]) -> bytes:
    """Return the body of a request about `route`; `indexes` maps interface names.

    Raises KeyError if its device is not among them.
    """
    values: list[tuple[int, bytes]] = [(_TABLE, u32(route.table))]
    if route.destination.prefixlen:
        values.append((_DESTINATION, route.destination.network_address.packed))
    if route.device:
        values.append((_DEVICE, u32(indexes[route.device])))
    if route.gateway is not None:
        values.append((_GATEWAY, route.gateway.packed))
    if route.metric:
        values.append((_METRIC, u32(route.metric)))
    return _ROUTE.pack(
        _FAMILIES[4 if route.destination.version == 4 else 6],
        route.destination.prefixlen,
        0,
        0,
        _short_table(route.table),
        ROUTE_PROTOCOL,
        _scope(route),
        _KINDS[route.kind],
        _ON_LINK if isinstance(route.gateway, IPv4Address) else 0,
    ) + encode(values)


def encode_peer_route(peer: IPv4Address, index: int) -> bytes:
    """Return the body of a request about the main table's route that the kernel makes by itself
    when an interface gets an address with that far end.
    """
    return _ROUTE.pack(
        AF_INET, 32, 0, 0, TABLE_MAIN, _MADE_BY_KERNEL, _SCOPE_LINK, _KINDS["unicast"], 0
    ) + encode([(_DESTINATION, peer.packed), (_DEVICE, u32(index))])


def advertised_routes_request() -> bytes:
    """Return the body of a request for the main table's routes advertised by an IPv6 router."""
    return _ROUTE.pack(AF_INET6, 0, 0, 0, TABLE_MAIN, _ADVERTISED, 0, _KINDS["unicast"], 0)


def device_of(body: bytes) -> int:
    """Return the index of the interface of a route as listed by the kernel."""
    return number(attributes(body, _ROUTE.size).get(_DEVICE))


def decode_route(body: bytes, names: Mapping[int, str]) -> RouteEntry | None:
    """Return the route in a message of the kernel's list, or None if it cannot be ours."""
    family, length, _, _, table, protocol, _, kind, _ = _ROUTE.unpack_from(body)
    if protocol != ROUTE_PROTOCOL or kind not in _KIND_NAMES:
        return None
    found = attributes(body, _ROUTE.size)
    gateway = found.get(_GATEWAY)
    destination = (
        IPv6Network((found.get(_DESTINATION, bytes(16)), length))
        if family == AF_INET6
        else IPv4Network((found.get(_DESTINATION, bytes(4)), length))
    )
    # The kernel lists IPv6 unreachable routes with the loopback as their interface.
    is_nowhere = family == AF_INET6 and kind == _KINDS["unreachable"]
    device = "" if is_nowhere else names.get(number(found.get(_DEVICE)), "")
    return RouteEntry(
        table=number(found[_TABLE]) if _TABLE in found else table,
        destination=destination,
        kind=_KIND_NAMES[kind],
        device=device,
        gateway=None if gateway is None else ip_address(gateway),
        metric=number(found.get(_METRIC)),
    )


def routes_request(family: Literal[4, 6]) -> bytes:
    """Return the body of a request for all our routes of a family."""
    return _ROUTE.pack(_FAMILIES[family], 0, 0, 0, 0, ROUTE_PROTOCOL, 0, 0, 0)


def encode_rule(rule: PolicyRule) -> bytes:
    """Return the body of a request about `rule`."""
    values: list[tuple[int, bytes]] = [
        (_PRIORITY, u32(rule.priority)),
        (_PROTOCOL, bytes([ROUTE_PROTOCOL])),
    ]
    if rule.action == "lookup":
        values.append((_RULE_TABLE, u32(rule.table)))
    if rule.mask:
        values += [(_MARK, u32(rule.mark)), (_MASK, u32(rule.mask))]
    if rule.iif:
        values.append((_IIF, rule.iif.encode() + b"\0"))
    if rule.uids is not None:
        values.append((_UIDS, _UID_RANGE.pack(*rule.uids)))
    if rule.source is not None:
        values.append((_SOURCE, rule.source.packed))
    return _RULE.pack(
        _FAMILIES[rule.family],
        0,
        0 if rule.source is None else rule.source.max_prefixlen,
        0,
        _short_table(rule.table),
        0,
        0,
        _ACTIONS[rule.action],
        0,
    ) + encode(values)


def decode_rule(body: bytes) -> PolicyRule | None:
    """Return the policy rule in a message of the kernel's list, or None if it cannot be ours."""
    family, _, _, _, _, _, _, action, _ = _RULE.unpack_from(body)
    found = attributes(body, _RULE.size)
    if found.get(_PROTOCOL) != bytes([ROUTE_PROTOCOL]) or action not in _ACTION_NAMES:
        return None
    source = found.get(_SOURCE)
    uids = found.get(_UIDS)
    return PolicyRule(
        family=6 if family == AF_INET6 else 4,
        priority=number(found.get(_PRIORITY)),
        action=_ACTION_NAMES[action],
        table=number(found.get(_RULE_TABLE)),
        mark=number(found.get(_MARK)),
        mask=number(found.get(_MASK)),
        iif=text(found.get(_IIF, b"")),
        uids=None if uids is None else _UID_RANGE.unpack(uids),
        source=None if source is None else ip_address(source),
    )


def decode_foreign_rule(body: bytes) -> ForeignRule | None:
    """Return a policy rule that another program made; None for our own and the kernel's."""
    family, _, _, _, _, _, _, _, _ = _RULE.unpack_from(body)
    found = attributes(body, _RULE.size)
    priority = number(found.get(_PRIORITY))
    is_first = priority == 0 and number(found.get(_RULE_TABLE)) == _TABLE_LOCAL
    if is_first or number(found.get(_PROTOCOL)) in (ROUTE_PROTOCOL, _MADE_BY_KERNEL):
        return None
    return ForeignRule(
        family=6 if family == AF_INET6 else 4,
        priority=priority,
        iif=text(found.get(_IIF, b"")),
        is_vrf=bool(number(found.get(_L3MDEV))),
    )


def rules_request(family: Literal[4, 6]) -> bytes:
    """Return the body of a request for all policy rules of a family."""
    return _RULE.pack(_FAMILIES[family], 0, 0, 0, 0, 0, 0, 0, 0)


def _scope(route: RouteEntry) -> int:
    """Return the route's scope, by the defaults of ip-route(8)."""
    if route.kind == "local":
        return _SCOPE_HOST
    if route.kind == "unicast" and route.gateway is None and route.destination.version == 4:
        return _SCOPE_LINK
    return _SCOPE_GLOBAL


def _short_table(table: int) -> int:
    """Return the header's byte for the table; larger numbers are in the attribute only."""
    return table if table < 256 else 0
