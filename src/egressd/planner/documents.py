"""sing-box documents: what the engine is told to do for an instance, or for a path to be tried.

netd makes them from the instances of the plan (`egressd.model.instances`), just before a worker
starts one. A document depends on what it is made from, and on nothing else.

The rules of every document: what no rule takes goes to the node and nowhere else
(``route.final``); every socket towards the outside bears a mark, so that it leaves by the
egress meant for it (an unmarked one meets the routing floor); clients' DNS is answered in
the instance by a resolver asked through the node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from egressd.model.instances import (
    Asker,
    Dialer,
    GroupPolicy,
    Hop,
    KernelPath,
    Listed,
    NodePath,
    ProxyListener,
    Sniffer,
    Work,
)
from egressd.model.outbounds import Grpc, HttpStream, VLess
from egressd.planner import local_names, naming
from egressd.planner.listing import LISTED, references_of, rules_of
from egressd.planner.options import ech_name, options_of
from egressd.planner.registry import MARK_DIRECT, MARK_LISTED, MARK_REJECT, RESOLVER_IN_USE

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


def document_of(work: Work) -> str:
    """The document of an instance."""
    match work:
        case Dialer():
            made = _dialer(work)
        case Sniffer():
            made = _sniffer(work)
        case Asker():
            made = _asker(work)
        case ProxyListener():
            made = _proxy(work)
    return msgspec.json.encode(made).decode()


def probe_document(path: NodePath | KernelPath) -> str:
    """A document without inbounds, for trials and delay measurements."""
    if isinstance(path, KernelPath):
        made = _routed(path.mark, path.resolver, path.mark)
    else:
        made = _dialled((path,))
        made["dns"] = {"servers": _device_servers((path,)), **naming.ASKING}
    return msgspec.json.encode(made).decode()


def _dialer(work: Dialer) -> dict[str, Any]:
    """Serves LAN clients through TPROXY. Clients with a rule have the local zones."""
    document = _dialled(work.paths, work.policy)
    dns = document["dns"] = _dns(work, document["route"]["final"])
    dns["rules"] = [*local_names.dns_rules(work.zones), *dns["rules"]]
    dns["servers"] += local_names.dns_servers(work.zones)
    _serve_clients(document, work.listed)
    return document


def _sniffer(work: Sniffer) -> dict[str, Any]:
    refused = work.mark == MARK_REJECT
    way = MARK_DIRECT if refused else work.mark
    document = _routed(way, work.resolver, way)
    _serve_clients(document, work.listed)
    if refused:
        document["route"]["rules"].append({"network": ["tcp", "udp"], "action": "reject"})
        tags = [reference["tag"] for reference in document["route"]["rule_set"]]
        document["dns"]["rules"] = [
            {"rule_set": tags, "invert": True, "action": "reject"},
            *local_names.dns_rules(work.zones),
            *naming.one("device"),
        ]
        document["dns"]["servers"] += local_names.dns_servers(work.zones)
    return document


def _asker(work: Asker) -> dict[str, Any]:
    document = _routed(work.mark, str(RESOLVER_IN_USE), work.mark)
    # All else is told as the resolver tells it.
    document["dns"]["rules"] = [*local_names.dns_rules(work.zones)]
    document["dns"]["servers"] += local_names.dns_servers(work.zones)
    _serve_clients(document, None)
    document["route"]["rules"].append({"action": "reject"})
    return document


def _proxy(work: ProxyListener) -> dict[str, Any]:
    users = [{"username": work.username, "password": work.password}]
    document = _routed(work.mark, work.resolver, work.dns_mark)
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
            "listen_port": work.port,
            **({"users": users} if work.username or work.password else {}),
        }
    ]
    return document


def _dialled(paths: tuple[NodePath, ...], policy: GroupPolicy | None = None) -> dict[str, Any]:
    """All but the DNS of what sends to the node of a path, or to one of several."""
    if policy is None:
        path = paths[0]
        outbounds, final = _outbounds(path), _tag(path.hops[0])
    else:
        outbounds, final = _exit(FINAL, paths, policy), FINAL
    device = _device(paths[0].mark)
    return {
        "log": _LOG,
        "dns": {},
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
        way = _direct(LISTED, MARK_DIRECT if listed.is_direct else MARK_LISTED)
        if not listed.is_direct:
            # What an instance handed back, itself perhaps, has been looked into.
            rules.append({"source_ip_cidr": [_SELF], "outbound": document["route"]["final"]})
            # It does not leave the machine: the kernel would take the destination's own address.
            way["inet4_bind_address"] = _SELF
        rules += rules_of(listed.sets)
        document["route"]["rule_set"] = [*references_of(listed.sets)]
        document["outbounds"].append(way)
    document["route"]["rules"] = rules


def _outlast(silence: str, **those: Any) -> dict[str, Any]:
    """The rule that `those` sessions of datagrams outlast so much silence."""
    return {"network": "udp", **those, "action": "route-options", "udp_timeout": silence}


def _exit(tag: str, paths: Iterable[NodePath], policy: GroupPolicy) -> list[dict[str, Any]]:
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


def _outbounds(path: NodePath) -> list[dict[str, Any]]:
    """The hops of a path, each dialling through the next; the outermost bears the mark."""
    result = []
    resolver = _device(path.mark)
    for hop, relay in zip(path.hops, (*path.hops[1:], None), strict=True):
        dial: dict[str, Any] = (
            {
                **_OUTSIDE,
                "routing_mark": path.mark,
                "domain_resolver": naming.dialled_by(resolver, hop.outbound.strategy),
            }
            if relay is None
            else {"detour": _tag(relay)}
        )
        result.append({**options_of(hop.outbound), **dial, "tag": _tag(hop)})
    return result


def _dns(work: Dialer, final: str) -> dict[str, Any]:
    way: dict[str, Any] = (
        {"type": "udp", "routing_mark": MARK_DIRECT}
        if work.is_asked_directly
        else {"type": "udp" if _asks_by_udp(work) else "tcp", "detour": final}
    )
    servers = [
        {"tag": f"clients:{n}", "server": server, **way}
        for n, server in enumerate(work.resolvers, start=1)
    ]
    return {
        "servers": [*servers, *_device_servers(work.paths)],
        "rules": [*_ech_questions(work.paths), *naming.in_turn([s["tag"] for s in servers])],
        "final": servers[-1]["tag"],
        **naming.ASKING,
    }


def _device_servers(paths: Iterable[NodePath]) -> list[dict[str, Any]]:
    """Names of nodes' servers are resolved by the device, on the way the node itself is reached."""
    resolvers = {path.mark: path.resolver for path in paths}
    return [naming.resolver(_device(mark), server, mark) for mark, server in resolvers.items()]


def _asks_by_udp(work: Dialer) -> bool:
    """Whether clients' questions are asked over UDP.

    Over a connection that clients share, an association with XUDP that begins while there is none
    hangs for good, and one asks for everybody: there it is TCP, which costs no handshake.
    """
    hops = [hop.outbound for path in work.paths for hop in path.hops]
    hangs = any(
        isinstance(made, VLess)
        and made.packet_encoding == "xudp"
        and isinstance(made.transport, Grpc | HttpStream)
        for made in hops
    )
    return work.udp and not hangs


def _ech_questions(paths: Iterable[NodePath]) -> Iterator[dict[str, Any]]:
    """The rules for what the engine asks before it speaks to a server. Asked as clients' questions
    are, through the node, it would wait for the node that waits for the answer.
    """
    names: defaultdict[int, set[str]] = defaultdict(set)
    for path in paths:
        names[path.mark] |= {ech_name(hop.outbound) for hop in path.hops}
    for mark, asked in names.items():
        if asked := asked - {""}:
            yield {"domain": sorted(asked), "query_type": ["HTTPS"], "server": _device(mark)}


def _tag(hop: Hop) -> str:
    return f"node:{hop.node}"
