"""The answers to changes, which are the same for all resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from starlette.responses import Response

from egressd.api.wire.answers import Deleted, Imported, SaidId, Updated, reply
from egressd.model.drafts import ImportOutcome, Outcome
from egressd.model.wording import Sentence, say, together

_REASONS_SAID: Final = 3
"""Reasons of an import in the text `msg`."""


class Named(Protocol):
    """A row with an id and a name."""

    @property
    def id(self) -> int:
        """The number of the row, from 1."""

    @property
    def name(self) -> str:
        """The name that operators gave it."""


def created(thing: str, outcome: Outcome[Named]) -> Response:
    """Respond to a request that created a row; `thing` is the word for it."""
    return _said("created", thing, outcome)


def saved(thing: str, outcome: Outcome[Named]) -> Response:
    """Respond to a request that replaced a row."""
    return _said("saved", thing, outcome)


def deleted(thing: str, outcome: Outcome[Named]) -> Response:
    """Respond to a request that deleted a row."""
    return _said("deleted", thing, outcome)


def many_deleted(thing: str, outcome: Outcome[int]) -> Response:
    """Respond to a request that deleted several rows."""
    return reply(Deleted(msg=_some("some-deleted", thing, outcome), deleted=outcome.value))


def many_updated(thing: str, outcome: Outcome[int]) -> Response:
    """Respond to a request that changed several rows."""
    return reply(Updated(msg=_some("some-updated", thing, outcome), updated=outcome.value))


def many_switched(thing: str, outcome: Outcome[int], is_enabled: bool) -> Response:
    """Respond to a request that enabled or disabled several rows."""
    return reply(Updated(msg=switched_many(thing, outcome, is_enabled), updated=outcome.value))


def imported(thing: str, outcome: ImportOutcome) -> Response:
    """Respond to an import that has no place for reasons but its message."""
    msg = import_done(thing, outcome, _REASONS_SAID)
    return reply(Imported(msg=msg, imported=outcome.imported, skipped=outcome.skipped))


def done(sentence: Sentence, notes: Sequence[Sentence] = ()) -> Sentence:
    """Return a message: what was done, then what the operator should know."""
    return together((sentence, *notes))


def switched(is_enabled: bool) -> str:
    """Return the end of the codes of sentences about an enabled or disabled row."""
    return "enabled" if is_enabled else "disabled"


def switched_many(thing: str, outcome: Outcome[int], is_enabled: bool) -> Sentence:
    """Return the message of a request that enabled or disabled several rows."""
    return _some(f"some-{switched(is_enabled)}", thing, outcome)


def updated_many(thing: str, outcome: Outcome[int]) -> Sentence:
    """Return the message of a request that changed several rows."""
    return _some("some-updated", thing, outcome)


def import_done(thing: str, outcome: ImportOutcome, reasons: int = 0) -> Sentence:
    """Return the message of an import, with so many of the first reasons for bad rows."""
    first = say("some-imported", n=outcome.imported, thing=thing, skipped=outcome.skipped)
    bad = (row.sentence for row in outcome.bad_rows[:reasons])
    return done(first, (*bad, *outcome.notes))


def _said(code: str, thing: str, outcome: Outcome[Named]) -> Response:
    row = outcome.value
    msg = done(say(code, thing=thing, name=row.name), outcome.notes)
    return reply(SaidId(msg=msg, id=row.id))


def _some(code: str, thing: str, outcome: Outcome[int]) -> Sentence:
    return done(say(code, n=outcome.value, thing=thing), outcome.notes)
