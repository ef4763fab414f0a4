"""The answer of a subscription's server: nodes in any form of an import, and fields of its head."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from egressd.formats.node_names import Names
from egressd.formats.nodes import parse_nodes
from egressd.formats.recognition import recognise_nodes
from egressd.formats.rows import Accepted
from egressd.model.drafts import BadRow, NodeDraft
from egressd.model.subscriptions import INTERVAL_S, AccountQuota
from egressd.model.times import utc_text

USERINFO: Final = "subscription-userinfo"
UPDATE_INTERVAL: Final = "profile-update-interval"
FIELDS: Final = (USERINFO, UPDATE_INTERVAL)
"""Names of the fields of the answer's head that are read."""

_PAIR: Final = re.compile(r"([a-z]+)\s*=\s*([0-9]{1,18})(?:\.[0-9]*)?(?:[eE]\+?([0-9]{1,2}))?")
_HOUR_S: Final = 3600
_BYTES_MAX: Final = 2**53 - 1
"""The largest number of bytes that is shown: every JSON parser reads it exactly (RFC 8259, 6)."""


def nodes_of(content: bytes) -> Iterator[Accepted[NodeDraft] | BadRow]:
    """Return the nodes of a list, each named as there, and the rows that are none. A name may be
    one that no node can have. Raises ValueError for content that is no text, Invalid for too much
    of it.
    """
    text = content.decode("utf-8-sig")
    return parse_nodes(recognise_nodes(text).type, text, names=Names(are_checked=False))


def quota_of(userinfo: str) -> AccountQuota:
    """Return the quota in a ``subscription-userinfo``, such as ``upload=1; download=2; total=3;
    expire=1767225600`` (bytes, and seconds of Unix time), as far as it can be read.
    """
    found = {
        name: int(digits) * 10 ** int(exponent or 0)
        for name, digits, exponent in _PAIR.findall(userinfo.lower())
    }
    used = [found[name] for name in ("upload", "download") if name in found]
    return AccountQuota(
        used=min(sum(used), _BYTES_MAX) if used else None,
        total=min(found["total"], _BYTES_MAX) if found.get("total") else None,
        expires_at=_time_of(found.get("expire", 0)),
    )


def interval_of(hours: str) -> int:
    """Return the seconds of a ``profile-update-interval`` in hours, an hour at least; 0 for none.

    A server that names new nodes each time uses up their ids, of which there are 2^26.
    """
    text = hours.strip()
    if not re.fullmatch(r"[0-9]{1,6}(?:\.[0-9]{1,6})?", text) or not float(text):
        return 0
    return min(max(round(float(text) * _HOUR_S), _HOUR_S), INTERVAL_S[1])


def _time_of(seconds: int) -> str | None:
    if not seconds:
        return None
    try:
        return utc_text(seconds)
    except (ValueError, OverflowError, OSError):
        return None
