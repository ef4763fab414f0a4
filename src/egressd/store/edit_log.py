"""Edits as bytes, for the log of a site.

Each format has a number, which is stored with the bytes. Edits are written in the oldest format
that has all of them, so that members of an older egressd follow what they know. `SiteDatabase`
writes no edits that a member of the site could not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from egressd.model.desired import Edit
from egressd.model.nouns import (
    AlertChannel,
    Line,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)

FORMAT: Final = 4
"""The newest format that this egressd reads."""

_AFTER: Final[dict[str, Any]] = {
    "nodes": Node,
    "rules": Rule,
    "lines": Line,
    "services": ProxyService,
    "alert_channels": AlertChannel,
    "groups": TargetGroup,
    "subscriptions": Subscription,
    "whitelist": Whitelist,
    "settings": Settings,
    "numbers": int,
    "last_ids": int,
}
"""`Edit.table` -> the type of `Edit.after`."""
TABLES: Final = frozenset(_AFTER)
"""Every `Edit.table`."""
_SINCE: Final = {
    "rules": 2,
    "alert_channels": 2,
    "settings": 2,
    "groups": 4,
    "nodes": 4,
    "subscriptions": 4,
}
"""`Edit.table` -> the format since which its rows have the fields of now; 1 for the others. An
egressd that reads an earlier one would drop a field, so a new field is a new format."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, int | str, Any]])


def format_of(edits: Sequence[Edit]) -> int:
    """Return the oldest format that has all of the edits, which is that of their bytes."""
    return max((_SINCE.get(edit.table, 1) for edit in edits), default=1)


def pack(edits: Sequence[Edit]) -> bytes:
    """Return the edits as bytes."""
    return _encoder.encode([(edit.table, edit.key, edit.after) for edit in edits])


def unpack(content: bytes) -> list[Edit]:
    """Return the edits in bytes of a format up to `FORMAT`: an earlier one has fewer tables. Raises
    ValueError for others.
    """
    edits: list[Edit] = []
    for table, key, after in _decoder.decode(content):
        edits.append(Edit(table, key, row_of(table, after)))
    return edits


def row_of(table: str, fields: Any) -> Any:
    """Return a row of a table with these fields; None for None. Raises ValueError."""
    if table not in _AFTER:
        raise ValueError(f"no such table: {table}")
    return None if fields is None else msgspec.convert(fields, _AFTER[table])
