"""Golden files, and the parts of documents that the code writes.

After a wanted change ``.venv/bin/python -m tests.golden`` writes all of them again: the change of
the files is then part of the commit, and shows what the change does.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import PAIRS, PROGRAMS, RULESETS, files

ROOT = Path(__file__).parents[1]
FILES = {str(path.relative_to(ROOT)): text for path, text in files().items()}


@pytest.mark.parametrize("name", FILES)
def test_a_golden_file_equals_the_generated_text(name: str) -> None:
    assert (ROOT / name).read_text() == FILES[name], "see the docstring of this file"


def test_each_golden_file_is_generated() -> None:
    there = {
        str(path.relative_to(ROOT)) for of in (RULESETS, PROGRAMS, PAIRS) for path in of.iterdir()
    }
    assert there <= FILES.keys()
