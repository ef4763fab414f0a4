"""The count of whitelists, which the epoch of clients' flows is made from.

It belongs to the state, so that a new netd, and any device with the same database, gives flows the
same epoch: a flow that one of them has decided is valid for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from egressd.model.desired import WHITELIST, DesiredState, Edit
from egressd.planner.compile import whitelist
from egressd.planner.registry import MARK_EPOCHS, epoch_of

_WITHOUT_EFFECT: Final = {"rules", "numbers"}
"""Tables that have no part in what is listed and where it is sent."""

_FIRST: Final = 1
"""The count of the whitelist that netd begins with; it is not stored."""


def counted(before: DesiredState, after: DesiredState, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edit that counts the whitelist of `after`, to which `edits` lead; none if listed
    traffic is the same as `before`, and leaves by the same target.
    """
    if {edit.table for edit in edits} <= _WITHOUT_EFFECT:
        return []
    if whitelist(before).same_entries(whitelist(after)):
        return []
    return [Edit("last_ids", WHITELIST, max(before.whitelist_count, _FIRST) + 1)]


def counted_as(state: DesiredState, epoch: int) -> list[Edit]:
    """Return the edit by which the whitelist has the epoch that netd gave it; none if it has.

    netd gives another epoch than the state's if the state has none yet, and if netd's whitelist
    before had the state's. 0 stands for an epoch that is not known.
    """
    count = max(state.whitelist_count, _FIRST)
    further = (epoch - epoch_of(count)) % (MARK_EPOCHS - 1) if epoch else 0
    return [Edit("last_ids", WHITELIST, count + further)] if further else []
