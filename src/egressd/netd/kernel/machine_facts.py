"""The machine's interfaces, addresses and routes, and events about their changes.

Interfaces are joined with their addresses and routes by index: the kernel's messages may show a
name that an interface had before, as happens with pppd's.
"""

from __future__ import annotations

import errno
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Final

from egressd.model.facts import Facts, ForeignRule, Interface, Route, Route6
from egressd.model.names import is_interface_name
from egressd.netd.kernel import fib, uapi
from egressd.netd.kernel.event_watcher import EventWatcher
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkListener,
    NetlinkSocket,
    attribute,
    attributes,
    number,
    text,
    u32,
)

_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, mask of changes
_ADDRESS = struct.Struct("=BBBBi")  # ifaddrmsg: family, prefix length, flags, scope, index
_ROUTE = struct.Struct("=8BI")  # rtmsg: family, 2 lengths, tos, table, protocol, scope, type, flags
_NEXTHOP = struct.Struct("=HBBi")  # rtnexthop: length, flags, hops, index

_WITHOUT_FRAMES: Final = frozenset(
    {
        *(uapi.ARPHRD_TUNNEL, uapi.ARPHRD_TUNNEL6, uapi.ARPHRD_SIT, uapi.ARPHRD_IPGRE),
        *(uapi.ARPHRD_IP6GRE, uapi.ARPHRD_VOID, uapi.ARPHRD_NONE, uapi.ARPHRD_RAWIP),
        uapi.ARPHRD_PPP,
    }
)
"""The types of links without a header of their own."""

_TUN, _WIREGUARD = "tun", "wireguard"
_USERSPACE: Final = Path("/var/run/wireguard")
"""The directory in which userspace WireGuard programs (wireguard-go) keep a socket for each of
their tun interfaces."""

_GROUPS: Final = (
    uapi.RTNLGRP_LINK,
    uapi.RTNLGRP_IPV4_IFADDR,
    uapi.RTNLGRP_IPV4_ROUTE,
    uapi.RTNLGRP_IPV4_RULE,
    uapi.RTNLGRP_IPV6_IFADDR,
    uapi.RTNLGRP_IPV6_ROUTE,
    uapi.RTNLGRP_IPV6_RULE,
    uapi.RTNLGRP_IPV4_NETCONF,  # ``forwarding`` and ``rp_filter``, of one interface or of all
)


def read() -> Facts:
    """Read the present state, in about a millisecond. Raises OSError if the kernel refuses.

    Interfaces whose name egressd does not accept (`is_interface_name`: the kernel allows quotes,
    braces and ``*``) are left out.
    """
    with NetlinkSocket(uapi.NETLINK_ROUTE) as asked:
        links = asked.dump(
            uapi.RTM_GETLINK,
            _LINK.pack(0, 0, 0, 0, 0)
            + attribute(uapi.IFLA_EXT_MASK, u32(uapi.RTEXT_FILTER_SKIP_STATS)),
        )
        addresses, passive, peers = _addresses(asked)
        addresses6 = _addresses6(asked)
        found = (_interface(body, addresses, passive, peers, addresses6) for body in links)
        interfaces = [interface for interface in found if is_interface_name(interface.name)]
        names = {interface.index: interface.name for interface in interfaces}
        tunnels = [interface for interface in interfaces if interface.kind == _WIREGUARD]
        return Facts(
            interfaces={interface.name: interface for interface in interfaces},
            routes=tuple(_routes(asked, names)),
            policy_rules=tuple(_foreign_rules(asked)),
            uplinks=frozenset(i.name for i in tunnels if _is_uplink(asked, i)),
            routes6=tuple(_routes6(asked, names)),
        )


def device_towards(destination: IPv4Address, source: IPv4Address) -> int:
    """Return the index of the interface by which this machine's packets from `source` leave.

    Policy rules count, except rules for marks. Raises NetlinkError if there is no route.
    """
    request = _ROUTE.pack(AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
    request += attribute(uapi.RTA_DST, destination.packed)
    request += attribute(uapi.RTA_SRC, source.packed)
    with NetlinkSocket(uapi.NETLINK_ROUTE) as asked:
        (body,) = asked.request(uapi.RTM_GETROUTE, request)
    return number(attributes(body, _ROUTE.size)[uapi.RTA_OIF])


def _interface(
    body: bytes,
    addresses: dict[int, list[IPv4Interface]],
    passive: dict[int, list[IPv4Address]],
    peers: dict[int, list[IPv4Address]],
    addresses6: dict[int, list[IPv6Address]],
) -> Interface:
    _, link_type, index, flags, _ = _LINK.unpack_from(body)
    found = attributes(body, _LINK.size)
    kind = text(attributes(found.get(uapi.IFLA_LINKINFO, b"")).get(uapi.IFLA_INFO_KIND, b""))
    name = text(found[uapi.IFLA_IFNAME])
    if kind == _TUN and is_interface_name(name) and (_USERSPACE / f"{name}.sock").exists():
        kind = _WIREGUARD
    return Interface(
        name=name,
        index=index,
        kind=kind,
        is_up=flags & (uapi.IFF_UP | uapi.IFF_LOWER_UP) == uapi.IFF_UP | uapi.IFF_LOWER_UP,
        is_loopback=bool(flags & uapi.IFF_LOOPBACK),
        is_point_to_point=bool(flags & (uapi.IFF_POINTOPOINT | uapi.IFF_NOARP)),
        has_frames=link_type not in _WITHOUT_FRAMES,
        mtu=number(found[uapi.IFLA_MTU]),
        master=number(found.get(uapi.IFLA_MASTER)),
        parent=0 if uapi.IFLA_LINK_NETNSID in found else number(found.get(uapi.IFLA_LINK)),
        addresses=tuple(addresses[index]),
        passive=tuple(passive[index]),
        peers=tuple(peers[index]),
        addresses6=tuple(addresses6[index]),
    )


def _addresses(
    asked: NetlinkSocket,
) -> tuple[
    dict[int, list[IPv4Interface]], dict[int, list[IPv4Address]], dict[int, list[IPv4Address]]
]:
    """Return addresses, those that the kernel does not choose as a source, and the far ends of
    point-to-point addresses, by interface index. They are in the kernel's order.
    """
    addresses = defaultdict(list)
    passive = defaultdict(list)
    peers = defaultdict(list)
    for body in asked.dump(uapi.RTM_GETADDR, _ADDRESS.pack(AF_INET, 0, 0, 0, 0)):
        _, length, flags, scope, index = _ADDRESS.unpack_from(body)
        found = attributes(body, _ADDRESS.size)
        local = IPv4Address(found[uapi.IFA_LOCAL])
        far_end = IPv4Address(found.get(uapi.IFA_ADDRESS, found[uapi.IFA_LOCAL]))
        addresses[index].append(IPv4Interface((local, length)))
        if flags & uapi.IFA_F_SECONDARY or scope != uapi.RT_SCOPE_UNIVERSE:
            passive[index].append(local)
        if far_end != local:
            peers[index].append(far_end)
    return addresses, passive, peers


def _addresses6(asked: NetlinkSocket) -> dict[int, list[IPv6Address]]:
    """Return IPv6 addresses of global scope by interface index; none on a kernel without IPv6."""
    addresses = defaultdict(list)
    for body in fib.listed(asked, uapi.RTM_GETADDR, _ADDRESS.pack(AF_INET6, 0, 0, 0, 0)):
        _, _, _, scope, index = _ADDRESS.unpack_from(body)
        found = attributes(body, _ADDRESS.size)
        if scope == uapi.RT_SCOPE_UNIVERSE:
            addresses[index].append(
                IPv6Address(found.get(uapi.IFA_LOCAL) or found[uapi.IFA_ADDRESS])
            )
    return addresses


def _routes(asked: NetlinkSocket, names: dict[int, str]) -> Iterator[Route]:
    """Yield the main table's unicast routes; a route with several next hops yields one for each."""
    for length, found, hop, name in _main_table(asked, AF_INET, names):
        gateway = hop.get(uapi.RTA_GATEWAY)
        yield Route(
            destination=IPv4Network((found.get(uapi.RTA_DST, bytes(4)), length)),
            interface=name,
            gateway=None if gateway is None else IPv4Address(gateway),
            metric=number(found.get(uapi.RTA_PRIORITY)),
        )


def _routes6(asked: NetlinkSocket, names: dict[int, str]) -> Iterator[Route6]:
    """Yield the main table's IPv6 unicast routes, without the link-local ones."""
    for length, found, hop, name in _main_table(asked, AF_INET6, names):
        destination = IPv6Network((found.get(uapi.RTA_DST, bytes(16)), length))
        if destination.is_link_local:
            continue
        gateway = hop.get(uapi.RTA_GATEWAY)
        yield Route6(
            destination=destination,
            interface=name,
            gateway=None if gateway is None else IPv6Address(gateway),
            metric=number(found.get(uapi.RTA_PRIORITY)),
        )


def _main_table(
    asked: NetlinkSocket, family: int, names: dict[int, str]
) -> Iterator[tuple[int, dict[int, bytes], dict[int, bytes], str]]:
    """For each next hop yield the prefix length of its route's destination, the attributes of the
    route, its own attributes, and the name of its interface.
    """
    request = _ROUTE.pack(family, 0, 0, 0, uapi.RT_TABLE_MAIN, 0, 0, uapi.RTN_UNICAST, 0)
    try:
        bodies = fib.listed(asked, uapi.RTM_GETROUTE, request)
    except NetlinkError as error:
        if error.errno != errno.ENOENT:  # the table comes into being with its first route
            raise
        return
    for body in bodies:
        found = attributes(body, _ROUTE.size)
        for hop in _next_hops(found):
            name = names.get(number(hop.get(uapi.RTA_OIF)))
            if name is not None:
                yield body[1], found, hop, name


def _foreign_rules(asked: NetlinkSocket) -> Iterator[ForeignRule]:
    for family in fib.FAMILIES:
        bodies = fib.listed(asked, uapi.RTM_GETRULE, fib.rules_request(family))
        yield from filter(None, map(fib.decode_foreign_rule, bodies))


def _is_uplink(asked: NetlinkSocket, interface: Interface) -> bool:
    """Return whether any table has a default route by the interface, whole or as two halves."""
    request = _ROUTE.pack(AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)
    request += attribute(uapi.RTA_OIF, u32(interface.index))
    for body in asked.dump(uapi.RTM_GETROUTE, request):
        found = attributes(body, _ROUTE.size)
        if body[1] <= 1 and number(found.get(uapi.RTA_OIF)) == interface.index:
            return True
    return False


def _next_hops(found: dict[int, bytes]) -> Iterator[dict[int, bytes]]:
    """Yield the attributes of each next hop of a route."""
    hops = found.get(uapi.RTA_MULTIPATH)
    if hops is None:
        yield found
        return
    while len(hops) >= _NEXTHOP.size:
        length, _, _, index = _NEXTHOP.unpack_from(hops)
        hop = attributes(hops[:length], _NEXTHOP.size)
        yield {**hop, uapi.RTA_OIF: u32(index)}
        hops = hops[(length + 3) & ~3 :]


class FactsWatcher(EventWatcher):
    """Awaits ``on_change()`` soon after links, addresses, routes, rules, forwarding or the source
    check (``rp_filter``) changed.

    Our own changes count too, so a call that has nothing left to do must change nothing. Events
    that the kernel had to drop count as a change.
    """

    def __init__(self, on_change: Callable[[], Awaitable[None]]) -> None:
        self._on_change = on_change

    def _listen(self) -> NetlinkListener:
        return NetlinkListener(
            uapi.NETLINK_ROUTE, _GROUPS, lambda _messages, _lost: self._follower.notify()
        )

    async def _call(self) -> None:
        await self._on_change()
