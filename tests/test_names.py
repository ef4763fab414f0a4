"""Names: a search for a class finds one place, and a test's name says what is asserted."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
SOURCES: Final = TESTS.parent / "src" / "egressd"
LENGTH_MAX: Final = 69
"""Characters of a test's name."""
NO_SUBJECT: Final = re.compile(
    r"test_(p\d_)*(what|whether|how|who|where|why|which|when)_|_(nobody|somebody|everybody|told)(_|$)"
)
"""Names that leave open what is asserted."""


def places_by_class() -> dict[str, list[str]]:
    """Return the modules of egressd that define each public class. The lab has its own names."""
    found = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                found[statement.name].append(str(path.relative_to(SOURCES)))
    return found


def test_public_class_names_are_unique() -> None:
    places = places_by_class()
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_names_of_tests_are_short_and_have_a_subject() -> None:
    names = {
        node.name: path.relative_to(TESTS)
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }
    assert len(names) > 1000
    assert [f"{names[name]}: {name}" for name in names if len(name) > LENGTH_MAX] == []
    assert [f"{names[name]}: {name}" for name in names if NO_SUBJECT.search(name)] == []
