"""The table of reasons in ``docs/lines.md``, beside the sentences that are known."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from egressd.model.sentences import SENTENCES
from egressd.netd.lines import reasons
from egressd.netd.lines.failure import Cause

ROOT: Final = Path(__file__).resolve().parents[3]
ROOMS: Final = ("netd/lines", "planner/lines")


class Row(NamedTuple):
    """A row of the table."""

    state: str
    reason: str
    said: str
    does: str
    help: str


def table() -> list[Row]:
    """The rows of the table."""
    text = (ROOT / "docs" / "lines.md").read_text()
    section = text.partition("### Reasons")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return [Row(cells[0].strip(" `"), *(cell.strip() for cell in cells[1:])) for cells in rows]


@pytest.mark.parametrize("rule", [*reasons.PPP_LOG, *reasons.UNIT_LOG], ids=lambda r: r.code)
def test_each_sentence_that_is_known_stands_in_the_table(rule: reasons.LogRule) -> None:
    if rule.cause is not Cause.FAILED:
        mine = [row for row in table() if row.state == rule.cause.value]
        assert [row for row in mine if row.reason in SENTENCES[rule.code]]


def test_nothing_else_stands_in_the_table() -> None:
    said = [
        SENTENCES[node.value]
        for room in ROOMS
        for file in (ROOT / "src" / "egressd" / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in SENTENCES
    ]
    states = {cause.value for cause in Cause}
    for row in table():
        assert row.state in states
        assert any(row.reason in text for text in said), row.reason
        assert row.help
    texts = [row.reason for row in table()]
    assert len(texts) == len(set(texts))
