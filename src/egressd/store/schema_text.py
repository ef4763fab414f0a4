"""A database's schema as text, in one normal form, so that two can be compared."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z0-9_]+|[^ \t\n\f\rA-Za-z0-9_]"""
)
"""A literal, an identifier in quotes, a word or number, or a sign (sqlite.org/lang_keywords.html).
White space is SQLite's own definition; other Unicode spaces are part of identifiers."""

Schema = dict[tuple[str, str], tuple[str, str]]
"""Type and name of each object -> the table that it belongs to, and its normal text; an index that
a constraint makes has none."""


def schema_of(connection: sqlite3.Connection) -> Schema:
    """Return all tables, indices, views and triggers of a database.

    Only the table of the schema itself is read, which no statement in it can have replaced.
    """
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    return {
        (str(kind), str(name)): (str(table), "" if sql is None else normal(str(sql)))
        for kind, name, table, sql in connection.execute(query)
    }


def normal(sql: str) -> str:
    """Return a statement with single spaces between its tokens: versions of SQLAlchemy differ only
    in white space.
    """
    return " ".join(_TOKEN.findall(sql))


def first_difference(found: Schema, wanted: Schema) -> str:
    """Return in plain words the object that only one of `found` and `wanted` has, or that
    differs.
    """
    for (kind, name), content in found.items():
        if wanted.get((kind, name)) != content:
            return f"the {kind} {name[:60]!r} is none of egressd's"
    kind, name = max(wanted.keys() - found.keys())  # a table's name says more than an index's
    return f"the {kind} {name!r} is missing"
