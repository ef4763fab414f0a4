"""The table of reasons in ``docs/lines.md``, beside what daemons of two releases have logged."""

from __future__ import annotations

import ast
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from egressd.netd.lines import diagnosis, reasons
from egressd.netd.lines.failure import Cause
from tests.netd.lines.test_diagnosis import DIAL

ROOT: Final = Path(__file__).resolve().parents[3]
SAID: Final = Path(__file__).with_name("said")
"""Logs of daemons in tests/vm/inside/oddities.py, by release."""
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


class Said(msgspec.Struct):
    """The logs of a line, and the state and reason that it had."""

    kind: str
    server: str
    state: str
    reason: str
    ppp: str
    daemon: str


def said(release: str) -> list[Said]:
    """Return the logs of a release."""
    return msgspec.json.decode((SAID / f"{release}.json").read_bytes(), type=list[Said])


RELEASES: Final = [file.stem for file in sorted(SAID.glob("*.json"))]
EVERY: Final = [
    pytest.param(each, id=f"{release}: {each.reason[:60]}")
    for release in RELEASES
    for each in said(release)
]


def test_both_releases_have_been_listened_to() -> None:
    assert RELEASES == ["bookworm", "trixie"]


@pytest.mark.parametrize("each", EVERY)
def test_what_was_said_is_told_and_stands_in_the_table(each: Said) -> None:
    line = msgspec.structs.replace(
        DIAL.line, type=each.kind, name=f"{each.kind}_1", port=1723 if each.kind == "pptp" else 1701
    )
    dial = msgspec.structs.replace(DIAL, line=line, server=IPv4Address(each.server))
    found = diagnosis.verdict(dial, was_online=False, ppp_log=each.ppp, daemon_log=each.daemon)
    assert (found.cause.value, str(found)) == (each.state, each.reason)
    assert [row for row in table() if row.state == each.state and row.reason in each.reason]


@pytest.mark.parametrize("rule", [*reasons.PPP_LOG, *reasons.UNIT_LOG], ids=lambda r: r.reason)
def test_each_sentence_that_is_known_stands_in_the_table(rule: reasons.Rule) -> None:
    if rule.cause is not Cause.FAILED:
        mine = [row for row in table() if row.state == rule.cause.value]
        assert [row for row in mine if row.reason in rule.reason]


def test_nothing_else_stands_in_the_table() -> None:
    said = [
        node.value
        for room in ROOMS
        for file in (ROOT / "src" / "egressd" / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    states = {cause.value for cause in Cause}
    for row in table():
        assert row.state in states
        assert any(row.reason in text for text in said), row.reason
        assert row.help
    texts = [row.reason for row in table()]
    assert len(texts) == len(set(texts))
