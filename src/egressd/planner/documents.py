"""sing-box documents: what one engine instance is told to do.

A document is built from a node (or a group's nodes) and the relays it dials through. Each
distinct input is built once and remembered, since a document only depends on its arguments.

The rules of every document: what no rule takes goes to the node and nowhere else
(``route.final``); every socket towards the outside bears a mark, so that it leaves by the
egress meant for it (an unmarked one meets the routing floor); clients' DNS is answered in
the instance by a resolver asked through the node.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from egressd.model.device import LocalZone, Resolvers
from egressd.model.nouns import Node, ProxyService, Settings, Whitelist
from egressd.planner import local_names, naming
from egressd.planner.listing import LISTED, listing_of
from egressd.planner.nodes import (
    DialPath,
    asks_by_udp,
    carries_short_datagrams,
    carries_udp,
    outbound_of,
    settings_of,
)
from egressd.planner.outbounds.tls import ech_name
from egressd.planner.registry import MARK_DIRECT, MARK_LISTED, MARK_REJECT, RESOLVER_IN_USE
from egressd.planner.resolvers import RESOLVERS_MAX

FINAL: Final = "target"
"""Tag of the outbound that a document sends traffic to."""

_SELF: Final = "127.0.0.1"
_LOOPBACK: Final = "127.0.0.0/8"
_LOG: Final = {"level": "error", "timestamp": False}

_SILENCE: Final = "5m"
"""How long a session of datagrams outlasts silence (RFC 4787, REQ-5). By itself the engine is done
with STUN and NTP after 10 s and with QUIC after 30 s, at which calls lose their peer."""

_QUIC_SILENCE: Final = "150s"
"""The same at the port that most sessions are to. Each holds a descriptor, and few QUIC connections
outlast a minute's silence themselves."""

_SHORT_LIVED: Final = (123, 3478)
"""The ports of NTP and STUN."""
_QUIC: Final = 443

_OUTSIDE: Final = {
    # What does not fit the link is sent in pieces: whoever sent it was not told of the headers
    # of the node's protocol. QUIC's own packets are sized by the path all the same.
    "udp_fragment": True,
}
"""How a node's own sockets are."""

_REMEMBERED: Final = 8192


class GroupPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How an instance of several nodes chooses among them."""

    url: str
    interval_s: int

    @classmethod
    def of(cls, settings: Settings) -> GroupPolicy:
        """The device's policy."""
        return cls(url=settings.delay_url, interval_s=settings.check_interval_s)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A sing-box document, whether what it sends to carries UDP, and if so only short datagrams."""

    config: str
    udp: bool
    short: bool = False


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """The whitelist's domain entries, and the mark that what they name goes on with."""

    whitelist: Whitelist
    mark: int


@lru_cache(_REMEMBERED)
def target_document(
    paths: tuple[DialPath, ...],
    resolvers: Resolvers,
    *,
    policy: GroupPolicy | None = None,
    listed: Listed | None = None,
    zones: tuple[LocalZone, ...] = (),
) -> Document:
    """The document of an instance that serves LAN clients through TPROXY.

    Several paths need a `policy`; one takes none. Clients with a rule have the local `zones`.
    """
    document = _document(paths, resolvers, policy)
    dns = document["dns"]
    dns["rules"] = [*local_names.dns_rules(zones), *dns["rules"]]
    dns["servers"] += local_names.dns_servers(zones)
    _serve_clients(document, listed)
    short = carries_short_datagrams(paths)
    return Document(config=_json(document), udp=carries_udp(paths), short=short)


@lru_cache(_REMEMBERED)
def sniffer_document(
    mark: int, resolver: str, listed: Listed, zones: tuple[LocalZone, ...] = ()
) -> Document:
    """The document of an instance that looks for listed domains among kernel-routed traffic.

    What is not listed goes on by `mark`, or is refused when that is REJECT's: also the DNS of
    such clients, who have no other resolver. Listed names in local `zones` are asked there.
    """
    refused = mark == MARK_REJECT
    way = MARK_DIRECT if refused else mark
    document = _routed(way, resolver, way)
    _serve_clients(document, listed)
    if refused:
        document["route"]["rules"].append({"network": ["tcp", "udp"], "action": "reject"})
        tags = [reference["tag"] for reference in document["route"]["rule_set"]]
        document["dns"]["rules"] = [
            {"rule_set": tags, "invert": True, "action": "reject"},
            *local_names.dns_rules(zones),
            *naming.one("device"),
        ]
        document["dns"]["servers"] += local_names.dns_servers(zones)
    return Document(config=_json(document), udp=True)


@lru_cache(_REMEMBERED)
def asker_document(mark: int, zones: tuple[LocalZone, ...]) -> Document:
    """The document of an instance that answers the DNS of clients whose target the kernel routes:
    what is in local `zones` there, all else by the resolver that is in use by the way of `mark`.
    """
    document = _routed(mark, str(RESOLVER_IN_USE), mark)
    # All else is told as the resolver tells it.
    document["dns"]["rules"] = [*local_names.dns_rules(zones)]
    document["dns"]["servers"] += local_names.dns_servers(zones)
    _serve_clients(document, None)
    document["route"]["rules"].append({"action": "reject"})
    return Document(config=_json(document), udp=True)


@lru_cache(_REMEMBERED)
def service_document(service: ProxyService, mark: int, resolver: str, dns_mark: int) -> str:
    """The document of a local proxy service: a socks5 and http listener with one way out.

    The resolver is asked by the way of `dns_mark`.
    """
    users = [{"username": service.username, "password": service.password}]
    document = _routed(mark, resolver, dns_mark)
    # At other ports a session lasts for as long as the connection that it was asked for by.
    document["route"]["rules"] = [
        _outlast(_SILENCE, port=[*_SHORT_LIVED]),
        _outlast(_QUIC_SILENCE, port=[_QUIC]),
    ]
    document["inbounds"] = [
        {
            "type": "mixed",
            "tag": "clients",
            "listen": "0.0.0.0",  # noqa: S104 - who may connect is nftables' to say
            "listen_port": service.port,
            **({"users": users} if service.username or service.password else {}),
        }
    ]
    return _json(document)


@lru_cache(_REMEMBERED)
def probe_document(path: DialPath, resolvers: Resolvers) -> str:
    """A document without inbounds, for trials and delay measurements."""
    return _json(_document((path,), resolvers))


def routed_probe_document(mark: int, resolver: str) -> str:
    """The same for a target that the kernel routes, by `mark`; names are asked the same way."""
    return _json(_routed(mark, resolver, mark))


def _document(
    paths: tuple[DialPath, ...], resolvers: Resolvers, policy: GroupPolicy | None = None
) -> dict[str, Any]:
    if policy is None:
        (path,) = paths
        outbounds, final = _outbounds(path), _tag(path.hops[0])
    else:
        outbounds, final = _exit(FINAL, paths, policy), FINAL
    device = _device(paths[0].mark)
    return {
        "log": _LOG,
        "dns": _dns(paths, final, resolvers, udp=asks_by_udp(paths)),
        "outbounds": outbounds,
        "route": {"final": final, "default_domain_resolver": naming.dialled_by(device)},
    }


def _routed(mark: int, resolver: str, dns_mark: int) -> dict[str, Any]:
    """Sockets that the kernel routes by `mark`, and names asked by the way of `dns_mark`."""
    return {
        "log": _LOG,
        "dns": {
            "servers": [naming.resolver("device", resolver, dns_mark)],
            "rules": [*naming.one("device")],
            "final": "device",
            **naming.ASKING,
        },
        "outbounds": [_direct(FINAL, mark)],
        "route": {"final": FINAL, "default_domain_resolver": naming.dialled_by("device")},
    }


def _serve_clients(document: dict[str, Any], listed: Listed | None) -> None:
    """Add the inbound of LAN clients, and the rules that come before the final outbound."""
    document["inbounds"] = [
        {"type": "tproxy", "tag": "clients", "listen": "127.0.0.1", "listen_port": 0}
    ]
    rules: list[dict[str, Any]] = [
        # The kernel hands over nothing that is for this machine. An instance that went where
        # a caller of its own listener wants to would call itself, over and over.
        {"ip_cidr": [_LOOPBACK], "action": "reject"},
        {"port": 53, "action": "hijack-dns"},
        _outlast(_SILENCE),
        _outlast(_QUIC_SILENCE, port=[_QUIC]),
    ]
    if listed is not None:
        listing = listing_of(listed.whitelist)
        if listed.mark == MARK_LISTED:
            # What an instance handed back, itself perhaps, has been looked into.
            rules.append({"source_ip_cidr": [_SELF], "outbound": document["route"]["final"]})
        rules += listing.rules
        document["route"]["rule_set"] = listing.references
        way = _direct(LISTED, listed.mark)
        if listed.mark == MARK_LISTED:
            # It does not leave the machine: the kernel would take the destination's own address.
            way["inet4_bind_address"] = _SELF
        document["outbounds"].append(way)
    document["route"]["rules"] = rules


def _outlast(silence: str, **those: Any) -> dict[str, Any]:
    """The rule that `those` sessions of datagrams outlast so much silence."""
    return {"network": "udp", **those, "action": "route-options", "udp_timeout": silence}


def _exit(tag: str, paths: tuple[DialPath, ...], policy: GroupPolicy) -> list[dict[str, Any]]:
    """The outbounds that make `tag` one of `paths`."""
    made: dict[str, dict[str, Any]] = {}
    for path in paths:
        for outbound in _outbounds(path):
            made.setdefault(outbound["tag"], outbound)
    choice = {
        "type": "urltest",
        "tag": tag,
        "outbounds": [_tag(path.hops[0]) for path in paths],
        "url": policy.url,
        "interval": f"{policy.interval_s}s",
        "interrupt_exist_connections": False,
    }
    return [*made.values(), choice]


def _direct(tag: str, mark: int) -> dict[str, Any]:
    return {"type": "direct", "tag": tag, "routing_mark": mark}


def _device(mark: int) -> str:
    """Tag of the resolver of names of nodes' servers that are reached by the way of `mark`."""
    return f"device:{mark:x}"


def _outbounds(path: DialPath) -> list[dict[str, Any]]:
    """The hops of a path, each dialling through the next; the outermost bears the mark."""
    result = []
    resolver = _device(path.mark)
    for hop, relay in zip(path.hops, (*path.hops[1:], None), strict=True):
        made = outbound_of(hop)
        dial: dict[str, Any] = (
            {
                **_OUTSIDE,
                "routing_mark": path.mark,
                "domain_resolver": naming.dialled_by(resolver, made.strategy),
            }
            if relay is None
            else {"detour": _tag(relay)}
        )
        result.append({**made.options, **dial, "tag": _tag(hop)})
    return result


def _dns(
    paths: tuple[DialPath, ...], final: str, resolvers: Resolvers, *, udp: bool
) -> dict[str, Any]:
    asked, is_asked_directly = clients_resolvers(paths[0].hops[0], resolvers)
    way: dict[str, Any] = (
        {"type": "udp", "routing_mark": MARK_DIRECT}
        if is_asked_directly
        else {"type": "udp" if udp else "tcp", "detour": final}
    )
    servers = [{"tag": f"clients:{n}", "server": s, **way} for n, s in enumerate(asked, start=1)]
    # Names of nodes' servers are resolved by the device, on the way the node itself is reached.
    interfaces = {path.mark: path.interface for path in paths}
    devices = [
        naming.resolver(_device(mark), resolvers.reached_by(interface), mark)
        for mark, interface in interfaces.items()
    ]
    return {
        "servers": [*servers, *devices],
        "rules": [*_ech_questions(paths), *naming.in_turn([s["tag"] for s in servers])],
        "final": servers[-1]["tag"],
        **naming.ASKING,
    }


def _ech_questions(paths: tuple[DialPath, ...]) -> Iterator[dict[str, Any]]:
    """The rules for what the engine asks before it speaks to a server. Asked as clients' questions
    are, through the node, it would wait for the node that waits for the answer.
    """
    names: defaultdict[int, set[str]] = defaultdict(set)
    for path in paths:
        names[path.mark] |= {ech_name(outbound_of(hop).options) for hop in path.hops}
    for mark, asked in names.items():
        if asked := asked - {""}:
            yield {"domain": sorted(asked), "query_type": ["HTTPS"], "server": _device(mark)}


def clients_resolvers(node: Node, resolvers: Resolvers) -> tuple[tuple[str, ...], bool]:
    """Who are asked for names on behalf of the node's clients, each where those before it do not
    answer, and whether directly, not through the node.
    """
    settings = settings_of(node)
    servers = {
        "domestic": resolvers.domestic,
        "return": resolvers.home,
        "custom": settings.dns_servers,
    }.get(settings.dns_profile, resolvers.outbound)
    return servers[:RESOLVERS_MAX], settings.dns_profile == "domestic"


def _tag(node: Node) -> str:
    return f"node:{node.id}"


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)
