"""Rows that commands print can be imported again."""

from __future__ import annotations

import csv

from hypothesis import given
from hypothesis import strategies as st

from egressd.cli.output import write_rows
from egressd.formats.rows import fields, rows
from egressd.model.names import has_control_characters

FORMULAS = "=+-@\uff0b\uff0d\uff1d\uff20"
"""Characters with which a spreadsheet's formula begins; a tab and CR are refused in all fields."""
TEXTS = (
    st.text(max_size=8)
    | st.text(alphabet='#", ;|\ufeff\u200ba', max_size=4)
    | st.text(alphabet=f"'a;\"{FORMULAS}", max_size=4)
).filter(lambda text: not has_control_characters(text))


@given(st.lists(st.lists(TEXTS, min_size=2, max_size=4), max_size=4))
def test_written_rows_are_read_back(given_rows: list[list[str]]) -> None:
    assert [fields(row.text) for row in rows(write_rows(given_rows))] == given_rows


@given(st.lists(TEXTS, min_size=2, max_size=4))
def test_no_field_is_a_formula_for_a_spreadsheet(row: list[str]) -> None:
    (found,) = csv.reader([write_rows([row])])
    assert not any(field.startswith(tuple(FORMULAS)) for field in found)
    for field, plain in zip(found, row, strict=True):
        assert field.replace("'", "") == plain.replace("'", "")
    (found,) = csv.reader([write_rows([row])], delimiter=";")  # as some countries' programs read it
    assert not any(field.startswith(tuple(FORMULAS)) for field in found)


def test_an_apostrophe_disables_a_formula() -> None:
    row = ["=1+1", "'=1", "'a", "-", "a=", "+86", "@x", "\uff1d1", " =1", "a;=1;'+2;b;\"=3"]
    written = "'=1+1,''=1,'a,'-,a=,'+86,'@x,'\uff1d1,\" =1\",\"a;'=1;''+2;b;'\"\"=3\"\n"
    assert write_rows([row]) == written
    assert [fields(row.text) for row in rows(written)] == [row]


def test_only_fields_that_need_quotes_have_them() -> None:
    row = ["#guest", "wan1", 1080, "a b#", " pass ", 'c"d', "a,b", ""]
    assert write_rows([row]) == '"#guest",wan1,1080,a b#," pass ","c""d","a,b",\n'
