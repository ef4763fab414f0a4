"""Converges routes and policy rules to the wanted ones without a gap in between.

Our routes and rules bear the protocol number `ROUTE_PROTOCOL`; nothing else is ever removed, except
by `withdraw_peers` and `withdraw_advertised`. Deleting and re-adding entries that stay would send
packets elsewhere meanwhile (measured: every second one). So correct entries are left alone, a route
that differs is replaced in place, missing entries are added, and only then unwanted entries are
removed.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Collection, Iterable, Iterator, Set
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from egressd.model.facts import Interface
from egressd.model.routing import PolicyRule, RouteEntry
from egressd.model.wording import Sentence, say
from egressd.netd.kernel import fib, uapi
from egressd.netd.kernel.netlink import (
    NetlinkError,
    NetlinkSocket,
)

_GONE: Final = (errno.ENOENT, errno.ESRCH)
_IS_OFF: Final = (*fib.NO_SUCH_FAMILY, errno.EACCES)
"""Errors for an IPv6 route; the last one is returned if ``disable_ipv6`` is set."""


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """The result of `sync` in ip-route(8)'s and ip-rule(8)'s notation; true if anything changed."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    problems: tuple[Sentence, ...]
    """Requests that the kernel refused, each a sentence with its reason. All the rest is done."""

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.removed)


def sync(routes: Iterable[RouteEntry], rules: Iterable[PolicyRule]) -> Synced:
    """Make our routes and rules exactly these. Repeat-safe: a second call changes nothing.

    Additions start with the default-deny entries: unreachable routes before those that lead
    somewhere, prohibiting rules before those that look up; removals go the other way. Rules that
    only get another priority are in force all the time. A route whose interface is missing is a
    problem; a rule's interface may be missing. IPv6 entries are skipped on a kernel without IPv6.
    Raises OSError if the kernel does not list its entries.
    """
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        synchronisation = _Synchronisation(kernel)
        synchronisation.run(list(routes), list(rules))
        return synchronisation.result()


def withdraw_peers(interfaces: Iterable[Interface]) -> None:
    """Remove the far ends of these interfaces from the main table, where the kernel puts them:
    hosts at such addresses are then reached as before. Repeat-safe. Raises OSError.
    """
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        for interface in interfaces:
            for peer in interface.peers:
                try:
                    kernel.request(uapi.RTM_DELROUTE, fib.encode_peer_route(peer, interface.index))
                except NetlinkError as error:
                    if error.errno not in (*_GONE, errno.ENODEV):
                        raise


def withdraw_advertised(names: Collection[str]) -> None:
    """Remove the routes of IPv6 routers behind these interfaces from the main table: routes that
    were accepted there before router advertisements were refused. Repeat-safe. Raises OSError.
    """
    unheard = {index for index, name in socket.if_nameindex() if name in names}
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        for body in fib.listed(kernel, uapi.RTM_GETROUTE, fib.advertised_routes_request()):
            if fib.device_of(body) in unheard:
                try:
                    kernel.request(uapi.RTM_DELROUTE, body)  # a listed route is a complete request
                except NetlinkError as error:
                    if error.errno not in _GONE:
                        raise


def _place(route: RouteEntry) -> tuple[int, IPv4Network | IPv6Network, int]:
    """Return the identity of a route in its table: a new route replaces an identical one."""
    return route.table, route.destination, route.metric


def _selectors(rule: PolicyRule) -> PolicyRule:
    """Return the rule without its priority: the part that stays the same when rules move."""
    return replace(rule, priority=0)


def _turn(rule: PolicyRule, moved: Set[PolicyRule]) -> int:
    """Return the place of a rule in the order of additions; removals go the other way.

    A prohibiting rule precedes rules that look up. When all rules move to other priorities it is
    added last and removed first: its old copy remains in force meanwhile, and the new one must not
    stand ahead of rules that are still to follow.
    """
    if rule.action != "prohibit":
        return 1
    return 2 if _selectors(rule) in moved else 0


class _Synchronisation:
    """One run of `sync`."""

    def __init__(self, kernel: NetlinkSocket) -> None:
        self._kernel = kernel
        self._indexes = {name: index for index, name in socket.if_nameindex()}
        self._added: list[str] = []
        self._replaced: list[str] = []
        self._removed: list[str] = []
        self._problems: list[Sentence] = []

    def result(self) -> Synced:
        return Synced(
            added=tuple(self._added),
            replaced=tuple(self._replaced),
            removed=tuple(self._removed),
            problems=tuple(self._problems),
        )

    def run(self, routes: list[RouteEntry], rules: list[PolicyRule]) -> None:
        present = (*self._present_routes(4), *self._present_routes(6))
        old_routes = {_place(route): route for route in present}
        old_rules = {*self._present_rules(4), *self._present_rules(6)}
        wanted_rules = set(rules)
        moved = {_selectors(rule) for rule in old_rules} & {_selectors(rule) for rule in rules}
        kept = {_place(route) for route in routes if self._has_device(route)}
        for route in sorted(routes, key=lambda r: r.kind != "unreachable"):
            self._put_route(route, old_routes.get(_place(route)))
        for rule in sorted(rules, key=lambda r: _turn(r, moved)):
            if rule not in old_rules:
                self._add_rule(rule)
        for rule in sorted(old_rules, key=lambda r: _turn(r, moved), reverse=True):
            if rule not in wanted_rules:
                self._remove(rule, uapi.RTM_DELRULE, fib.encode_rule(rule))
        for route in sorted(old_routes.values(), key=lambda r: r.kind == "unreachable"):
            if _place(route) not in kept:
                self._remove(route, uapi.RTM_DELROUTE, fib.encode_route(route, self._indexes))

    def _has_device(self, route: RouteEntry) -> bool:
        return not route.device or route.device in self._indexes

    def _present_routes(self, family: Literal[4, 6]) -> Iterator[RouteEntry]:
        names = {index: name for name, index in self._indexes.items()}
        for body in fib.listed(self._kernel, uapi.RTM_GETROUTE, fib.routes_request(family)):
            route = fib.decode_route(body, names)
            if route is not None and self._has_device(route):
                yield route

    def _present_rules(self, family: Literal[4, 6]) -> Iterator[PolicyRule]:
        for body in fib.listed(self._kernel, uapi.RTM_GETRULE, fib.rules_request(family)):
            rule = fib.decode_rule(body)
            if rule is not None:
                yield rule

    def _put_route(self, route: RouteEntry, old: RouteEntry | None) -> None:
        if route == old:
            return
        try:
            body = fib.encode_route(route, self._indexes)
            self._kernel.request(uapi.RTM_NEWROUTE, body, uapi.NLM_F_CREATE | uapi.NLM_F_REPLACE)
        except KeyError:
            reason = say("no-such-interface")
            self._problems.append(say("route-not-added", route=str(route), reason=reason))
        except NetlinkError as error:
            if route.destination.version == 6 and error.errno in _IS_OFF:
                return
            self._problems.append(
                say("route-not-added", route=str(route), reason=error.strerror or str(error))
            )
        else:
            (self._added if old is None else self._replaced).append(str(route))

    def _add_rule(self, rule: PolicyRule) -> None:
        try:
            self._kernel.request(
                uapi.RTM_NEWRULE, fib.encode_rule(rule), uapi.NLM_F_CREATE | uapi.NLM_F_EXCL
            )
        except NetlinkError as error:
            if error.errno == errno.EEXIST:
                return  # another program's rule is identical
            if rule.family == 6 and error.errno in fib.NO_SUCH_FAMILY:
                return
            self._problems.append(
                say("rule-not-added", rule=str(rule), reason=error.strerror or str(error))
            )
        else:
            self._added.append(f"rule {rule}")

    def _remove(self, entry: RouteEntry | PolicyRule, kind: int, body: bytes) -> None:
        what = f"rule {entry}" if isinstance(entry, PolicyRule) else str(entry)
        try:
            self._kernel.request(kind, body)
        except NetlinkError as error:
            if error.errno not in _GONE:
                self._problems.append(
                    say("route-not-removed", what=what, reason=error.strerror or str(error))
                )
        else:
            self._removed.append(what)
