"""Edits as bytes, for the log of a site.

Each format has a number, which is stored with the bytes. A format is written only once every member
of the site reads it.
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
"""The newest format that this egressd reads, and the one that it writes."""

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

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, int | str, Any]])


def pack(edits: Sequence[Edit]) -> bytes:
    """Return the edits as bytes of the format `FORMAT`."""
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
