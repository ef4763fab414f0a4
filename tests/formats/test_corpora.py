"""Imports of texts in common shapes give the right nodes, notes and reasons."""

from __future__ import annotations

import pytest

from tests.support.nodes.corpora import CORPUS, Case, cases, imported

pytestmark = pytest.mark.usefixtures("new_engine")


@pytest.mark.parametrize("case", cases(), ids=str)
def test_imports_give_the_expected_nodes(case: Case) -> None:
    assert imported(case.text, case.import_type) == list(case.expected)


def test_the_corpus_is_read_completely() -> None:
    titles = sum(file.read_text().count("\n## ") + 1 for file in CORPUS.glob("*.txt"))
    assert len(cases()) == titles
    assert all(case.expected for case in cases())
