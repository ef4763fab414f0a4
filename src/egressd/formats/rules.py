"""Import rows of routing rules: ``IP,target,comment``."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.formats.rows import Accepted, BadRow, Unreadable, each_row, fields
from egressd.model.drafts import RuleDraft


def parse_rules(text: str) -> Iterator[Accepted[RuleDraft] | BadRow]:
    """The rules of `text`. The comment may be missing, and may hold commas without quotes.

    Whether the address and the target are fine is not looked at.
    """
    return each_row(text, _draft)


def _draft(row: str) -> RuleDraft:
    ip, target, comment, *_ = [*fields(row, most=3), "", ""]
    if not ip or not target:
        raise Unreadable("a rule is IP,target,comment")
    return RuleDraft(ip=ip, target_node=target, comment=comment)
