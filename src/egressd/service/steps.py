"""A change that is ready to be stored and put in force, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from egressd.model.bounds import ROWS_MAX
from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.plan import Change
from egressd.model.undo import LoggedChange, Reversal, reversals, summary
from egressd.model.wording import Sentence, say, together
from egressd.service.authorship import Author
from egressd.service.change_warnings import consequences
from egressd.service.whitelist_count import counted

PlanChange = Callable[[DesiredState, DesiredState, Sequence[Edit]], Change]
"""A function of the state before, the state after, and the edits that lead from one to the
other."""

_THINGS: Final = {
    "nodes": "nodes",
    "rules": "rules",
    "lines": "VPN lines",
    "services": "proxy services",
    "alert_channels": "alert channels",
    "groups": "groups",
    "subscriptions": "subscriptions",
}


class LedgerStep(msgspec.Struct, frozen=True):
    """The next revision of the state, and the way to it."""

    before: DesiredState
    after: DesiredState
    edits: list[Edit]
    change: Change
    notes: tuple[Sentence, ...]
    text: Sentence
    """The effect in short."""
    reversals: list[Reversal]

    @classmethod
    def of(cls, before: DesiredState, edits: list[Edit], plan_change: PlanChange) -> LedgerStep:
        """Return the step that `edits` make from `before`. Raises Invalid for too many rows."""
        revision = before.revision + 1
        after = before.with_edits(edits, revision)
        if count := counted(before, after, edits):
            edits = [*edits, *count]
            after = after.with_edits(count, revision)
        _refuse_crowds(before, after)
        return cls(
            before,
            after,
            edits,
            plan_change(before, after, edits),
            consequences(before, after, edits),
            together(summary(before, edits)),
            reversals(before, edits),
        )

    def logged(
        self, author: Author, at: str, *, undoes: int | None, ends_trial: bool
    ) -> LoggedChange:
        """Return the step as it is stored in the log of changes."""
        text = self.text
        if undoes is not None:
            text = say("change-undone", revision=undoes, text=text)
        elif ends_trial:
            text = say("trial-ended", text=text)
        return LoggedChange(
            at=at,
            who=author.who,
            source=author.source,
            what=author.what,
            text=text,
            reversals=self.reversals,
            undoes=undoes,
            ends_trial=ends_trial,
        )


def _refuse_crowds(before: DesiredState, after: DesiredState) -> None:
    """Raise Invalid for more rows of a kind than a backup may hold: it could not be restored."""
    for table, things in _THINGS.items():
        number = len(getattr(after, table))
        if number > max(ROWS_MAX, len(getattr(before, table))):
            raise Invalid(fault("", "too-many-rows", most=ROWS_MAX, things=things, number=number))
