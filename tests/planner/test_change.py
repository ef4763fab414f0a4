"""The law of changes: applying one to the plan before gives the plan compiled after."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.model.desired import ROW_TABLES, DesiredState, Edit, load
from egressd.model.device import Resolvers
from egressd.model.nouns import Rule, Settings, Whitelist
from egressd.model.plan import Egress
from egressd.planner import compile as compiled
from egressd.planner.change import plan_change
from egressd.planner.compile import compile_plan
from tests.support.random_edits import LOCALLY, RESOLVERS, Author, steps


@settings(max_examples=300)
@given(
    st.lists(st.lists(steps, min_size=1, max_size=4), max_size=6),
    st.sampled_from((RESOLVERS, LOCALLY)),
)
@pytest.mark.slow
def test_applying_a_change_gives_the_compiled_plan(
    changes: list[list[Any]], resolvers: Resolvers
) -> None:
    state = DesiredState()
    plan = compile_plan(state, resolvers)
    for change in changes:
        author = Author(state)
        for verb, positional, keyword in change:
            getattr(author, verb)(*positional, **keyword)
        after = state.with_edits(author.edits, state.revision + 1)
        plan.apply(plan_change(state, after, author.edits, resolvers))
        assert plan == compile_plan(after, resolvers)
        # Apply the reverse change too, as after a failed write to the store.
        taken_back = compile_plan(after, resolvers)
        undone = [Edit(e.table, e.key, state.row(e.table, e.key)) for e in author.edits]
        taken_back.apply(plan_change(after, state, undone, resolvers))
        assert taken_back == compile_plan(state, resolvers)
        state = after


def test_a_member_of_a_site_is_leased_before_and_after_each_change() -> None:
    author = Author(DesiredState())
    before = author.state
    stop = Edit("settings", 0, Settings(stopped=True))
    after = before.with_edits([stop], 1)
    plan = compile_plan(before, RESOLVERS, is_leased=True)
    assert (plan.is_leased, compile_plan(before, RESOLVERS).is_leased) == (True, False)
    plan.apply(plan_change(before, after, [stop], RESOLVERS, is_leased=True))
    assert plan == compile_plan(after, RESOLVERS, is_leased=True)
    assert plan.policy.is_leased


@given(st.lists(steps, max_size=8))
@settings(max_examples=50)
def test_indexes_after_edits_equal_those_of_a_state_loaded_whole(change: list[Any]) -> None:
    author = Author(DesiredState())
    for verb, positional, keyword in change:
        getattr(author, verb)(*positional, **keyword)
    tables = {
        name: dict(getattr(author.state, name)) for name in (*ROW_TABLES, "numbers", "last_ids")
    }
    tables["whitelist"] = {0: author.state.whitelist}
    tables["settings"] = {0: author.state.settings}
    assert load(tables, 0) == author.state


def rules_state(count: int) -> DesiredState:
    author = Author(DesiredState())
    author.put_node(1, "tokyo", "", "", "")
    edits = [
        Edit(
            "rules",
            key,
            Rule(id=key, ip=f"10.{key >> 8}.{key & 255}.1/32", target_node="tokyo"),
        )
        for key in range(1, count + 1)
    ]
    return author.state.with_edits(edits, 1)


def test_a_changed_host_rule_is_one_entry() -> None:
    before = rules_state(500)
    moved = Rule(id=7, ip="10.0.7.1/32", target_node="REJECT")
    after = before.with_edits([Edit("rules", 7, moved)], 2)
    change = plan_change(before, after, [Edit("rules", 7, moved)], RESOLVERS)
    assert change.hosts.put == {"10.0.7.1": 0x4000_0000}
    assert not change.hosts.drop
    touched_more = change.nets or change.instances or change.egresses or change.limits
    assert not touched_more


def test_a_target_exists_from_its_first_rule_to_its_last() -> None:
    author = Author(DesiredState())
    author.put_node(1, "tokyo", "", "", "")
    before = author.state
    rule = Rule(id=1, ip="10.0.0.1/32", target_node="tokyo")
    edit = Edit("rules", 1, rule)
    after = before.with_edits([edit], 1)
    assert list(plan_change(before, after, [edit], RESOLVERS).instances.put) == ["node:1"]
    gone = Edit("rules", 1, None)
    last = after.with_edits([gone], 2)
    assert plan_change(after, last, [gone], RESOLVERS).instances.drop == ("node:1",)


def test_the_first_rule_of_an_interface_is_undone_completely() -> None:
    # The interface's number goes with it, and so does the instance that looks for listed names.
    author = Author(DesiredState())
    author.put("whitelist", 0, Whitelist(domains="example.com", node="DIRECT"))
    before, author.edits = author.state, []
    author.put_rule("10.0.0.1/32", "Interface:wan1", is_enabled=True, limit=0)
    plan = compile_plan(author.state, RESOLVERS)
    assert plan.instances
    undone = [Edit(edit.table, edit.key, None) for edit in author.edits]
    plan.apply(plan_change(author.state, before, undone, RESOLVERS))
    assert plan == compile_plan(before, RESOLVERS)


def test_a_target_without_an_interface_compiles_no_egresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    egresses = compiled.egresses

    def counted(state: DesiredState, resolvers: Resolvers) -> dict[str, Egress]:
        asked.append(state.revision)
        return egresses(state, resolvers)

    monkeypatch.setattr(compiled, "egresses", counted)
    author = Author(rules_state(5))
    author.put_node(2, "paris", "", "", "")
    author.put_node(3, "lima", "", "wan1", "")
    before = author.state
    for target, is_asked in (("paris", False), ("DIRECT", False), ("lima", True)):
        edit = Edit("rules", 3, Rule(id=3, ip="10.0.3.1/32", target_node=target))
        change = plan_change(before, before.with_edits([edit], 2), [edit], RESOLVERS)
        assert bool(asked) is is_asked, target
        assert bool(change.egresses.put) is is_asked
        assert not change.instances.drop


def test_a_rule_whose_node_is_deleted_blocks() -> None:
    author = Author(DesiredState())
    author.put_node(1, "tokyo", "", "", "")
    author.put_rule("10.0.0.1/32", "tokyo", is_enabled=True, limit=0)
    before = author.state
    edit = Edit("nodes", 1, None)
    after = before.with_edits([edit], 1)
    change = plan_change(before, after, [edit], RESOLVERS)
    assert change.hosts.put == {"10.0.0.1": 0x4000_0000}
    assert change.instances.drop == ("node:1",)
