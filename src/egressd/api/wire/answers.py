"""The shapes of answers that several resources share, and how an answer is made.

Answers are msgspec structs, encoded at once: the same classes describe them in the OpenAPI
document, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from egressd.model.drafts import ImportOutcome

Message = Annotated[str, Meta(description="What was done, and what to know about it.")]

_encode = msgspec.json.Encoder().encode
_JSON = "application/json"
_REASONS_SAID = 3  # reasons of an import in the text `msg`
_UNCACHED = {"cache-control": "no-store"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all answers."""


class Error(Answer, frozen=True, kw_only=True):
    """The reason for which a request was not carried out."""

    error: str


class Said(Answer, frozen=True, kw_only=True):
    """It is stored, and in force."""

    msg: Message


class SaidId(Answer, frozen=True, kw_only=True):
    """It is stored, and in force."""

    msg: Message
    id: int


class Deleted(Answer, frozen=True, kw_only=True):
    """The number of rows that were deleted."""

    msg: Message
    deleted: int


class Updated(Answer, frozen=True, kw_only=True):
    """The number of rows that were updated."""

    msg: Message
    updated: int


class Imported(Answer, frozen=True, kw_only=True):
    """The result of an import."""

    msg: Message
    imported: Annotated[int, Meta(description="Rows that are new, or that updated something.")]
    skipped: Annotated[int, Meta(description="Rows that are bad, or there already.")]


def reply(answer: object, status: int = 200) -> Response:
    """`answer` as JSON."""
    return Response(_encode(answer), status, _UNCACHED, _JSON)


def failure(text: str, status: int) -> Response:
    """``{"error": text}``. What UTF-8 cannot hold is shown escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return reply(Error(error=text), status)


def said(text: str, notes: Sequence[str] = ()) -> str:
    """A message: what was done, then what the operator should know."""
    return "; ".join((text, *notes))


def counted(number: int, thing: str) -> str:
    """``1 rule``, ``2 rules``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def switched(is_enabled: bool) -> str:
    """The word for what a switch did."""
    return "enabled" if is_enabled else "disabled"


def import_said(thing: str, outcome: ImportOutcome, reasons: int = 0) -> str:
    """The message of an import; with so many of the first reasons for bad rows."""
    text = f"{counted(outcome.imported, thing)} imported, {outcome.skipped} skipped"
    return said(text, (*outcome.errors[:reasons], *outcome.notes))


def imported(thing: str, outcome: ImportOutcome) -> Imported:
    """The answer to an import that has no place for reasons but its message."""
    return Imported(
        msg=import_said(thing, outcome, _REASONS_SAID),
        imported=outcome.imported,
        skipped=outcome.skipped,
    )
