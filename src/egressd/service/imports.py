"""Imports: the result of their rows, and the changes that they make."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import IMPORT_ERRORS_SHOWN, BadRow, ImportOutcome, Outcome
from egressd.model.wording import Sentence, say
from egressd.service.import_fates import Fates
from egressd.service.ledger import Ledger, Proposal

PREVIEW_ERRORS = 1000
"""Bad rows that a preview reports at most."""


class Tally:
    """Counts the rows of one import, or of its preview, as they are accepted or skipped."""

    def __init__(self, is_preview: bool = False) -> None:
        self._shown = PREVIEW_ERRORS if is_preview else IMPORT_ERRORS_SHOWN
        self.imported = 0
        self._already_there = 0
        self._bad = 0
        self._bad_rows: list[BadRow] = []
        self._notes: list[Sentence] = []
        self._more_notes = 0
        self._kinds_of_notes: set[str] = set()
        self.fates = Fates(PREVIEW_ERRORS if is_preview else 0)
        self.removed: tuple[str, ...] = ()
        """The names of objects that are removed."""

    @property
    def found_only_bad_rows(self) -> bool:
        """True if there were rows and none of them could be used.

        An import that replaces everything then changes nothing: the text was no import.
        """
        return self._bad > 0 and self.imported == 0

    def already_there(self) -> None:
        """Count a row whose name exists already, or occurs in an earlier row."""
        self._already_there += 1

    def bad(self, row: BadRow) -> None:
        """Count a row that cannot be used. The first reasons are kept."""
        self._bad += 1
        if self._bad <= self._shown:
            self._bad_rows.append(row)

    def note(self, line: int, text: Sentence) -> None:
        """Note that part of an accepted row has no effect, or was changed. The first notes are
        kept.
        """
        if len(self._kinds_of_notes) < 2:
            self._kinds_of_notes.add(text)
        if len(self._notes) < self._shown:
            self._notes.append(say("of-row", line=line, note=text))
        else:
            self._more_notes += 1

    def outcome(self, *notes: Sentence) -> ImportOutcome:
        """Return the counts so far, and `notes` after those of single rows."""
        is_same = len(self._kinds_of_notes) == 1
        code = "same-for-more" if is_same else "notes-on-more"
        more = (say(code, n=self._more_notes),) if self._more_notes else ()
        return ImportOutcome(
            imported=self.imported,
            skipped=self._already_there + self._bad,
            error_count=self._bad,
            bad_rows=tuple(self._bad_rows),
            notes=(*self._notes, *more, *notes),
            fates=self.fates.found,
            removed=self.removed,
        )


def proposed(
    tally: Tally, edits: list[Edit], stale: Iterable[Edit] | None = None
) -> Proposal[ImportOutcome]:
    """Return the proposal of an import: `edits`, after `stale` if it replaces everything."""
    if stale is None:
        return Proposal(edits, tally.outcome())
    if tally.found_only_bad_rows:
        tally.removed = ()
        return Proposal([], tally.outcome(say("nothing-replaced")))
    return Proposal([*stale, *edits], tally.outcome())


async def carry_out(
    ledger: Ledger, build: Callable[[DesiredState], Proposal[ImportOutcome]], *, preview: bool
) -> ImportOutcome:
    """Make the import that `build` proposes. Return its counts, and the notes on the change. With
    `preview`, return its counts only, and change nothing. Raises Failed.
    """
    if preview:
        outcome = Outcome(await ledger.preview(build))
    else:
        outcome = await ledger.change(build, is_large=True)
    value = outcome.value
    return msgspec.structs.replace(value, notes=(*value.notes, *outcome.notes))
