"""Picking attributes finds the same as parsing whole messages, for any layout."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.kernel.attribute_picker import AttributePicker
from egressd.netd.kernel.netlink import attribute, attributes, nest

START = 4
PATHS = ((1,), (2, 1), (2, 3, 1), (2, 3, 2), (4,))

leaves = st.binary(max_size=6)
kinds = st.integers(1, 5)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Attributes in any order, some nested twice; none twice on its level."""

    def level(depth: int) -> bytes:
        made = b""
        for kind in draw(st.lists(kinds, unique=True, max_size=4)):
            is_nest = depth < 2 and kind == 2 + depth
            made += nest(kind, level(depth + 1)) if is_nest else attribute(kind, draw(leaves))
        return made

    return draw(st.binary(min_size=START, max_size=START)) + level(0)


def taken_apart(message: bytes, path: tuple[int, ...]) -> bytes:
    found = message[START:]
    for kind in path:
        found = attributes(found).get(kind, b"")
    return found


@given(st.lists(messages(), max_size=12))
def test_picked_attributes_equal_parsed_ones(found: list[bytes]) -> None:
    picker = AttributePicker(START, *PATHS)
    for message in (*found, *found):
        assert picker.pick(message) == [taken_apart(message, path) for path in PATHS]


def test_messages_of_equal_length_may_have_different_headers() -> None:
    picker = AttributePicker(0, (1,), (2,))
    assert picker.pick(attribute(1, b"abcd")) == [b"abcd", b""]
    assert picker.pick(attribute(2, b"abcd")) == [b"", b"abcd"]
    assert picker.pick(attribute(1, b"abc")) == [b"abc", b""]
