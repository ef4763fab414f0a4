"""sing-box documents: the engine's configuration of an instance, or of a path to be tried.

netd makes them from the instances of the plan (`egressd.model.instances`), just before a worker
starts one. A document depends on its instance, and on nothing else.

The rules of every document: traffic that no rule matches goes to the node and nowhere else
(``route.final``); every socket towards the outside bears a mark, so that it leaves by the egress
meant for it (an unmarked one meets the default-deny routing rules); clients' DNS is answered in the
instance by a resolver asked through the node.
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
from egressd.planner import local_names, naming, tunnels
from egressd.planner.options import ENDPOINTS, carrier_of, ech_name, options_of
from egressd.planner.registry import MARK_DIRECT, MARK_LISTED, MARK_REJECT, RESOLVER_IN_USE
from egressd.planner.whitelist_entries import LISTED, references_of, rules_of

FINAL: Final = "target"
"""Tag of the outbound that a document sends traffic to."""

_SELF: Final = "127.0.0.1"
_LOOPBACK: Final = "127.0.0.0/8"
_LOG: Final = {"level": "error", "timestamp": False}

_SILENCE: Final = "5m"
"""Time of silence that a UDP session outlasts (RFC 4787, REQ-5). The engine's own timeouts are 10 s
for STUN and NTP and 30 s for QUIC, at which calls lose their peer."""

_QUIC_SILENCE: Final = "150s"
"""The same at the port of most sessions. Each session holds a descriptor, and few QUIC connections
outlast a minute's silence themselves."""

_SHORT_LIVED: Final = (123, 3478)
"""The ports of NTP and STUN."""
_QUIC_PORT: Final = 443

_OUTSIDE: Final = {
    # Datagrams that do not fit the link are sent in fragments: their sender does not know the
    # headers of the node's protocol. QUIC still sizes its own packets by the path.
    "udp_fragment": True,
}
"""Options of a node's own sockets."""


def document_of(work: Work) -> str:
    """Return the document of an instance."""
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
    """Return a document without inbounds, for trials and delay measurements."""
    if isinstance(path, KernelPath):
        made = _routed(path.mark, path.resolver, path.mark)
    else:
        made = _dialled((path,))
        tunnels.silence(made)
        made["dns"] = {"servers": _device_servers((path,)), **naming.ASKING}
    return msgspec.json.encode(made).decode()


def _dialer(work: Dialer) -> dict[str, Any]:
    """Return the document that serves LAN clients through TPROXY. Clients with a rule have the
    local zones.
    """
    document = _dialled(work.paths, work.policy)
    dns = document["dns"] = _dns(work, document["route"]["final"])
    dns["rules"] = [*local_names.dns_rules(work.zones), *dns["rules"]]
    dns["servers"] += local_names.dns_servers(work.zones)
    _serve_clients(document, work.listed)
    return document


def _sniffer(work: Sniffer) -> dict[str, Any]:
    refused = work.mark == MARK_REJECT
    mark = MARK_DIRECT if refused else work.mark
    document = _routed(mark, work.resolver, mark)
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
    # All other answers are passed on unchanged.
    document["dns"]["rules"] = [*local_names.dns_rules(work.zones)]
    document["dns"]["servers"] += local_names.dns_servers(work.zones)
    _serve_clients(document, None)
    document["route"]["rules"].append({"action": "reject"})
    return document


def _proxy(work: ProxyListener) -> dict[str, Any]:
    users = [{"username": work.username, "password": work.password}]
    document = _routed(work.mark, work.resolver, work.dns_mark)
    # At other ports a session lasts as long as the TCP connection that requested it.
    document["route"]["rules"] = [
        _outlast(_SILENCE, port=[*_SHORT_LIVED]),
        _outlast(_QUIC_SILENCE, port=[_QUIC_PORT]),
    ]
    document["inbounds"] = [
        {
            "type": "mixed",
            "tag": "clients",
            "listen": "0.0.0.0",  # noqa: S104 - nftables decides which clients may connect
            "listen_port": work.port,
            **({"users": users} if work.username or work.password else {}),
        }
    ]
    return document


def _dialled(paths: tuple[NodePath, ...], policy: GroupPolicy | None = None) -> dict[str, Any]:
    """Return a document without DNS that sends traffic to the node of a path, or to one of
    several.
    """
    if policy is None:
        path = paths[0]
        made, final = _outbounds(path), _tag(path.hops[0])
    else:
        made, final = _exit(FINAL, paths, policy), FINAL
    device = _device(paths[0].mark)
    endpoints = [each for each in made if each["type"] in ENDPOINTS]
    return {
        "log": _LOG,
        "dns": {},
        **({"endpoints": endpoints} if endpoints else {}),
        "outbounds": [each for each in made if each["type"] not in ENDPOINTS],
        "route": {"final": final, "default_domain_resolver": naming.dialled_by(device)},
    }


def _routed(mark: int, resolver: str, dns_mark: int) -> dict[str, Any]:
    """Return a document whose sockets the kernel routes by `mark`, with names resolved by
    `dns_mark`.
    """
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
        *_tunnel_rules(document),
        # The kernel hands over nothing that is for this machine. An instance that connected to its
        # own listener on behalf of a client would call itself over and over.
        {"ip_cidr": [_LOOPBACK], "action": "reject"},
        {"port": 53, "action": "hijack-dns"},
        _outlast(_SILENCE),
        _outlast(_QUIC_SILENCE, port=[_QUIC_PORT]),
    ]
    if listed is not None:
        outbound = _direct(LISTED, MARK_DIRECT if listed.is_direct else MARK_LISTED)
        if not listed.is_direct:
            # Traffic that an instance handed back, perhaps this one, has been inspected.
            rules.append({"source_ip_cidr": [_SELF], "outbound": document["route"]["final"]})
            # It does not leave the machine: the kernel would choose the destination's own address.
            outbound["inet4_bind_address"] = _SELF
        rules += rules_of(listed.sets)
        document["route"]["rule_set"] = [*references_of(listed.sets)]
        document["outbounds"].append(outbound)
    document["route"]["rules"] = rules


def _tunnel_rules(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rules for the document's tunnels, before all others, and add the listener by which
    they are measured while they serve clients: the pool gives it the port of the other one.
    """
    endpoints = document.get("endpoints", [])
    if not endpoints:
        return []
    users = [tunnels.login_of(endpoint) for endpoint in endpoints]
    document["inbounds"].append(
        {
            "type": "socks",
            "tag": tunnels.LISTENER,
            "listen": tunnels.ADDRESS,
            "listen_port": 0,
            "users": users,
        }
    )
    return [
        # The other end of a tunnel may send what it likes, also connections to this end's address.
        {"inbound": [endpoint["tag"] for endpoint in endpoints], "action": "reject"},
        *(
            {"auth_user": [user["username"]], "outbound": endpoint["tag"]}
            for user, endpoint in zip(users, endpoints, strict=True)
        ),
    ]


def _outlast(silence: str, **those: Any) -> dict[str, Any]:
    """Return the rule that UDP sessions matching `those` outlast that much silence."""
    return {"network": "udp", **those, "action": "route-options", "udp_timeout": silence}


def _exit(tag: str, paths: Iterable[NodePath], policy: GroupPolicy) -> list[dict[str, Any]]:
    """Return the outbounds that make `tag` one of `paths`."""
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
    """Return the tag of the resolver for names of nodes' servers that are reached by `mark`."""
    return f"device:{mark:x}"


def _outbounds(path: NodePath) -> list[dict[str, Any]]:
    """Return the hops of a path, each dialling through the next; the outermost bears the mark."""
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
        options, way = options_of(hop.outbound), carrier_of(hop.outbound)
        if options["type"] in ENDPOINTS and relay is None:
            # By itself an endpoint listens for packets of every sender, at a port of its own.
            way = {"type": "direct"}
        if way is not None:
            tag = f"way:{hop.node}"
            result.append({**way, **dial, "tag": tag})
            dial = {"detour": tag}
        result.append({**options, **dial, "tag": _tag(hop)})
    return result


def _dns(work: Dialer, final: str) -> dict[str, Any]:
    transport: dict[str, Any] = (
        {"type": "udp", "routing_mark": MARK_DIRECT}
        if work.is_asked_directly
        else {"type": "udp" if _asks_by_udp(work) else "tcp", "detour": final}
    )
    servers = [
        {"tag": f"clients:{n}", "server": server, **transport}
        for n, server in enumerate(work.resolvers, start=1)
    ]
    return {
        "servers": [*servers, *_device_servers(work.paths)],
        "rules": [*_ech_questions(work.paths), *naming.in_turn([s["tag"] for s in servers])],
        "final": servers[-1]["tag"],
        **naming.ASKING,
    }


def _device_servers(paths: Iterable[NodePath]) -> list[dict[str, Any]]:
    """Return the servers that resolve names of nodes' servers, on the egress of the node itself."""
    resolvers = {path.mark: path.resolver for path in paths}
    return [naming.resolver(_device(mark), server, mark) for mark, server in resolvers.items()]


def _asks_by_udp(work: Dialer) -> bool:
    """True if clients' questions are asked over UDP.

    On a connection that clients share, an XUDP association that begins while there is none hangs
    for good, and one association carries the questions of all clients: there TCP is used, which
    costs no handshake.
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
    """Yield the rules for questions that the engine asks before it speaks to a server. Sent through
    the node as clients' questions are, they would wait for the node, which waits for the answer.
    """
    names: defaultdict[int, set[str]] = defaultdict(set)
    for path in paths:
        names[path.mark] |= {ech_name(hop.outbound) for hop in path.hops}
    for mark, asked in names.items():
        if asked := asked - {""}:
            yield {"domain": sorted(asked), "query_type": ["HTTPS"], "server": _device(mark)}


def _tag(hop: Hop) -> str:
    return f"node:{hop.node}"
