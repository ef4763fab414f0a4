"""The inverse of changes, on random states."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import Line, Node, ProxyService, Rule, Settings, Whitelist
from egressd.model.undo import (
    TRACED_MAX,
    PastChange,
    Reversal,
    reversals,
    traced,
    undoing,
    undone_by,
)
from egressd.model.wording import NONE
from egressd.store import undo_log

KEYS = st.integers(1, 4)
VARIANTS = st.integers(0, 2)
TEXTS = st.sampled_from(["", "a", "b" * TRACED_MAX, "c" * (TRACED_MAX + 1), "d" * 3000])


def _rule(key: int, variant: int, text: str) -> Rule:
    return Rule(
        id=key,
        ip=f"10.0.{key}.{variant}/32",
        target_node=f"node{variant}",
        comment=text,
        updated_at=f"{variant}{len(text)}",
    )


def _node(key: int, variant: int, text: str) -> Node:
    return Node(
        id=key,
        name=f"{key}.{variant}",
        protocol="ss",
        config_json=text,
        group=f"g{variant}",
        created_at="t",
    )


def _line(key: int, variant: int, text: str) -> Line:
    return Line(
        id=key,
        type="l2tp",
        name=f"l2tp_{key}{variant}",
        server="s",
        port=1701,
        username="u",
        password=text,
        dns_servers=("9.9.9.9",) * variant,
    )


def _service(key: int, variant: int, text: str) -> ProxyService:
    return ProxyService(
        id=key, name=f"{key}.{variant}", outbound_interface="w", port=100 * key, password=text
    )


MAKERS = {"rules": _rule, "nodes": _node, "lines": _line, "services": _service}


@st.composite
def edits(draw: st.DrawFn) -> list[Edit]:
    found: dict[tuple[str, int], Any] = {}
    for table, make in MAKERS.items():
        for key in draw(st.lists(KEYS, max_size=3)):
            is_kept = draw(st.booleans())
            found[table, key] = make(key, draw(VARIANTS), draw(TEXTS)) if is_kept else None
    if draw(st.booleans()):
        found["whitelist", 0] = Whitelist(domains=draw(TEXTS))
    if draw(st.booleans()):
        found["settings", 0] = Settings(check_interval_s=draw(st.integers(5, 9)))
    changed = [Edit(table, key, row) for (table, key), row in found.items()]
    return [*changed, Edit("numbers", f"Group_{draw(VARIANTS)}", 1)]


def rows(state: DesiredState) -> dict[str, Any]:
    """Return everything that can be taken back, and the indexes that follow from it."""
    fields = {name: getattr(state, name) for name in state.__struct_fields__}
    for name in ("revision", "numbers", "last_ids"):
        fields.pop(name)
    return fields


@given(edits(), edits())
def test_an_undone_change_leaves_the_state_before(first: list[Edit], second: list[Edit]) -> None:
    before = DesiredState().with_edits(first, 1)
    after = before.with_edits(second, 2)
    inverse = undo_log.unpack(undo_log.pack(reversals(before, second)))
    back, obstacles = undoing(after, inverse)
    assert obstacles == []
    undone = after.with_edits(back, 3)
    assert rows(undone) == rows(before)
    for name, highest in after.last_ids.items():
        assert undone.last_ids[name] >= highest
    assert undone.numbers == after.numbers


@given(st.lists(edits(), max_size=6))
def test_changes_undone_in_reverse_order_give_the_first_state(changes: list[list[Edit]]) -> None:
    first = state = DesiredState().with_edits([], 0)
    inverses = []
    for change in changes:
        inverses.append(reversals(state, change))
        state = state.with_edits(change, state.revision + 1)
    for inverse in reversed(inverses):
        back, obstacles = undoing(state, inverse)
        assert obstacles == []
        state = state.with_edits(back, state.revision + 1)
    assert rows(state) == rows(first)


@given(st.permutations(["comment", "target_node", "is_enabled", "mac"]), st.integers(1, 3))
def test_fields_of_later_changes_stay(fields: list[str], number: int) -> None:
    values: dict[str, Any] = {"comment": "c", "target_node": "n", "is_enabled": False, "mac": "m"}
    before = DesiredState().with_edits([Edit("rules", 1, _rule(1, 0, ""))], 1)
    own = replace(before.rules[1], **{name: values[name] for name in fields[:number]})
    change = [Edit("rules", 1, replace(own, updated_at="1"))]
    after = before.with_edits(change, 2)
    others = {name: values[name] for name in fields[number:]}
    later = replace(after.rules[1], **others, updated_at="2")
    back, obstacles = undoing(
        after.with_edits([Edit("rules", 1, later)], 3), reversals(before, change)
    )
    assert obstacles == []
    (edit,) = back
    assert edit.after == replace(before.rules[1], **others, updated_at="2")


def test_changes_from_before_a_field_was_added_are_undone() -> None:
    rule = Edit("rules", 1, _rule(1, 0, "a"))
    (created,) = reversals(DesiredState(), [rule])
    assert created.after is not None
    older = {name: value for name, value in created.after.items() if name != "mac"}
    state = DesiredState().with_edits([rule], 1)
    back, obstacles = undoing(state, [Reversal("rules", 1, None, older)])
    assert ([(edit.key, edit.after) for edit in back], obstacles) == ([(1, None)], [])


def test_traces_tell_long_texts_apart() -> None:
    one, other = (traced(_rule(1, 0, "x" * TRACED_MAX + end)) for end in ("a", "b"))
    assert one != other
    assert len(repr(one)) < 2 * TRACED_MAX


def test_rows_that_exchange_their_names_are_undone() -> None:
    before = DesiredState().with_edits(
        [Edit("nodes", 1, _node(1, 0, "")), Edit("nodes", 2, _node(2, 0, ""))], 1
    )
    swap = [
        Edit("nodes", 1, replace(before.nodes[1], name="2.0")),
        Edit("nodes", 2, replace(before.nodes[2], name="1.0")),
    ]
    back, obstacles = undoing(before.with_edits(swap, 2), reversals(before, swap))
    assert obstacles == []
    assert {edit.key: edit.after for edit in back} == dict(before.nodes)


def test_an_undone_undo_does_not_count() -> None:
    def past(revision: int, undoes: int | None = None) -> PastChange:
        return PastChange(
            revision=revision, at="", who="", source="", what="", text=NONE, undoes=undoes,
            has_inverse=True,
        )  # fmt: skip

    log = [past(1), past(2, 1), past(3, 2), past(4, 1)]
    assert undone_by(log[:2]) == {1: 2}
    assert undone_by(log[:3]) == {2: 3}
    assert undone_by(log) == {2: 3, 1: 4}


def test_damaged_inverses_are_refused() -> None:
    packed = undo_log.pack([Reversal("rules", 1, _rule(1, 0, "x" * 5000), None)])
    for damaged in (packed[:20], packed[:-9], b""):
        try:
            undo_log.unpack(damaged)
        except ValueError:
            continue
        raise AssertionError(damaged)
