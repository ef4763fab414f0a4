"""The names of classes: a search for one finds one place."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[1] / "src" / "egressd"


def places_by_class() -> dict[str, list[str]]:
    """Return the modules that define each public class. The lab is apart."""
    found = defaultdict(list)
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES)
        if place.parts[0] != "lab":
            for statement in ast.parse(path.read_text()).body:
                if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    found[statement.name].append(str(place))
    return found


def test_public_class_names_are_unique() -> None:
    places = places_by_class()
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
