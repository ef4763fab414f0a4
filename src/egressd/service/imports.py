"""What became of an import's rows."""

from __future__ import annotations

import msgspec

from egressd.formats.rows import BadRow
from egressd.model.drafts import IMPORT_ERRORS_SHOWN, ImportOutcome, Outcome

PREVIEW_ERRORS = 1000
"""Bad rows that a preview tells."""


class Tally:
    """Counts the rows of one import, or of its preview, as they are taken in or passed over."""

    def __init__(self, is_preview: bool = False) -> None:
        self._shown = PREVIEW_ERRORS if is_preview else IMPORT_ERRORS_SHOWN
        self.imported = 0
        self._already_there = 0
        self._bad = 0
        self._errors: list[str] = []

    @property
    def found_only_bad_rows(self) -> bool:
        """Whether there were rows and none of them could be used.

        Then an import that replaces everything keeps what there is: the text was no import.
        """
        return self._bad > 0 and self.imported == 0

    def already_there(self) -> None:
        """A row names what exists, or what an earlier row named."""
        self._already_there += 1

    def bad(self, row: BadRow) -> None:
        """A row cannot be used. The first reasons are kept."""
        self._bad += 1
        if self._bad <= self._shown:
            self._errors.append(str(row))

    def outcome(self, *notes: str) -> ImportOutcome:
        """The counts so far."""
        return ImportOutcome(
            imported=self.imported,
            skipped=self._already_there + self._bad,
            error_count=self._bad,
            errors=tuple(self._errors),
            notes=notes,
        )


KEPT = "nothing was replaced, since no row could be used"


def imported(outcome: Outcome[ImportOutcome]) -> ImportOutcome:
    """The answer to an import: its counts, and the notes on the change that it made."""
    value = outcome.value
    return msgspec.structs.replace(value, notes=(*value.notes, *outcome.notes))
