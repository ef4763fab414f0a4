"""Answers to requests that are not carried out: ``{"error": text}``, or a problem document.

``/svc/api/v1`` answers programs in the one shape of its specification, regardless of ``Accept``.
The operations endpoints, and v1 to the console's own page, answer with a problem document (RFC
9457) if the request's ``Accept`` header names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Scope

from egressd.api.wire.answers import failure, reply
from egressd.model.faults import Fault
from egressd.model.problem import MEDIA_TYPE, is_asked_for, problem

_MAY_ASK: Final = "egressd.may_ask_for_problems"


def let_ask(scope: Scope) -> None:
    """Let this request be answered with a problem document, if it asks for one."""
    scope[_MAY_ASK] = True


def wants_problem(scope: Scope) -> bool:
    """Return True if the request is to be answered with a problem document."""
    return bool(scope.get(_MAY_ASK)) and is_asked_for(Headers(scope=scope).getlist("accept"))


def refusal(scope: Scope, text: str, status: int, faults: Sequence[Fault] = ()) -> Response:
    """Return the answer to a request that is not carried out. `faults` are those in `text`."""
    if not wants_problem(scope):
        return failure(text, status)
    response = reply(problem(status, text, faults), status)
    response.headers["content-type"] = MEDIA_TYPE
    return response
