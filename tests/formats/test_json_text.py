"""Strict JSON: everything that two readers could understand differently is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.formats.json_text import read_object, write_object
from egressd.model.bounds import CONFIG_MAX
from egressd.model.errors import Invalid
from egressd.model.names import has_control_characters


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "config must be a JSON object: Expecting value at line 1 column 1"),
        ("[]", "config must be a JSON object"),
        ('"a"', "config must be a JSON object"),
        ('{"a": 1, "a": 2}', "config must not hold the key 'a' twice"),
        ('{"o": {"a": 1, "a": 1}}', "config must not hold the key 'a' twice"),
        ('{"a": NaN}', "config must not hold the number NaN"),
        ('{"a": -Infinity}', "config must not hold the number -Infinity"),
        ('{"a": 1e999}', "config must not hold a number too large"),
        ('{"a": ' + "9" * 5000 + "}", "config must not hold a number too large"),
        ('{"a": ' + "[" * 8 + "]" * 8 + "}", "config must not be nested over 8 deep"),
        ("[" * 60_000, "config must not be nested over 8 deep"),
        ('{"a": "' + "x" * CONFIG_MAX + '"}', f"config must not be over {CONFIG_MAX} bytes"),
        ('{"a": "' + "é" * (CONFIG_MAX // 2) + '"}', f"config must not be over {CONFIG_MAX} bytes"),
        ('{"a": "b\\nc"}', "config.a must not contain control characters"),
        ('{"a": ["\\u0000"]}', "config.a[0] must not contain control characters"),
        ('{"a": {"b": "\\ud800"}}', "config.a.b must not contain control characters"),
        ('{"a\\u2028": 1}', "a key of config must not contain control characters"),
        ('{"a": 1} x', "config must be a JSON object: Extra data at line 1 column 10"),
    ],
)
def test_ambiguous_or_unsafe_json_is_refused(text: str, problem: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_object(text, "config")
    assert caught.value.problems == (problem,)


def test_brackets_in_strings_do_not_count_as_nesting() -> None:
    text = json.dumps({"a": "[" * 50 + '\\"' + "{" * 50})
    assert read_object(text, "config") == json.loads(text)


def test_every_invalid_string_is_reported() -> None:
    with pytest.raises(Invalid) as caught:
        read_object('{"a": "\\n", "b": ["x", "\\r"]}', "config")
    assert [p.split(" ")[0] for p in caught.value.problems] == ["config.a", "config.b[1]"]


texts = st.text(max_size=20).filter(lambda text: not has_control_characters(text))
leaves: st.SearchStrategy[object] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
objects = st.dictionaries(texts, leaves | st.lists(leaves) | st.dictionaries(texts, leaves))


@given(objects)
def test_written_objects_are_read_back(value: dict[str, object]) -> None:
    assert read_object(write_object(value), "config") == value
    assert list(read_object(write_object(value), "config")) == list(value)


@given(st.text() | st.text(alphabet='{}[]":,\\ \n1e-nullatrue', max_size=60))
def test_no_text_raises_anything_but_invalid(text: str) -> None:
    told: tuple[str, ...] = ("config",)
    try:
        read_object(text, "config")
    except Invalid as invalid:
        told = invalid.problems
    assert told
    assert all(problem.startswith(("config", "a key of config")) for problem in told)
