"""The law of changes: applying one to the plan before gives the plan compiled after."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from egressd.model.desired import DesiredState, Edit, load
from egressd.model.device import LocalZone, Resolvers
from egressd.model.names import INTERFACE_PREFIX, parse_target
from egressd.model.nouns import Node, ProxyService, Rule, Settings, Whitelist
from egressd.model.plan import Egress
from egressd.planner import compile as compiled
from egressd.planner.change import plan_change
from egressd.planner.compile import compile_plan

RESOLVERS = Resolvers(
    device=("192.0.2.53",), domestic=("192.0.2.54",), outbound=("192.0.2.55",), home=("192.0.2.56",)
)
LOCALLY = structs.replace(
    RESOLVERS, local=(LocalZone(domain="lan", servers=("10.0.0.2", "10.0.0.1")),)
)
NAMES = ("tokyo", "paris", "lima")
GROUPS = ("", "fast", "cheap")
TARGETS = (
    "DIRECT",
    "REJECT",
    *NAMES,
    "Group_fast",
    "Group_cheap",
    "Interface:wan1",
    "Interface:l2tp_1",
)
ADDRESSES = ("10.0.0.1/32", "10.0.0.2/32", "10.0.0.0/24", "10.0.0.0/30", "10.0.0.2/31")


def node(key: int, name: str, group: str, egress: str, relay: str) -> Node:
    config: dict[str, Any] = {"server": f"192.0.2.{key}", "port": 1080, "udp": key % 2 == 0}
    if relay and relay != name:
        config["dialer-proxy"] = relay
    elif egress:
        config["interface-name"] = egress
    return Node(
        id=key,
        name=name,
        protocol="socks5",
        config_json=json.dumps(config),
        group=group,
        created_at="2026-01-01T00:00:00Z",
    )


@dataclass
class Author:
    """Turns drawn values into edits that keep the state well-formed, as `service` does."""

    state: DesiredState
    edits: list[Edit] = field(default_factory=list)

    def number(self, name: str) -> None:
        if name not in self.state.numbers:
            self.put("numbers", name, len(self.state.numbers) + 1)

    def put(self, table: str, key: int | str, row: Any) -> None:
        edit = Edit(table, key, row)
        self.edits.append(edit)
        self.state = self.state.with_edits([edit], self.state.revision)

    def put_rule(self, ip: str, target: str, *, is_enabled: bool, limit: int) -> None:
        if parse_target(target).kind in ("group", "interface"):
            self.number(target)
        key = self.state.rule_by_ip.get(ip, max(self.state.rules, default=0) + 1)
        rule = Rule(
            id=key, ip=ip, target_node=target, is_enabled=is_enabled, upload_limit_kbps=limit
        )
        self.put("rules", key, rule)

    def put_node(self, key: int, name: str, group: str, egress: str, relay: str) -> None:
        if self.state.node_by_name.get(name, key) != key:
            return
        if group:
            self.number(f"Group_{group}")
        if egress:
            self.number(INTERFACE_PREFIX + egress)
        self.put("nodes", key, node(key, name, group, egress, relay))

    def drop(self, table: str, key: int) -> None:
        if key in getattr(self.state, table):
            self.put(table, key, None)

    def put_service(self, key: int, interface: str, *, is_enabled: bool) -> None:
        self.number(INTERFACE_PREFIX + interface)
        row = ProxyService(
            id=key,
            name=f"s{key}",
            outbound_interface=interface,
            port=9000 + key,
            username="u",
            password="p",
            is_enabled=is_enabled,
        )
        self.put("services", key, row)


keys = st.integers(1, 4)
steps: st.SearchStrategy[Any] = st.one_of(
    st.tuples(
        st.just("put_rule"),
        st.tuples(st.sampled_from(ADDRESSES), st.sampled_from(TARGETS)),
        st.fixed_dictionaries({"is_enabled": st.booleans(), "limit": st.sampled_from((0, 512))}),
    ),
    st.tuples(
        st.just("put_node"),
        st.tuples(
            keys,
            st.sampled_from(NAMES),
            st.sampled_from(GROUPS),
            st.sampled_from(("", "wan1", "wan2")),
            st.sampled_from(("", *NAMES)),
        ),
        st.just({}),
    ),
    st.tuples(
        st.just("drop"),
        st.tuples(st.sampled_from(("rules", "nodes", "services")), keys),
        st.just({}),
    ),
    st.tuples(
        st.just("put_service"),
        st.tuples(keys, st.sampled_from(("wan1", "l2tp_1"))),
        st.fixed_dictionaries({"is_enabled": st.booleans()}),
    ),
    st.tuples(
        st.just("put"),
        st.one_of(
            st.tuples(
                st.just("whitelist"),
                st.just(0),
                st.builds(
                    Whitelist,
                    ips=st.sampled_from(("", "198.51.100.0/24")),
                    domains=st.sampled_from(("", "example.com", "quic://example.org:8443")),
                    node=st.sampled_from(("DIRECT", "tokyo", "Group_fast")),
                ),
            ),
            st.tuples(
                st.just("settings"),
                st.just(0),
                st.builds(
                    Settings,
                    unmanaged=st.sampled_from(("REJECT", "DIRECT", "paris")),
                    check_interval_s=st.sampled_from((30, 60)),
                    sniff_domains=st.booleans(),
                    stopped=st.booleans(),
                    opened=st.booleans(),
                ),
            ),
        ),
        st.just({}),
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(steps, min_size=1, max_size=4), max_size=6),
    st.sampled_from((RESOLVERS, LOCALLY)),
)
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


@given(st.lists(steps, max_size=8))
@settings(max_examples=50, deadline=None)
def test_indexes_after_edits_equal_those_of_a_state_loaded_whole(change: list[Any]) -> None:
    author = Author(DesiredState())
    for verb, positional, keyword in change:
        getattr(author, verb)(*positional, **keyword)
    tables = {
        name: dict(getattr(author.state, name))
        for name in ("nodes", "rules", "lines", "services", "numbers", "last_ids")
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
