"""Routing rules: the target and the speed limits of each client."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from egressd.formats.rules import parse_rules
from egressd.model.bounds import COMMENT_MAX, MAC_MAX, RULE_LIMIT_MAX_KBPS
from egressd.model.desired import DesiredState, Edit
from egressd.model.devices import normal_mac
from egressd.model.drafts import BadRow, ImportOutcome, Outcome, RuleBatch, RuleDraft
from egressd.model.errors import Invalid, Missing
from egressd.model.faults import Fault, fault
from egressd.model.nouns import Rule
from egressd.service import checks
from egressd.service.imports import Tally, carry_out, proposed
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import Clock
from egressd.service.versions import demand, revised


class Rules:
    """The use cases of clients' rules."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    def list(self) -> builtins.list[Rule]:
        """Return all rules, the oldest first."""
        return sorted(self._ledger.state.rules.values(), key=lambda rule: rule.id)

    async def create(self, draft: RuleDraft) -> Outcome[Rule]:
        """Add a rule. Raises Invalid."""

        def build(state: DesiredState) -> Proposal[Rule]:
            ip = _checked(state, draft)
            rule = self._new(draft, ip, state.next_id("rules"))
            return Proposal([Edit("rules", rule.id, rule)], rule)

        return await self._ledger.change(build)

    async def replace(self, rule_id: int, draft: RuleDraft) -> Outcome[Rule]:
        """Give a rule new fields. Raises Invalid, Missing."""

        def build(state: DesiredState) -> Proposal[Rule]:
            if rule_id not in state.rules:
                checks.refuse(_field_problems(state, draft, checks.normal_network(draft.ip)))
            return self._replaced(state, _existing(state, rule_id), draft)

        return await self._ledger.change(build)

    def get(self, rule_id: int) -> Rule:
        """Return a rule. Raises Missing."""
        return _existing(self._ledger.state, rule_id)

    async def revise(
        self, rule_id: int, fields: Mapping[str, Any], tags: Collection[str]
    ) -> Outcome[Rule]:
        """Give a rule some new fields of `RuleDraft`; the others stay, even with other changes at
        the same time. `tags` are those of `versions.demand`. Raises Invalid, Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[Rule]:
            before = _demanded(state, rule_id, tags)
            return self._replaced(state, before, revised(RuleDraft, before, fields))

        return await self._ledger.change(build)

    def _replaced(self, state: DesiredState, before: Rule, draft: RuleDraft) -> Proposal[Rule]:
        ip = _checked(state, draft, before.id)
        rule = self._updated(before, draft, ip)
        return Proposal([Edit("rules", rule.id, rule)], rule)

    async def set_enabled(self, rule_id: int, is_enabled: bool) -> Outcome[Rule]:
        """Switch a rule on or off. Raises Missing."""

        def build(state: DesiredState) -> Proposal[Rule]:
            rule = self._changed(_existing(state, rule_id), is_enabled=is_enabled)
            return Proposal([Edit("rules", rule.id, rule)], rule)

        return await self._ledger.change(build)

    async def delete(self, rule_id: int, tags: Collection[str] = ()) -> Outcome[Rule]:
        """Remove a rule, and return it. Raises Missing, Outdated."""

        def build(state: DesiredState) -> Proposal[Rule]:
            return Proposal([Edit("rules", rule_id, None)], _demanded(state, rule_id, tags))

        return await self._ledger.change(build)

    async def delete_many(self, ips: Sequence[str]) -> Outcome[int]:
        """Remove the rules of `ips`, and return how many there were. Raises Invalid."""

        def build(state: DesiredState) -> Proposal[int]:
            found = _rules_of(state, ips)
            return Proposal([Edit("rules", rule.id, None) for rule in found], len(found))

        return await self._ledger.change(build)

    async def set_enabled_many(self, ips: Sequence[str], is_enabled: bool) -> Outcome[int]:
        """Switch the rules of `ips`, and return how many there are. Raises Invalid."""

        def build(state: DesiredState) -> Proposal[int]:
            found = _rules_of(state, ips)
            return self._change_all(found, is_enabled=is_enabled)

        return await self._ledger.change(build)

    async def update_many(self, batch: RuleBatch) -> Outcome[int]:
        """Change the target or the limits of several rules. Raises Invalid."""
        fields = {
            name: value
            for name in ("target_node", "upload_limit_kbps", "download_limit_kbps")
            if (value := getattr(batch, name)) is not None
        }

        def build(state: DesiredState) -> Proposal[int]:
            checks.refuse(_batch_problems(state, batch))
            return self._change_all(_rules_of(state, batch.ips), **fields)

        return await self._ledger.change(build)

    async def import_rows(
        self, text: str, *, replace: bool, preview: bool = False
    ) -> ImportOutcome:
        """Add a rule for each row of `text`; with `replace` all others are removed.

        A rule whose address stays keeps its id, so that its client is not interrupted.

        With `preview` nothing is changed, and the answer is that of a real import.
        """

        def build(state: DesiredState) -> Proposal[ImportOutcome]:
            tally = Tally(preview)
            wanted = self._wanted(state, text, tally, replace=replace)
            edits = [Edit("rules", rule.id, rule) for rule in wanted.values()]
            rules = state.rules.values()
            stale = (Edit("rules", rule.id, None) for rule in rules if rule.ip not in wanted)
            return proposed(tally, edits, stale if replace else None)

        return await carry_out(self._ledger, build, preview=preview)

    def _wanted(
        self, state: DesiredState, text: str, tally: Tally, *, replace: bool
    ) -> dict[str, Rule]:
        """Return the rules that the rows make, by address."""
        wanted: dict[str, Rule] = {}
        fresh_id = state.next_id("rules")
        for row in parse_rules(text):
            if isinstance(row, BadRow):
                tally.bad(row)
                continue
            draft = row.draft
            ip = checks.normal_network(draft.ip)
            problems = [*_field_problems(state, draft, ip)]
            if ip is None or problems:
                tally.bad(BadRow(row.line, tuple(problems)))
                continue
            before_id = state.rule_by_ip.get(ip)
            if ip in wanted or (before_id is not None and not replace):
                tally.already_there()
                continue
            if before_id is None:
                wanted[ip] = self._new(draft, ip, fresh_id)
                fresh_id += 1
            else:
                wanted[ip] = self._updated(state.rules[before_id], draft, ip)
            tally.imported += 1
        return wanted

    def _new(self, draft: RuleDraft, ip: str, rule_id: int) -> Rule:
        now = self._clock()
        fields = msgspec.structs.asdict(draft) | {"ip": ip}
        return Rule(id=rule_id, created_at=now, updated_at=now, **fields)

    def _updated(self, before: Rule, draft: RuleDraft, ip: str) -> Rule:
        """Return `before` with the draft's fields. With another address it is that address's, and
        no device's any more.
        """
        bound_mac = before.bound_mac if ip == before.ip else ""
        fields = msgspec.structs.asdict(draft) | {"ip": ip, "bound_mac": bound_mac}
        return self._changed(before, **fields)

    def _changed(self, before: Rule, **fields: object) -> Rule:
        """Return `before` with other fields, and the time of the change if it is one."""
        after = msgspec.structs.replace(before, **fields)
        if after == before:
            return before
        return msgspec.structs.replace(after, updated_at=self._clock())

    def _change_all(self, found: Iterable[Rule], **fields: object) -> Proposal[int]:
        edits = [Edit("rules", rule.id, self._changed(rule, **fields)) for rule in found]
        return Proposal(edits, len(edits))


def _existing(state: DesiredState, rule_id: int) -> Rule:
    rule = state.rules.get(rule_id)
    if rule is None:
        raise Missing(fault("id", "no-such-id", thing="rule", id=rule_id))
    return rule


def _demanded(state: DesiredState, rule_id: int, tags: Collection[str]) -> Rule:
    rule = _existing(state, rule_id)
    demand(rule, tags, fault("", "changed-since-read", thing="rule", name=rule.host))
    return rule


def _rules_of(state: DesiredState, ips: Iterable[str]) -> builtins.list[Rule]:
    """Return the rules of these addresses, each once. Raises Invalid for a text that is no
    address.
    """
    wanted = {ip: checks.normal_network(ip) for ip in ips}
    checks.refuse(
        fault("ips", "ipv4-or-cidrs", given=ip[:50])
        for ip, normal in wanted.items()
        if normal is None
    )
    keys = dict.fromkeys(state.rule_by_ip.get(ip) for ip in wanted.values() if ip is not None)
    return [state.rules[key] for key in keys if key is not None]


def _checked(state: DesiredState, draft: RuleDraft, own_id: int | None = None) -> str:
    """Return the draft's address, normalised. Raises Invalid with every fault of the draft."""
    ip = checks.normal_network(draft.ip)
    problems = [*_field_problems(state, draft, ip)]
    if ip is not None and state.rule_by_ip.get(ip, own_id) != own_id:
        problems.append(fault("ip", "rule-exists", ip=draft.ip))
    if ip is None or problems:
        raise Invalid(*problems)
    return ip


def _field_problems(state: DesiredState, draft: RuleDraft, ip: str | None) -> Iterator[Fault]:
    return field_problems(draft, ip, checks.target("target_node", draft.target_node, state))


def field_problems(
    draft: RuleDraft | Rule, ip: str | None, target_problems: Iterable[Fault]
) -> Iterator[Fault]:
    """Yield every fault of a rule's fields. `ip` is the normal form of its address."""
    if ip is None:
        yield fault("ip", "ipv4-or-cidr")
    yield from checks.text("mac", draft.mac, MAC_MAX)
    bound_mac = draft.bound_mac if isinstance(draft, Rule) else ""
    if bound_mac and (normal_mac(bound_mac) != bound_mac or not str(ip).endswith("/32")):
        yield fault("bound_mac", "mac-form")
    yield from checks.text("comment", draft.comment, COMMENT_MAX)
    yield from target_problems
    yield from _limit("upload_limit_kbps", draft.upload_limit_kbps)
    yield from _limit("download_limit_kbps", draft.download_limit_kbps)


def _limit(field: str, value: int) -> Iterator[Fault]:
    return checks.whole(field, value, 0, RULE_LIMIT_MAX_KBPS)


def _batch_problems(state: DesiredState, batch: RuleBatch) -> Iterator[Fault]:
    fields = (batch.target_node, batch.upload_limit_kbps, batch.download_limit_kbps)
    if all(field is None for field in fields):
        yield fault("", "nothing-to-update")
    if batch.target_node is not None:
        yield from checks.target("target_node", batch.target_node, state)
    if batch.upload_limit_kbps is not None:
        yield from _limit("upload_limit_kbps", batch.upload_limit_kbps)
    if batch.download_limit_kbps is not None:
        yield from _limit("download_limit_kbps", batch.download_limit_kbps)
