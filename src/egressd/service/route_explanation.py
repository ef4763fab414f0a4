"""The explanation of a client's path to a destination.

The decisions are those of the tables that `planner` makes (`planner.chains` describes the order in
which a packet meets them), described in terms of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Final, Literal

import msgspec

from egressd.formats.hosts import parse_domain
from egressd.formats.whitelist import DomainEntry
from egressd.model.desired import DesiredState
from egressd.model.device import LocalZone, Resolvers
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.messages import Status
from egressd.model.names import DIRECT, TargetName, parse_target
from egressd.model.nouns import Rule
from egressd.model.wording import NONE, Coded, Coding, Sentence, say
from egressd.planner.compile import egress_resolvers, group_key, is_asked_directly
from egressd.planner.instances import clients_resolvers
from egressd.planner.local_names import zone_of
from egressd.planner.nodes import carries_udp
from egressd.planner.resolvers import RESOLVERS_MAX
from egressd.planner.targets import dial_paths, members_of
from egressd.planner.whitelist_entries import HTTP_PORTS, QUIC_PORTS, TLS_PORTS, entries_of
from egressd.service.bounds import reached_by
from egressd.service.group_members import member_name, routed_member
from egressd.service.group_steps import steps_to_member
from egressd.service.group_views import GroupMember, members_now
from egressd.service.judgement import Verdict, judge, judge_unruled, why_no_client

Protocol = Literal["tcp", "udp"]

MEMBERS_MAX: Final = 20
_DNS_PORT: Final = 53
_LOCALLY: Final = say("asked-locally")
_DIRECTLY: Final = say("asked-directly")
_BY_NODE: Final = say("asked-by-node")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic in question. ``destination`` is an IPv4 address or a domain in ASCII."""

    client: str
    destination: str
    port: int = 443
    protocol: Protocol = "tcp"

    @property
    def address(self) -> IPv4Address | None:
        """The destination, if it is an address."""
        try:
            return IPv4Address(self.destination)
        except ValueError:
            return None


class RuleSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that covers the client."""

    id: int
    ip: str
    comment: str
    target_node: str


class WhitelistSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a look-up in the whitelist: the matching entry, by ``domain`` or ``ip``."""

    matches: bool
    entry: str = ""
    by: str = ""
    node: str = ""


class DnsSeen(Coding, frozen=True, kw_only=True):
    """The resolver that is asked first for the client's names; empty if there is none."""

    server: str
    server_coded: Coded | None = None
    """The sentence that stands in place of an address, for programs."""
    further: tuple[str, ...] = ()
    """The resolvers that are asked in turn if that one does not answer."""
    way: Sentence
    way_coded: Coded | None = None


class LimitsSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The limits that the client shares with all addresses that its rule covers; 0 is unlimited."""

    rule: str
    upload_kbps: int
    download_kbps: int


class Explanation(Coding, frozen=True, kw_only=True):
    """The outcome for the traffic, and the reason."""

    client: str
    destination: str
    port: int
    protocol: str
    is_blocked: bool
    reason: Sentence
    reason_coded: Coded | None = None
    problem: Sentence
    """A copy of ``reason`` if it was found by probing (its nodes fail, its WAN leads nowhere), so
    that a new probe shows whether it still holds; else empty."""
    since: str
    """The time since which the clients of its target have been blocked, if known; else empty."""
    doubts: tuple[Sentence, ...]
    """Reasons why it may still be blocked, which cannot be decided from here."""
    doubts_coded: tuple[Coded, ...] = ()
    rule: RuleSeen | None
    other_rules: tuple[RuleSeen, ...]
    whitelist: WhitelistSeen
    target: str
    members: tuple[GroupMember, ...] = ()
    """Members of the group that is the target, in order, with the one that the client's new
    connections go to: at most `MEMBERS_MAX`."""
    nodes: tuple[str, ...]
    egresses: tuple[str, ...]
    dns: DnsSeen
    limits: LimitsSeen
    steps: tuple[Sentence, ...] = ()
    """The same in sentences, in the order in which it is decided."""
    steps_coded: tuple[Coded, ...] = ()


def question(client: str, destination: str, port: int, protocol: Protocol) -> Question:
    """Return a checked question. Raises Invalid that names every wrong field."""
    problems = []
    try:
        client = str(IPv4Address(client.strip()))
    except ValueError:
        problems.append(fault("client", "ipv4-address"))
    destination = destination.strip()
    try:
        destination = str(IPv4Address(destination))
    except ValueError:
        try:
            destination = parse_domain(destination)
        except ValueError:
            problems.append(fault("destination", "domain-or-ipv4"))
    if problems:
        raise Invalid(*problems)
    return Question(client=client, destination=destination, port=port, protocol=protocol)


def explain(
    asked: Question,
    state: DesiredState,
    resolvers: Resolvers,
    seen: Status,
    *,
    since: Callable[[str], str] = lambda _target: "",
    member: str = "",
) -> Explanation:
    """Return the explanation, from the configuration and netd's view of the device.

    `since` returns the time since which a target's clients have been blocked. `member` is the key
    of the member that the group which is the client's target gives it, if it is known.
    """
    rules = covering(state, asked.client)
    rule = rules[0] if rules else None
    listed = _listed(asked, state)
    own = rule.target_node if rule is not None else state.settings.unmanaged
    if state.settings.opened:
        rule, own = None, DIRECT
    # DNS takes the client's own egress; the whitelist applies only to clients with a rule.
    by_list = listed.matches and rule is not None and asked.port != _DNS_PORT
    target = listed.node if by_list else own
    parsed = parse_target(target)
    verdict = judge_unruled(state, seen) if rule is None else judge(state, target, resolvers, seen)
    # Local names are for clients with a rule, unless it refuses them.
    refused = rule is None or parse_target(own).kind == "reject"
    zone = None if refused else zone_of(asked.destination, resolvers.local)
    if verdict.cause == "names" and zone is not None:
        verdict = Verdict(egresses=verdict.egresses)  # resolved locally
    reason = _reason(asked, state, parsed, verdict, seen)
    members = _members(state, parsed, seen, "" if by_list else member)
    is_verdict = bool(reason) and reason == verdict.reason
    answer = Explanation(
        client=asked.client,
        destination=asked.destination,
        port=asked.port,
        protocol=asked.protocol,
        is_blocked=bool(reason),
        reason=reason,
        problem=reason if is_verdict and verdict.is_found_out else NONE,
        doubts=() if reason else (*seen.doubts, *_reached(asked, state, seen).values()),
        since=since(target) if is_verdict and rule is not None else "",
        rule=None if rule is None else _seen(rule),
        other_rules=tuple(_seen(other) for other in rules if other is not rule),
        whitelist=listed,
        target=target,
        members=_shown(members),
        nodes=tuple(path.hops[0].name for path in dial_paths(state, parsed)),
        egresses=verdict.egresses,
        dns=_dns(state, _in_use(state, parse_target(own), seen), resolvers, zone),
        limits=_limits(rule),
    )
    steps = _steps(answer, state, by_list, zone, members)
    return msgspec.structs.replace(answer, steps=tuple(steps))


def _members(
    state: DesiredState, target: TargetName, seen: Status, current: str
) -> tuple[GroupMember, ...]:
    return members_now(state, target.name, seen, current) if target.kind == "group" else ()


def _shown(members: tuple[GroupMember, ...]) -> tuple[GroupMember, ...]:
    """Return the first members, and the one in use."""
    if len(members) <= MEMBERS_MAX:
        return members
    others = [each for each in members if not each.is_current]
    chosen = {each.target for each in others[: MEMBERS_MAX - 1]}
    return tuple(each for each in members if each.is_current or each.target in chosen)


def covering(state: DesiredState, client: str) -> list[Rule]:
    """Return the enabled rules that cover a client's address, the narrowest first. O(rules)."""
    address = IPv4Address(client)
    exact = state.rule_by_ip.get(f"{client}/32")
    found = [state.rules[exact]] if exact is not None else []
    found += [r for r in state.rules.values() if not r.is_host and address in r.network]
    enabled = [rule for rule in found if rule.is_enabled]
    return sorted(enabled, key=lambda rule: -rule.network.prefixlen)


def _seen(rule: Rule) -> RuleSeen:
    return RuleSeen(id=rule.id, ip=rule.host, comment=rule.comment, target_node=rule.target_node)


def _listed(asked: Question, state: DesiredState) -> WhitelistSeen:
    listed = state.whitelist
    entries = entries_of(listed)
    address = asked.address
    if address is not None:
        for network in entries.networks:
            if address in network:
                entry = str(network).removesuffix("/32")
                return WhitelistSeen(matches=True, entry=entry, by="ip", node=listed.node)
    elif state.settings.sniff_domains:
        for domain in entries.domains:
            if _is_below(asked.destination, domain.domain) and _is_seen(asked, domain):
                return WhitelistSeen(
                    matches=True, entry=_text(domain), by="domain", node=listed.node
                )
    return WhitelistSeen(matches=False, node=listed.node)


def _is_below(name: str, domain: str) -> bool:
    return name == domain or name.endswith(f".{domain}")


def _is_seen(asked: Question, entry: DomainEntry) -> bool:
    """True if traffic of that kind is inspected for the entry."""
    if not entry.scheme:
        ports = QUIC_PORTS if asked.protocol == "udp" else (*HTTP_PORTS, *TLS_PORTS)
        return asked.port in ports
    return asked.port == entry.port and (entry.scheme == "quic") == (asked.protocol == "udp")


def _text(entry: DomainEntry) -> str:
    return f"{entry.scheme}://{entry.domain}:{entry.port}" if entry.scheme else entry.domain


def _reason(
    asked: Question, state: DesiredState, target: TargetName, verdict: Verdict, seen: Status
) -> Sentence:
    if target.kind == "reject" and not state.settings.stopped:
        return say("target-rejects")
    if verdict.cause != "stopped" and (stranger := why_no_client(IPv4Address(asked.client), seen)):
        return stranger
    if verdict.cause in ("", "nodes", "names") and (
        refused := _why_refused(asked, target, _reached(asked, state, seen))
    ):
        return refused  # ahead of results of probes: the traffic never reaches a node
    if verdict.is_blocked or (verdict.cause == "names" and _needs_resolver(asked)):
        return verdict.reason
    if (
        asked.protocol == "udp"
        and asked.port != _DNS_PORT
        and not carries_udp(dial_paths(state, target))
    ):
        return say("udp-refused")
    return NONE


def _reached(asked: Question, state: DesiredState, seen: Status) -> dict[str, Sentence]:
    """Return the kind of each bound that the client, or its network, has reached -> a sentence."""
    rules = covering(state, asked.client)
    return dict(reached_by(asked.client, seen, is_ruled=bool(rules) and rules[0].is_host))


def _why_refused(asked: Question, target: TargetName, reached: Mapping[str, Sentence]) -> Sentence:
    """Return why the client's new flows are refused before they are sent on; else empty."""
    counted = "sessions" if asked.protocol == "udp" else "connections"
    kinds = {counted, f"network_{counted}"}
    if asked.port == _DNS_PORT:
        kinds = {"questions"} if asked.protocol == "udp" else {"questions", "resolver"}
    if target.kind not in ("node", "group"):
        kinds &= {"questions"}
    return next((why for kind, why in reached.items() if kind in kinds), NONE)


def _needs_resolver(asked: Question) -> bool:
    """True if it fails without a resolver that answers."""
    return asked.address is None or asked.port == _DNS_PORT


def _dns(
    state: DesiredState, target: TargetName, resolvers: Resolvers, zone: LocalZone | None
) -> DnsSeen:
    if zone is not None:
        return _asked(zone.servers, _LOCALLY, resolvers)
    match target.kind:
        case "direct":
            return _asked(resolvers.all_reached_by(""), _DIRECTLY, resolvers)
        case "interface":
            servers = egress_resolvers(state, resolvers, target.name)
            directly = is_asked_directly(state, resolvers, target.name)
            way = _DIRECTLY if directly else say("asked-by", name=target.name)
            return _asked(servers or (say("resolver-of-peer"),), way, resolvers)
        case "node" | "group":
            paths = dial_paths(state, target)
            if not paths:
                return DnsSeen(server="", way=NONE)
            servers, directly = clients_resolvers(paths[0].hops[0], resolvers)
            way = _DIRECTLY if directly else _BY_NODE
            return _asked(servers, way, resolvers)
        case _:
            return DnsSeen(server="", way=NONE)


def _in_use(state: DesiredState, target: TargetName, seen: Status) -> TargetName:
    """Return the member of a group with other members than nodes that its clients go by; the first
    one if that is not known, or not the same for all. Another target stays.
    """
    if target.kind != "group" or not routed_member(state, target.name):
        return target
    elected = member_name(state, seen.elected.get(group_key(state, str(target)), ""))
    return parse_target(elected or members_of(state, target.name)[0])


def _asked(servers: tuple[str, ...], way: Sentence, resolvers: Resolvers) -> DnsSeen:
    """Return the DNS view; `way` is for a resolver outside, a local one is asked locally."""
    if servers[0] in resolvers.inner and way != _BY_NODE:
        way = _LOCALLY
    return DnsSeen(server=servers[0], further=servers[1:RESOLVERS_MAX], way=way)


def _limits(rule: Rule | None) -> LimitsSeen:
    if rule is None:
        return LimitsSeen(rule="", upload_kbps=0, download_kbps=0)
    return LimitsSeen(
        rule=rule.host,
        upload_kbps=rule.upload_limit_kbps,
        download_kbps=rule.download_limit_kbps,
    )


def _steps(
    answer: Explanation,
    state: DesiredState,
    by_list: bool,
    zone: LocalZone | None,
    members: Sequence[GroupMember],
) -> Iterator[Sentence]:
    client, rule = answer.client, answer.rule
    if state.settings.stopped:
        yield say("step-stopped")
    if state.settings.opened:
        yield say("step-opened")
    elif rule is None:
        yield say("step-no-rule", client=client, target=answer.target)
    else:
        about = {"id": str(rule.id), "ip": rule.ip, "client": client}
        if wider := tuple(f"{other.id} ({other.ip})" for other in answer.other_rules):
            yield say("step-narrower-rule", others=wider, **about)
        else:
            yield say("step-rule", **about)
    own_id = state.rule_by_ip.get(f"{client}/32")
    if own_id is not None and not state.rules[own_id].is_enabled:
        yield say("step-rule-disabled", id=own_id, client=client)
    yield from _steps_of_whitelist(answer, state, by_list)
    if zone is not None:
        yield say("step-local-names", domain=zone.domain)
    yield say("step-target", target=answer.target)
    yield from _steps_of_group(answer, state, members)
    if answer.is_blocked:
        yield say("step-blocked", reason=answer.reason)
    elif answer.egresses == (DIRECT,):
        yield say("step-own-route")
    else:
        yield say("step-egress", egresses=answer.egresses)
    for doubt in answer.doubts:
        yield say("step-doubt", reason=doubt)


def _steps_of_group(
    answer: Explanation, state: DesiredState, members: Sequence[GroupMember]
) -> Iterator[Sentence]:
    if members and not answer.is_blocked:
        group = state.group_settings(parse_target(answer.target).name)
        yield from steps_to_member(state.strategy_of(group), members)


def _steps_of_whitelist(
    answer: Explanation, state: DesiredState, by_list: bool
) -> Iterator[Sentence]:
    rule, listed = answer.rule, answer.whitelist
    if by_list:
        yield say(
            "step-listed", destination=answer.destination, entry=listed.entry, node=listed.node
        )
    elif listed.matches:
        code = "step-list-for-rules" if rule is None else "step-list-not-dns"
        yield say(code, entry=listed.entry)
    elif rule is not None:
        yield say(
            "step-unlisted",
            destination=answer.destination,
            protocol=answer.protocol,
            port=answer.port,
        )
        if state.whitelist.ips.strip() and not answer.destination[-1].isdigit():
            yield say("step-listed-addresses")
