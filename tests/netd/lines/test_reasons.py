"""The table of reasons in ``docs/lines.md``, beside the sentences that are known."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from egressd.model.sentences import SENTENCES
from egressd.netd.lines import reasons
from egressd.netd.lines.failure import Cause
from tests.netd.lines.documented import ROOT, table

ROOMS: Final = ("netd/lines", "planner/lines")


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
    states = {cause.value for cause in Cause} | {"standby"}
    for row in table():
        assert row.state in states
        assert any(row.reason in text for text in said), row.reason
        assert row.help
    texts = [row.reason for row in table()]
    assert len(texts) == len(set(texts))
