"""New names that users can recognise by sight, and the look of names."""

# ruff: noqa: RUF001 - these letters are under test
from __future__ import annotations

import sys
import time
import unicodedata
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.desired import DesiredState, Edit
from egressd.model.faults import fault
from egressd.model.names import (
    new_name_problem,
    node_name_problem,
    reserved_name_problem,
    seen_name,
)
from egressd.model.nouns import Node
from egressd.model.skeleton import skeleton

FINE = [
    "hk-01",
    "香港 01",
    "香港　01",
    "🇭🇰 HK 01",
    "🇭🇰香港🇭🇰",
    "❤️ Tokyo ☀️",
    "👨‍👩‍👧‍👦 family",
    "🏳️‍🌈 x",
    "👩🏽‍🚀 y",
    "🙂‍↔️ z",
    "❤️‍🔥",
    "1️⃣ 2️⃣ *️⃣",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 London",
    "🏴󠁧󠁢󠁳󠁣󠁴󠁿 London",
    "ℹ️ info",
    "Москва-1",
    "Αθήνα",
    "ירושלים",
    "القاهرة",
    "می‌خواهم",
    "क्‍ष",
    "東京ノード①",
    "서울",
    "Zürich",
    "™️ ©️",
    "\U0001fae8 new emoji",
    "｜ HK ｜",
    "50% + 3 = [x] (y) {z} @home",
]


@pytest.mark.parametrize("name", FINE)
def test_names_in_all_scripts_are_valid(name: str) -> None:
    assert new_name_problem(name) is None
    assert reserved_name_problem(name) is None


UNFIT = [
    ("Zu\u0308rich", "NFC"),
    ("\u212b", "NFC"),
    ("\u0301a", "combining mark"),
    ("a\u200bb", "U+200B"),
    ("a\u200db", "U+200D"),
    ("a\u200cb", "U+200C"),
    ("\u200da", "U+200D"),
    ("👨\u200d", "U+200D"),
    ("👨\u200da", "U+200D"),
    ("\u200eabc", "U+200E"),
    ("abc\u202etxt", "U+202E"),
    ("\u2066abc\u2069", "U+2066"),
    ("a\u061cb", "U+061C"),
    ("a\u00adb", "U+00AD"),
    ("\ufeffabc", "U+FEFF"),
    ("a\u2060b", "U+2060"),
    ("a\u00a0b", "U+00A0"),
    ("a\u2003b", "U+2003"),
    ("a\ufe0f", "U+FE0F"),
    ("я\ufe0f", "U+FE0F"),
    ("\ufe0f1", "combining mark"),
    ("葛\U000e0100", "U+E0100"),
    ("a\u034fb", "U+034F"),
    ("a\u115fb", "U+115F"),
    ("a\u3164b", "U+3164"),
    ("a\uffa0b", "U+FFA0"),
    ("a\u2800b", "U+2800"),
    ("a\ue000b", "U+E000"),
    ("a\U000f0000b", "U+F0000"),
    ("a\ufffeb", "U+FFFE"),
    ("a\ufdd0b", "U+FDD0"),
    ("a\U000e0041b", "U+E0041"),
    ("\U0001f3f4\U000e0067 x", "U+E0067"),
    ("a\u180eb", "U+180E"),
    ("a\ufff9b", "U+FFF9"),
]


@pytest.mark.parametrize(("name", "problem"), UNFIT)
def test_invisible_characters_are_refused(name: str, problem: str) -> None:
    assert problem in str(new_name_problem(name))


@pytest.mark.parametrize("name", [name for name, _ in UNFIT if name != "\u0301a"])
def test_the_visible_form_of_a_name_is_valid(name: str) -> None:
    assert new_name_problem(seen_name(name)) is None


def test_spaces_and_line_ends_become_a_space() -> None:
    assert seen_name("a\u00a0b\u2003c\td\ne\u3000f\x00\ud83cg") == "a b c d e\u3000fg"


@given(st.text(max_size=6) | st.sampled_from(FINE))
def test_the_visible_form_of_a_valid_name_is_itself(name: str) -> None:
    if name and node_name_problem(name) is None and new_name_problem(name) is None:
        assert seen_name(name) == name


@given(st.text(min_size=1, max_size=6))
def test_a_valid_name_has_visible_characters(name: str) -> None:
    """No invisible character of a valid name makes up all of it."""
    if name.strip() and new_name_problem(name) is None:
        assert unicodedata.is_normalized("NFC", name)
        assert skeleton(name)


@given(st.text(max_size=8))
def test_a_skeleton_is_its_own_skeleton(name: str) -> None:
    assert skeleton(skeleton(name)) == skeleton(name)
    assert skeleton(unicodedata.normalize("NFD", name)) == skeleton(name)


def test_the_skeleton_of_each_skeleton_is_itself() -> None:
    """The prototype of U+FEF5 decomposes into characters that have prototypes themselves."""
    looks = [
        skeleton(chr(point)) for point in range(sys.maxunicode + 1) if chr(point).isprintable()
    ]
    assert [skeleton(look) for look in looks] == looks
    assert skeleton("\ufef5") == skeleton("\u0644\u0622")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Tokyo", "Tоkyo"),
        ("paypal", "раураl"),
        ("hk", "ｈｋ"),
        ("hk", "𝐡𝐤"),
        ("hk-01", "hk-Ol"),
        ("modem", "modern"),
        ("❤ a", "❤️ a"),
        ("a", "a\u200b"),
        ("Zürich", "Zu\u0308rich"),
        ("a b", "a\u00a0b"),
        ("香港一", "香港ー"),
    ],
)
def test_confusable_names_have_the_same_skeleton(one: str, other: str) -> None:
    assert one != other
    assert skeleton(one) == skeleton(other)


def test_distinct_names_have_different_skeletons() -> None:
    names = {
        *FINE,
        "Tokyo",
        "tokyo",
        "hk 1",
        "hk 2",
        "🇭🇰",
        "🇯🇵",
        "DIRECT",
        "REJECT",
        "香港",
        "香巷",
    }
    names.remove("香港　01")  # as "香港 01"
    assert len({skeleton(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "name",
    [
        "DIRECT",
        "DIRЕCT",
        "DlRECT",
        "D1RECT",
        "ＤＩＲＥＣＴ",
        "DIRECT\u200b",
        "REJECТ",
        "𝐑𝐄𝐉𝐄𝐂𝐓",
        "Group_x",
        "Grоup_hk",
        "Ｇｒｏｕｐ＿hk",
        "lnterface:wan1",
        "Interface：wan1",
        "Interface\ua789wan1",
    ],
)
def test_a_name_like_a_reserved_target_is_refused(name: str) -> None:
    assert reserved_name_problem(name) == fault("name", "name-looks-reserved")


@pytest.mark.parametrize("name", ["direct", "DIRECTOR", "REJECT 1", "Group", "my Group_x", "wan1"])
def test_other_names_are_accepted(name: str) -> None:
    assert reserved_name_problem(name) is None


NODES = st.dictionaries(
    st.integers(1, 4),
    st.tuples(st.sampled_from(["a", "\u0430", "b"]), st.sampled_from(["", "g", "\u0261", "h"])),
)


def node(key: int, name: str, group: str = "") -> Node:
    return Node(id=key, name=name, protocol="", config_json="", group=group, created_at="")


@given(st.lists(NODES, max_size=4))
def test_the_skeleton_index_contains_all_names(states: list[dict[int, tuple[str, str]]]) -> None:
    state = DesiredState()
    for wanted in states:
        nodes = {key: node(key, f"{name}{key}", group) for key, (name, group) in wanted.items()}
        edits = [Edit("nodes", key, nodes.get(key)) for key in range(1, 5)]
        state = state.with_edits(edits, state.revision + 1)
        for index, names in (
            (state.nodes_like, state.node_by_name),
            (state.groups_like, state.group_sizes),
        ):
            found = [name for like in index.values() for name in like]
            assert sorted(found) == sorted(names)
            assert all(skeleton(name) == look for look, like in index.items() for name in like)


def test_an_overlong_text_is_its_own_skeleton() -> None:
    text = "a" + "\u0301\u0316" * 30_000  # putting them in order takes a second or more
    began = time.process_time()
    assert skeleton(text) == text
    assert time.process_time() - began < 0.5


def test_the_skeleton_index_is_fast_for_confusable_names() -> None:
    names = ["".join(letters) for letters in product("lI1|", repeat=7)][:8000]
    edits = [Edit("nodes", key, node(key, name)) for key, name in enumerate(names, 1)]
    began = time.process_time()
    state = DesiredState().with_edits(edits, 1)
    assert time.process_time() - began < 3.0
    ((look, alike),) = state.nodes_like.items()
    assert (look, set(alike)) == (skeleton("lllllll"), set(names))
    gone = state.with_edits([Edit("nodes", key, None) for key in range(1, 8000)], 2)
    assert set(gone.nodes_like[look]) == {names[-1]}
