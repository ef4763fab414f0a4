"""Groups: the settings of their own that some have."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import Outcome
from egressd.model.errors import Invalid, Missing, Obstructed, OverQuota
from egressd.model.faults import fault
from egressd.model.names import GROUP_PREFIX
from egressd.model.nouns import TargetGroup
from egressd.planner.compile import group_key
from egressd.service import checks
from egressd.service.group_checks import (
    GROUPS_MAX,
    GroupDraft,
    field_problems,
    missing_problems,
    name_problems,
    structure_problems,
    use_problems,
)
from egressd.service.group_members import member_name
from egressd.service.group_views import GroupView, view_of
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import Clock, Netd
from egressd.service.system import seen_by
from egressd.service.versions import demand, revised, tag_of

_THING: Final = "group"


class TargetGroups:
    """The use cases of groups. A group without settings of its own is made of the nodes that bear
    its name, and has those of the device.
    """

    def __init__(self, ledger: Ledger, netd: Netd, clock: Clock) -> None:
        self._ledger = ledger
        self._netd = netd
        self._clock = clock

    async def list(self, *, is_resolved: bool = True) -> builtins.list[GroupView]:
        """Return all groups, by name; without `is_resolved` none has its members."""
        seen = await seen_by(self._netd) if is_resolved else None
        state = self._ledger.state
        names = {*state.group_sizes, *state.group_by_name}
        return [view_of(state, state.group_settings(name), seen) for name in sorted(names)]

    async def get(self, name: str) -> GroupView:
        """Return a group. Raises Missing."""
        seen = await seen_by(self._netd)
        state = self._ledger.state
        return view_of(state, _existing(state, name), seen)

    async def view(self, group: TargetGroup) -> GroupView:
        """Return what settings mean now that have just been stored."""
        return view_of(self._ledger.state, group, await seen_by(self._netd))

    def tag(self, name: str) -> str:
        """Return the tag of a group's settings, to which its health makes no difference. Raises
        Missing.
        """
        return tag_of(_existing(self._ledger.state, name))

    async def create(self, name: str, draft: GroupDraft) -> Outcome[TargetGroup]:
        """Give a group settings that has none; it may be a new one. Raises Invalid, Obstructed,
        OverQuota.
        """

        def build(state: DesiredState) -> Proposal[TargetGroup]:
            if name in state.group_by_name:
                raise Obstructed(fault("name", "name-taken", thing=_THING, name=name))
            return self._put(state, name, draft)

        return await self._ledger.change(build)

    async def put(
        self, name: str, draft: GroupDraft, tags: Collection[str] = ()
    ) -> tuple[Outcome[TargetGroup], bool]:
        """Replace a group's settings, or make them; true if it had none before. `tags`: see
        `versions.demand`. Raises Invalid, Outdated, OverQuota.
        """

        def build(state: DesiredState) -> Proposal[tuple[TargetGroup, bool]]:
            _demand(state, name, tags)
            is_new = name not in state.group_by_name
            proposal = self._put(state, name, draft)
            return Proposal(proposal.edits, (proposal.value, is_new))

        outcome = await self._ledger.change(build)
        group, is_new = outcome.value
        return Outcome(group, outcome.notes, outcome.revision), is_new

    async def revise(
        self, name: str, fields: Mapping[str, Any], tags: Collection[str] = ()
    ) -> Outcome[TargetGroup]:
        """Give a group some new fields of `GroupDraft`; the others stay, except for weights that
        lose their meaning. `tags`: see `versions.demand`. Raises Invalid, Missing, Outdated,
        OverQuota.
        """

        def build(state: DesiredState) -> Proposal[TargetGroup]:
            before = _existing(state, name)
            _demand(state, name, tags)
            draft = revised(GroupDraft, before, fields)
            if "weights" not in fields:
                draft = _with_fitting_weights(draft)
            return self._put(state, name, draft)

        return await self._ledger.change(build)

    async def delete(self, name: str, tags: Collection[str] = ()) -> Outcome[TargetGroup]:
        """Remove a group's settings, and so the members that it lists, and return them. The nodes
        that bear its name stay its members. Raises Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[TargetGroup]:
            before = state.group_named(name)
            if before is None:
                code = "group-without-settings" if state.group_exists(name) else "no-such-group"
                raise Missing(fault("name", code, name=name[:100]))
            _demand(state, name, tags)
            return Proposal([Edit("groups", before.id, None)], before)

        return await self._ledger.change(build)

    async def rotate(self, name: str, client: str | None) -> tuple[int, str]:
        """Give a client of a group another member, or all of its clients. Return the number of
        clients that moved, and the one client's new member. Raises Missing, Invalid, Failed.
        """
        state = self._ledger.state
        group, target = _existing(state, name), GROUP_PREFIX + name
        if state.strategy_of(group) != "sticky":
            raise Invalid(fault("strategy", "rotation-needs-sticky", name=name))
        if target not in state.target_uses or target not in state.numbers:
            raise Invalid(fault("", "rotation-unused", name=name))
        if client is not None and target_of_client(state, client) != target:
            raise Invalid(fault("client", "rotation-of-no-client", name=name))
        done = await self._netd.rotate(group_key(state, target), client)
        if client is not None and not done.clients:
            raise Obstructed(fault("", "rotation-alone", name=name))
        return done.clients, member_name(state, done.member)

    def _put(self, state: DesiredState, name: str, draft: GroupDraft) -> Proposal[TargetGroup]:
        before = state.group_named(name)
        fields = msgspec.structs.asdict(draft)
        if before is not None:
            made = msgspec.structs.replace(before, **fields)
        else:
            made = TargetGroup(
                id=state.next_id("groups"), name=name, created_at=self._clock(), **fields
            )
        edit = Edit("groups", made.id, made)
        wanted = state.with_edits([edit], state.revision)
        problems = [*name_problems(name, state), *field_problems(draft)]
        problems += missing_problems(draft.members, before.members if before else (), wanted)
        checks.refuse(problems or [*structure_problems(wanted, name), *use_problems(wanted)])
        if before is None and len(state.groups) >= GROUPS_MAX:
            raise OverQuota(fault("", "groups-many", most=GROUPS_MAX))
        return Proposal([edit], made)


def target_of_client(state: DesiredState, client: str) -> str:
    """Return the target of the enabled rule of a client's own address; empty without one."""
    rule_id = state.rule_by_ip.get(f"{client}/32")
    rule = None if rule_id is None else state.rules[rule_id]
    return rule.target_node if rule is not None and rule.is_enabled else ""


def _existing(state: DesiredState, name: str) -> TargetGroup:
    if not state.group_exists(name):
        raise Missing(fault("name", "no-such-group", name=name[:100]))
    return state.group_settings(name)


def _demand(state: DesiredState, name: str, tags: Collection[str]) -> None:
    demand(
        state.group_settings(name),
        tags,
        fault("", "changed-since-read", thing=_THING, name=name[:100]),
    )


def _with_fitting_weights(draft: GroupDraft) -> GroupDraft:
    """Return the settings with the weights of members alone, and with none without ``spread``."""
    kept = draft.weights if draft.strategy == "spread" else {}
    weights = {member: part for member, part in kept.items() if member in draft.members}
    return msgspec.structs.replace(draft, weights=weights)
