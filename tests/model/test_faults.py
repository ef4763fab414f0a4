"""Faults: their fields and pointers. Each code in the sources has a sentence."""

from __future__ import annotations

import ast
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.model.errors import Invalid
from egressd.model.faults import Fault, Step, fault, in_words, takes
from egressd.model.sentences import SENTENCES
from egressd.model.wording import say

SOURCES = Path(__file__).resolve().parents[2] / "src" / "egressd"
MAKERS = {"fault": 1, "Misfit": 0, "form": 0, "Unreadable": 0, "_Refused": 0, "_Bad": 0}
"""The functions and classes that make faults, and the place of the code among their arguments."""


@pytest.mark.parametrize(
    ("path", "field", "pointer"),
    [
        ((), "body", ""),
        (("ip",), "ip", "/ip"),
        (("items", 2, "name"), "items[2].name", "/items/2/name"),
        (("config_json", "a/b~"), "config_json.a/b~", "/config_json/a~1b~0"),
    ],
)
def test_a_field_is_spelled_for_people_and_as_a_pointer(
    path: tuple[Step, ...], field: str, pointer: str
) -> None:
    made = Fault(path, "empty")
    assert (made.field, made.pointer, str(made)) == (field, pointer, f"{field} must not be empty")


def test_a_sentence_that_names_its_field_may_become_a_fault() -> None:
    said = say("empty", field="username")
    error = Invalid(said)
    assert (str(error), error.problems, error.sentence) == (said, (said,), said)
    assert error.sentence.code == "empty"


def test_a_fault_is_moved_to_another_field_and_into_what_holds_it() -> None:
    made = fault("ws-opts.path", "http-path")
    assert made.path == ("ws-opts", "path")
    assert made.at("path").path == ("path",)
    assert made.inside("config_json").field == "config_json.ws-opts.path"
    assert made.inside("config_json").code == "http-path"


def test_lists_are_written_with_commas_and_braces_as_they_are() -> None:
    assert str(fault("type", "one-of", choices=("{a}", "b"))) == "type must be one of {a}, b"


def test_an_error_has_all_faults_and_one_text() -> None:
    error = Invalid(fault("ip", "ipv4-or-cidr"), "{not} a fault")
    assert error.faults == (fault("ip", "ipv4-or-cidr"), in_words("{not} a fault"))
    assert str(error) == "ip must be an IPv4 address or a CIDR without host bits; {not} a fault"
    assert hash(error.faults[0]) == hash(fault("ip", "ipv4-or-cidr"))


def test_the_values_that_a_field_takes_end_the_sentence() -> None:
    assert takes("whole-number", least=1, most=9) == "a whole number from 1 to 9"


def _made() -> Iterator[tuple[str, str, str, set[str]]]:
    """Yield place, maker, code and the names of the values of each fault that is spelled out."""
    for file in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            at = MAKERS.get(node.func.id)
            if at is None or len(node.args) <= at:
                continue
            argument = node.args[at]
            if not isinstance(argument, ast.Constant):
                continue
            code, names = str(argument.value), {word.arg or "**" for word in node.keywords}
            is_text = node.func.id == "Unreadable" and file.parts[-2] != "api"
            if not is_text:  # the rows of imports have an error of that name, with a text
                yield f"{file.relative_to(SOURCES)}:{node.lineno}", node.func.id, code, names


def test_every_fault_that_is_made_has_a_sentence_and_its_values() -> None:
    made = list(_made())
    assert len(made) > 100
    for place, maker, code, names in made:
        assert code in SENTENCES, place
        wanted = {name for _, name, _, _ in string.Formatter().parse(SENTENCES[code]) if name}
        wanted.discard("field")
        if maker == "_Bad":
            names |= {"entry"}
        if maker == "Unreadable":
            names -= {"field"}
        assert "**" in names or wanted == names, place
