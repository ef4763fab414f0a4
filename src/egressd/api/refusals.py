"""Answers to requests that are not carried out: ``{"error": text}``, or a problem document."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response
from starlette.types import Scope

from egressd.api.negotiation import wants_codes
from egressd.api.wire.answers import failure, reply
from egressd.model.faults import Fault
from egressd.model.problem import MEDIA_TYPE, problem


def refusal(scope: Scope, text: str, status: int, faults: Sequence[Fault] = ()) -> Response:
    """Return the answer to a request that is not carried out. `faults` are those in `text`."""
    if not wants_codes(scope):
        return failure(text, status)
    response = reply(problem(status, text, faults), status)
    response.headers["content-type"] = MEDIA_TYPE
    return response
