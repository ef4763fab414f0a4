"""Many probes in one sing-box document: a SOCKS listener selects them by user name. Pure.

An instance of hundreds of outbounds starts as fast as a few instances of one. From each probe's
document only the dependencies of its final outbound are taken: the outbounds it dials through, and
the DNS servers that resolve names of nodes' servers; its rules are not. Tags are prefixed with the
probe's number, so that probes share nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from egressd.planner import tunnels
from egressd.planner.options import ENDPOINTS

Entry = dict[str, Any]
Reference = tuple[str, str]
"""The kind of a tag (``outbound`` or ``server``), and the tag."""

_ERROR: Final = re.compile(r"using outbound/[^\[\s]+\[(\d+)/[^\]]*\]: (.+)")


class _Dns(msgspec.Struct):
    servers: list[Entry] = []


class _Route(msgspec.Struct):
    final: str = ""
    default_domain_resolver: str | Entry | None = None


class _Document(msgspec.Struct):
    """The parts of a document that matter here."""

    outbounds: list[Entry] = []
    endpoints: list[Entry] = []
    dns: _Dns = msgspec.field(default_factory=_Dns)
    route: _Route = msgspec.field(default_factory=_Route)


class BatchPart(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a probe's document that is measured.

    ``surroundings`` is JSON of all other settings of the document as a whole: only parts that agree
    on it may share a document.
    """

    final: str
    outbounds: tuple[Entry, ...]
    endpoints: tuple[Entry, ...]
    servers: tuple[Entry, ...]
    surroundings: bytes


def part(config: str) -> BatchPart:
    """Read a probe's document. Raises ValueError with a sentence."""
    try:
        document = msgspec.json.decode(config, type=_Document)
        rest = msgspec.json.decode(config, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"the configuration is not a sing-box document: {error}") from error
    route, servers = document.route, document.dns.servers
    resolver = route.default_domain_resolver
    if resolver is None and len(servers) == 1:
        resolver = servers[0].get("tag")
    outbounds = (*document.outbounds, *document.endpoints)  # they share their tags
    entries = {
        **{("outbound", o.get("tag", "")): _resolved_by(resolver, o) for o in outbounds},
        **{("server", s.get("tag", "")): _resolved_by(resolver, s) for s in servers},
    }
    if ("outbound", route.final) not in entries:
        raise ValueError(f"route.final must name an outbound, not {route.final!r}")
    needed = _needed(("outbound", route.final), entries)
    dialled = [entries[r] for r in entries if r in needed and r[0] == "outbound"]
    return BatchPart(
        final=route.final,
        outbounds=tuple(each for each in dialled if each.get("type") not in ENDPOINTS),
        endpoints=tuple(each for each in dialled if each.get("type") in ENDPOINTS),
        servers=tuple(entries[r] for r in entries if r in needed and r[0] == "server"),
        surroundings=_surroundings(rest),
    )


def document(
    parts: Mapping[int, BatchPart],
    port: int,
    password: str,
    log: str,
    refused: Sequence[str] = (),
) -> str:
    """Return the document that serves `parts`, by probe number, each as `user` with `password`.

    The parts agree on their surroundings. Errors go to the file `log`. Networks in `refused` are
    not connected to, nor names that lead there; of what goes by a node, the node resolves the name.
    """
    result: Entry = msgspec.json.decode(next(iter(parts.values())).surroundings)
    numbered = [(number, entry) for number, each in parts.items() for entry in each.outbounds]
    endpoints = [(number, entry) for number, each in parts.items() for entry in each.endpoints]
    servers = [(number, entry) for number, each in parts.items() for entry in each.servers]
    routes = [
        {"auth_user": [user(number)], "outbound": _own(number, each.final)}
        for number, each in parts.items()
    ]
    result["log"] = {"level": "error", "output": log}
    result["inbounds"] = [
        {
            "type": "socks",
            "listen": "127.0.0.1",
            "listen_port": port,
            "users": [{"username": user(number), "password": password} for number in parts],
        }
    ]
    result["outbounds"] = [_renumbered(number, entry) for number, entry in numbered]
    if endpoints:
        result["endpoints"] = [_renumbered(number, entry) for number, entry in endpoints]
    result["dns"]["servers"] = [_renumbered(number, entry) for number, entry in servers]
    guards = [*_guards(parts, refused)] if refused else []
    result["route"]["rules"] = [*guards, *routes, {"action": "reject"}]
    return msgspec.json.encode(result).decode()


def _guards(parts: Mapping[int, BatchPart], refused: Sequence[str]) -> Iterator[Entry]:
    """Yield the rules that refuse networks. Names are resolved first where this machine does so;
    the connection then goes to the IPv4 addresses that were found.
    """
    for number, each in parts.items():
        (final,) = (o for o in (*each.outbounds, *each.endpoints) if o["tag"] == each.final)
        if final["type"] == "direct":
            (server,) = (tag for kind, tag in _references(final) if kind == "server")
            yield {
                "auth_user": [user(number)],
                "action": "resolve",
                "server": _own(number, server),
                # The rules that withhold IPv6 addresses do not count for a named server.
                "strategy": "ipv4_only",
            }
    yield {"ip_cidr": [*refused], "action": "reject"}


def user(number: int) -> str:
    """Return the SOCKS user whose traffic goes to the probe with that number."""
    return f"probe-{number}"


def errors(log: str) -> dict[int, str]:
    """Return the first error in an engine's log for each probe, by number."""
    found: dict[int, str] = {}
    for match in _ERROR.finditer(log):
        found.setdefault(int(match[1]), match[2])
    return found


def _own(number: int, tag: str) -> str:
    return f"{number}/{tag}"


def _resolved_by(resolver: str | Entry | None, entry: Entry) -> Entry:
    """Return `entry` with the document's resolver, if the entry would fall back to it.

    That is an entry with a server's name to resolve, or a ``direct`` outbound; an outbound that
    dials through another lets that one resolve (``common/dialer/dialer.go``).
    """
    if resolver is None or "domain_resolver" in entry or entry.get("detour"):
        return entry
    if entry.get("type") == "direct" or _is_name(entry.get("server", "")):
        return {**entry, "domain_resolver": resolver}
    return entry


def _is_name(server: str) -> bool:
    try:
        ip_address(server)
    except ValueError:
        return server != ""
    return False


def _references(entry: Entry) -> Iterator[Reference]:
    for tag in (entry.get("detour"), *entry.get("outbounds", ())):
        if tag:
            yield "outbound", tag
    match entry.get("domain_resolver"):
        case str(tag) | {"server": str(tag)}:
            yield "server", tag


def _needed(start: Reference, entries: Mapping[Reference, Entry]) -> set[Reference]:
    """Return `start` and everything that it refers to, directly or not."""
    needed: set[Reference] = set()
    waiting = [start]
    while waiting:
        reference = waiting.pop()
        # The engine refuses a reference to nothing.
        if reference in entries and reference not in needed:
            needed.add(reference)
            waiting.extend(_references(entries[reference]))
    return needed


def _renumbered(number: int, entry: Entry) -> Entry:
    """Return `entry` with its own tag and its references made the probe's own."""
    result = {**entry, "tag": _own(number, entry.get("tag", ""))}
    for field in ("detour", "default"):
        if isinstance(entry.get(field), str):
            result[field] = _own(number, entry[field])
    if "outbounds" in entry:
        result["outbounds"] = [_own(number, tag) for tag in entry["outbounds"]]
    match entry.get("domain_resolver"):
        case str(tag):
            result["domain_resolver"] = _own(number, tag)
        case {"server": str(tag), **rest}:
            result["domain_resolver"] = {**rest, "server": _own(number, tag)}
    return result


def _surroundings(rest: Entry) -> bytes:
    """Return all settings except the listeners, the log, and the parts that `BatchPart` holds or
    omits.
    """
    for name in ("inbounds", "outbounds", "endpoints", "log"):
        rest.pop(name, None)
    dns, route = rest.setdefault("dns", {}), rest.setdefault("route", {})
    for name in ("servers", "rules", "final"):
        dns.pop(name, None)
    for name in ("rules", "rule_set", "final", "default_domain_resolver"):
        route.pop(name, None)
    return msgspec.json.encode(rest, order="sorted")


def within(config: str, port_of: Callable[[str], int]) -> str:
    """Return a probe's document with ways into the tunnels that serve clients in place of its own.

    `port_of` returns the port of the running instance that a tunnel's tag names; 0 for none.
    """
    if '"endpoints"' not in config:
        return config
    document: Entry = msgspec.json.decode(config, type=dict[str, Any])
    own, ways = [], []
    for endpoint in document["endpoints"]:
        if port := port_of(endpoint["tag"]):
            ways.append(tunnels.way_into(endpoint, port))
        else:
            own.append(endpoint)
    document["outbounds"] = [*document["outbounds"], *ways]
    document["endpoints"] = own
    return msgspec.json.encode(document).decode()
