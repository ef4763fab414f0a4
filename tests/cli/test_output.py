"""What commands print comes back by an import."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from egressd.cli.output import write_rows
from egressd.formats.rows import fields, rows
from egressd.model.names import has_control_characters

TEXTS = (st.text(max_size=8) | st.text(alphabet='#", ;|\ufeffa', max_size=4)).filter(
    lambda text: not has_control_characters(text)
)


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=4), max_size=4))
def test_rows_are_read_as_they_were_written(given_rows: list[list[str]]) -> None:
    assert [fields(row.text) for row in rows(write_rows(given_rows))] == given_rows


def test_only_what_needs_quotes_has_them() -> None:
    row = ["#guest", "wan1", 1080, "a b#", " pass ", 'c"d', "a,b", ""]
    assert write_rows([row]) == '"#guest",wan1,1080,a b#," pass ","c""d","a,b",\n'
