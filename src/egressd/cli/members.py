"""The list of a site's members, as commands print it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from egressd.cli.output import show_rows

_COLUMNS: Final = (
    "name",
    "role",
    "role_since",
    "version",
    "revision",
    "lag",
    "is_beating",
    "is_shut_out",
    "needs_lease",
)


def show_members(members: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print members; what is not known of one is left empty, and null in JSON."""
    rows = members
    if not as_json:
        rows = [{key: "" if row[key] is None else row[key] for key in row} for row in members]
    show_rows(rows, _COLUMNS, as_json)
