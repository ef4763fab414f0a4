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
from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkSocket,
    attributes,
    encode,
    number,
    text,
    u32,
)
from egressd.planner.registry import ROUTE_PROTOCOL

_ROUTE = struct.Struct("=8BI")
"""rtmsg: family, lengths of destination and source, tos, table, protocol, scope, type, flags."""
_KIND_NAMES: Final[dict[int, Literal["unicast", "local", "unreachable"]]] = {
    uapi.RTN_UNICAST: "unicast",
    uapi.RTN_LOCAL: "local",
    uapi.RTN_UNREACHABLE: "unreachable",
}
_KINDS: Final = {name: kind for kind, name in _KIND_NAMES.items()}

_RULE = struct.Struct("=8BI")
"""fib_rule_hdr: family, lengths of destination and source, tos, table, 2 spare, action, flags."""
_UID_RANGE = struct.Struct("=II")
_ACTION_NAMES: Final[dict[int, Literal["lookup", "prohibit"]]] = {
    uapi.FR_ACT_TO_TBL: "lookup",
    uapi.FR_ACT_PROHIBIT: "prohibit",
}
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
    values: list[tuple[int, bytes]] = [(uapi.RTA_TABLE, u32(route.table))]
    if route.destination.prefixlen:
        values.append((uapi.RTA_DST, route.destination.network_address.packed))
    if route.device:
        values.append((uapi.RTA_OIF, u32(indexes[route.device])))
    if route.gateway is not None:
        values.append((uapi.RTA_GATEWAY, route.gateway.packed))
    if route.metric:
        values.append((uapi.RTA_PRIORITY, u32(route.metric)))
    return _ROUTE.pack(
        _FAMILIES[4 if route.destination.version == 4 else 6],
        route.destination.prefixlen,
        0,
        0,
        _short_table(route.table),
        ROUTE_PROTOCOL,
        _scope(route),
        _KINDS[route.kind],
        # The gateway of a WAN whose address is a single one (/32) is in no network.
        uapi.RTNH_F_ONLINK if isinstance(route.gateway, IPv4Address) else 0,
    ) + encode(values)


def encode_peer_route(peer: IPv4Address, index: int) -> bytes:
    """Return the body of a request about the main table's route that the kernel makes by itself
    when an interface gets an address with that far end.
    """
    table, kind = uapi.RT_TABLE_MAIN, uapi.RTN_UNICAST
    header = _ROUTE.pack(AF_INET, 32, 0, 0, table, uapi.RTPROT_KERNEL, uapi.RT_SCOPE_LINK, kind, 0)
    return header + encode([(uapi.RTA_DST, peer.packed), (uapi.RTA_OIF, u32(index))])


def advertised_routes_request() -> bytes:
    """Return the body of a request for the main table's routes advertised by an IPv6 router.

    The kernel's own router discovery gives them the protocol RTPROT_RA, and systemd-networkd's too.
    """
    table, kind = uapi.RT_TABLE_MAIN, uapi.RTN_UNICAST
    return _ROUTE.pack(AF_INET6, 0, 0, 0, table, uapi.RTPROT_RA, 0, kind, 0)


def device_of(body: bytes) -> int:
    """Return the index of the interface of a route as listed by the kernel."""
    return number(attributes(body, _ROUTE.size).get(uapi.RTA_OIF))


def decode_route(body: bytes, names: Mapping[int, str]) -> RouteEntry | None:
    """Return the route in a message of the kernel's list, or None if it cannot be ours."""
    family, length, _, _, table, protocol, _, kind, _ = _ROUTE.unpack_from(body)
    if protocol != ROUTE_PROTOCOL or kind not in _KIND_NAMES:
        return None
    found = attributes(body, _ROUTE.size)
    gateway = found.get(uapi.RTA_GATEWAY)
    destination = (
        IPv6Network((found.get(uapi.RTA_DST, bytes(16)), length))
        if family == AF_INET6
        else IPv4Network((found.get(uapi.RTA_DST, bytes(4)), length))
    )
    # The kernel lists IPv6 unreachable routes with the loopback as their interface.
    is_nowhere = family == AF_INET6 and kind == uapi.RTN_UNREACHABLE
    device = "" if is_nowhere else names.get(number(found.get(uapi.RTA_OIF)), "")
    return RouteEntry(
        table=number(found[uapi.RTA_TABLE]) if uapi.RTA_TABLE in found else table,
        destination=destination,
        kind=_KIND_NAMES[kind],
        device=device,
        gateway=None if gateway is None else ip_address(gateway),
        metric=number(found.get(uapi.RTA_PRIORITY)),
    )


def routes_request(family: Literal[4, 6]) -> bytes:
    """Return the body of a request for all our routes of a family."""
    return _ROUTE.pack(_FAMILIES[family], 0, 0, 0, 0, ROUTE_PROTOCOL, 0, 0, 0)


def encode_rule(rule: PolicyRule) -> bytes:
    """Return the body of a request about `rule`."""
    values: list[tuple[int, bytes]] = [
        (uapi.FRA_PRIORITY, u32(rule.priority)),
        (uapi.FRA_PROTOCOL, bytes([ROUTE_PROTOCOL])),
    ]
    if rule.action == "lookup":
        values.append((uapi.FRA_TABLE, u32(rule.table)))
    if rule.mask:
        values += [(uapi.FRA_FWMARK, u32(rule.mark)), (uapi.FRA_FWMASK, u32(rule.mask))]
    if rule.iif:
        values.append((uapi.FRA_IIFNAME, rule.iif.encode() + b"\0"))
    if rule.uids is not None:
        values.append((uapi.FRA_UID_RANGE, _UID_RANGE.pack(*rule.uids)))
    if rule.source is not None:
        values.append((uapi.FRA_SRC, rule.source.packed))
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
    if found.get(uapi.FRA_PROTOCOL) != bytes([ROUTE_PROTOCOL]) or action not in _ACTION_NAMES:
        return None
    source = found.get(uapi.FRA_SRC)
    uids = found.get(uapi.FRA_UID_RANGE)
    return PolicyRule(
        family=6 if family == AF_INET6 else 4,
        priority=number(found.get(uapi.FRA_PRIORITY)),
        action=_ACTION_NAMES[action],
        table=number(found.get(uapi.FRA_TABLE)),
        mark=number(found.get(uapi.FRA_FWMARK)),
        mask=number(found.get(uapi.FRA_FWMASK)),
        iif=text(found.get(uapi.FRA_IIFNAME, b"")),
        uids=None if uids is None else _UID_RANGE.unpack(uids),
        source=None if source is None else ip_address(source),
    )


def decode_foreign_rule(body: bytes) -> ForeignRule | None:
    """Return a policy rule that another program made; None for our own and the kernel's."""
    family, _, _, _, _, _, _, _, _ = _RULE.unpack_from(body)
    found = attributes(body, _RULE.size)
    priority = number(found.get(uapi.FRA_PRIORITY))
    is_first = priority == 0 and number(found.get(uapi.FRA_TABLE)) == uapi.RT_TABLE_LOCAL
    if is_first or number(found.get(uapi.FRA_PROTOCOL)) in (ROUTE_PROTOCOL, uapi.RTPROT_KERNEL):
        return None
    return ForeignRule(
        family=6 if family == AF_INET6 else 4,
        priority=priority,
        iif=text(found.get(uapi.FRA_IIFNAME, b"")),
        is_vrf=bool(number(found.get(uapi.FRA_L3MDEV))),
    )


def rules_request(family: Literal[4, 6]) -> bytes:
    """Return the body of a request for all policy rules of a family."""
    return _RULE.pack(_FAMILIES[family], 0, 0, 0, 0, 0, 0, 0, 0)


def _scope(route: RouteEntry) -> int:
    """Return the route's scope, by the defaults of ip-route(8)."""
    if route.kind == "local":
        return uapi.RT_SCOPE_HOST
    if route.kind == "unicast" and route.gateway is None and route.destination.version == 4:
        return uapi.RT_SCOPE_LINK
    return uapi.RT_SCOPE_UNIVERSE


def _short_table(table: int) -> int:
    """Return the header's byte for the table; larger numbers are in the attribute only."""
    return table if table < 256 else 0
