"""Strict JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.strict_json import NotStrict, decode, json_decoder

DECODER = json_decoder()


def refused(text: str, depth_max: int = 8) -> tuple[str, dict[str, Any]]:
    with pytest.raises(NotStrict) as caught:
        decode(text, DECODER, depth_max)
    return caught.value.code, dict(caught.value.values)


@pytest.mark.parametrize(
    ("text", "code", "values"),
    [
        ('{"a": 1, "a": 1}', "key-twice", {"key": "a"}),
        ('[{"b": {"a": 1, "\\u0061": 2}}]', "key-twice", {"key": "a"}),
        ('{"' + "k" * 99 + '": 1, "' + "k" * 99 + '": 2}', "key-twice", {"key": "k" * 60}),
        ("NaN", "number", {"number": "NaN"}),
        ('{"a": -Infinity}', "number", {"number": "-Infinity"}),
        ("{", "syntax", {"line": 1, "column": 2}),
        ("", "syntax", {"line": 1, "column": 1}),
        ("[1]\n2", "syntax", {"line": 2, "column": 1}),
        ("[" * 9 + "]" * 9, "depth", {"most": 8}),
        ("[" * 500_000, "depth", {"most": 8}),
        ("[" + "1" * 5_000 + "]", "number-size", {}),
        ("{" + '"b": 1, ' * 3 + '"a": 1, "a": 2}', "key-twice", {"key": "b"}),
    ],
)
def test_ambiguous_json_is_refused(text: str, code: str, values: dict[str, Any]) -> None:
    found, given_values = refused(text)
    given_values.pop("reason", None)
    assert (found, given_values) == (code, values)


def test_the_repeated_key_of_many_is_found_in_one_pass() -> None:
    # Comparing each of a million keys with all others would take hours.
    keys = [f"k{number}" for number in range(1_000_000)]
    text = "{" + ",".join(f'"{key}":0' for key in (*keys, "k999999")) + "}"
    assert refused(text) == ("key-twice", {"key": "k999999"})


def test_brackets_in_texts_and_side_by_side_are_not_depth() -> None:
    text = json.dumps(["[[[[[[[[[[", [], [], [], [], [], [], [], {}])
    assert decode(text, DECODER, 2) == json.loads(text)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_any_document_is_read_as_it_was_written(document: Any) -> None:
    assert decode(json.dumps(document, allow_nan=False), DECODER, 64) == document


def test_callers_convert_numbers_and_keys() -> None:
    decoder = json_decoder(integer=str, real=str, key=str.upper)
    assert decode('{"a": [1, 1.50, 2e3]}', decoder, 8) == {"A": ["1", "1.50", "2e3"]}
    with pytest.raises(NotStrict, match="key-twice"):
        decode('{"a": 1, "A": 2}', decoder, 8)
