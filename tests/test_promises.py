"""docs/promises.md names the tests of each promise: they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "promises.md").read_text()
PROMISES = re.findall(r"^\| (P\d) \|", TEXT, re.MULTILINE)


def test_promises_are_numbered_consecutively() -> None:
    assert [f"P{number}" for number in range(1, len(PROMISES) + 1)] == PROMISES


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:tests|script)/[^` ]*)", TEXT))))
def test_named_files_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_is_cited_by_tests(promise: str) -> None:
    cited = re.compile(rf"def test_(?:p\d_)*{promise.lower()}_|\b{promise}\b")
    files = [file for file in ROOT.glob("tests/**/test_*.py") if file != Path(__file__)]
    assert any(cited.search(file.read_text()) for file in files)
