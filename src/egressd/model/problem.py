"""Answers to requests that were not carried out, as problem details for HTTP APIs (RFC 9457)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from egressd.model.faults import Fault
from egressd.model.wording import clean, coded_values

MEDIA_TYPE: Final = "application/problem+json"
ERRORS_MAX: Final = 100
"""Faults that one document lists, as many as the text of an answer."""

_NO_WEIGHT: Final = re.compile(r";\s*q\s*=\s*0(?:\.0*)?\s*(?:;|\Z)", re.IGNORECASE)
"""A weight that says "not acceptable" (RFC 9110, 12.4.2)."""


class ProblemError(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of a request."""

    pointer: Annotated[
        str,
        Meta(
            description="The field as a JSON pointer (RFC 6901) into the body, or into the "
            "parameters as one object. It continues inside of config_json, which is text. Empty "
            "for a fault of no single field."
        ),
    ]
    code: Annotated[str, Meta(description="The kind of the fault; a code stays the same.")]
    values: Annotated[
        dict[str, Any],
        Meta(
            description="The values that the sentence is about. One that is a sentence itself is "
            "an object with code, values and text."
        ),
    ]
    detail: Annotated[str, Meta(description="The fault as a sentence.")]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """The reason for which a request was not carried out (RFC 9457)."""

    type: str
    title: Annotated[str, Meta(description="The phrase of the status.")]
    status: int
    detail: Annotated[str, Meta(description="All faults as one text.")]
    errors: Annotated[tuple[ProblemError, ...], Meta(description=f"The first {ERRORS_MAX} faults.")]


def problem(status: int, detail: str, faults: Sequence[Fault] = ()) -> Problem:
    """Return the document for an answer of `status`."""
    return Problem(
        type="about:blank",  # the status says it all, and the errors' codes say the rest
        title=HTTPStatus(status).phrase,
        status=status,
        detail=clean(detail),
        errors=errors_of(faults),
    )


def errors_of(faults: Sequence[Fault]) -> tuple[ProblemError, ...]:
    """Return the first `ERRORS_MAX` of `faults` as documents have them."""
    return tuple(
        ProblemError(
            pointer=clean(fault.pointer),
            code=fault.code,
            values=coded_values(fault.values),
            detail=clean(str(fault)),
        )
        for fault in faults[:ERRORS_MAX]
    )


def is_asked_for(accept: Iterable[str]) -> bool:
    """Return True if a request's ``Accept`` headers name the media type; a wildcard does not."""
    return any(
        choice.partition(";")[0].strip().lower() == MEDIA_TYPE and not _NO_WEIGHT.search(choice)
        for header in accept
        for choice in header.split(",")
    )
