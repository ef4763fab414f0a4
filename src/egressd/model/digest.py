"""The digest of a state, by which two boxes find out whether they have the same one."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from egressd.model.desired import DesiredState

_TABLES: Final = (
    "nodes",
    "rules",
    "lines",
    "services",
    "alert_channels",
    "groups",
    "subscriptions",
    "numbers",
    "last_ids",
)
_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")


def digest(state: DesiredState) -> bytes:
    """Return the SHA-256 of all that the operator asked for, and of its revision.

    The indexes, which follow from the rest, are left out. Costs O(n log n).
    """
    found = hashlib.sha256(_ENCODER.encode((state.revision, state.whitelist, state.settings)))
    for name in _TABLES:
        rows = getattr(state, name)
        for key in sorted(rows):
            found.update(_ENCODER.encode((name, key, rows[key])))
    return found.digest()
