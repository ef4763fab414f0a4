"""Import rows of routing rules: ``IP,target,comment``."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.formats.rows import Accepted, Unreadable, each_row, fields
from egressd.model.drafts import BadRow, RuleDraft


def parse_rules(text: str) -> Iterator[Accepted[RuleDraft] | BadRow]:
    """Return the rules of `text`. The comment may be missing, and may hold commas without quotes.

    The address and the target are not checked.
    """
    return each_row(text, _draft)


def _draft(row: str) -> RuleDraft:
    ip, target, comment, *_ = [*fields(row, most=3), "", ""]
    if not ip or not target:
        raise Unreadable("a rule is IP,target,comment")
    return RuleDraft(ip=ip, target_node=target, comment=comment)
