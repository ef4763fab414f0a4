"""Errors to HTTP, in one place.

| error | status |
|---|---|
| a body or parameter that does not fit its schema, `Invalid` | 400 |
| `Missing`, `OverQuota`: a business failure | 200 with ``error``; 404, 409 as a problem document |
| the same of an endpoint that `has_statuses` | 404, 409 |
| `Invalid` of such a one, if only because something else has the name, address or port | 409 |
| `AlreadyThere`, `Obstructed`: something stands in the way | 409 |
| `Outdated`: ``If-Match`` names another version | 412 |
| `TooOften`: it may be asked for again after ``Retry-After`` | 429 |
| `Failed`: the store or the data plane | 500 |
| `Unconfirmed`: the store cannot tell | none: the connection is closed |
| anything else | 500, and a traceback in the log |
"""

from __future__ import annotations

from typing import Final

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from egressd.api.endpoints import FoundEndpoint
from egressd.api.intake import UnreadableBody
from egressd.api.negotiation import wants_codes
from egressd.api.problems import Problems
from egressd.api.protocol import CONNECTION
from egressd.api.refusals import refusal
from egressd.model.errors import (
    AlreadyThere,
    Failed,
    Invalid,
    Missing,
    Obstructed,
    Outdated,
    OverQuota,
    TooOften,
    Unconfirmed,
    told,
)

log = structlog.get_logger()

_TAKEN: Final = frozenset({"rule-exists", "name-taken", "name-looks-taken", "port-in-use"})
"""The faults of fields that something else has already."""


def install(app: FastAPI, problems: Problems) -> None:
    """Give `app` its handlers."""

    async def misfit(request: Request, error: RequestValidationError) -> Response:
        found = FoundEndpoint.of(request.scope)
        assert found is not None
        faults = problems.faults(request.method, found.endpoint.path, error.errors())
        return refusal(request.scope, told(faults), 400, faults)

    async def unreadable(request: Request, error: HTTPException) -> Response:
        faults = error.faults if isinstance(error, UnreadableBody) else ()
        return refusal(request.scope, error.detail, error.status_code, faults)

    async def invalid(request: Request, error: Invalid) -> Response:
        found = FoundEndpoint.of(request.scope)
        is_taken = all(each.code in _TAKEN for each in error.faults)
        has_statuses = found is not None and found.endpoint.has_statuses
        status = 409 if is_taken and has_statuses else 400
        return refusal(request.scope, str(error), status, error.faults)

    async def refused(request: Request, error: Missing | OverQuota) -> Response:
        # Status 200 is the API's own word for it, which a problem document cannot have.
        status = 404 if isinstance(error, Missing) else 409
        found = FoundEndpoint.of(request.scope)
        has_statuses = found is not None and found.endpoint.has_statuses
        status = status if has_statuses or wants_codes(request.scope) else 200
        return refusal(request.scope, str(error), status, error.faults)

    async def conflicting(request: Request, error: AlreadyThere | Obstructed) -> Response:
        return refusal(request.scope, str(error), 409, error.faults)

    async def outdated(request: Request, error: Outdated) -> Response:
        return refusal(request.scope, str(error), 412, error.faults)

    async def hurried(request: Request, error: TooOften) -> Response:
        response = refusal(request.scope, str(error), 429, error.faults)
        response.headers["retry-after"] = str(error.again_s)
        return response

    async def broken_off(request: Request, error: ClientDisconnect) -> Response:
        # The client has gone: this is for the log.
        return refusal(request.scope, "the body did not arrive", 400)

    async def failed(request: Request, error: Failed) -> Response:
        return refusal(request.scope, str(error), 500)

    async def unconfirmed(request: Request, error: Unconfirmed) -> Response:
        # No answer says that the change may have been made; a 500 says that it was not.
        log.error("a change may be stored or not", error=str(error))
        if connection := request.scope.get(CONNECTION):
            connection.abort()
        return refusal(request.scope, str(error), 500)

    async def unforeseen(request: Request, error: Exception) -> Response:
        return internal_error(request.scope)

    app.add_exception_handler(RequestValidationError, misfit)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, unreadable)  # type: ignore[arg-type]
    app.add_exception_handler(Invalid, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(Missing, refused)  # type: ignore[arg-type]
    app.add_exception_handler(OverQuota, refused)  # type: ignore[arg-type]
    app.add_exception_handler(AlreadyThere, conflicting)  # type: ignore[arg-type]
    app.add_exception_handler(Obstructed, conflicting)  # type: ignore[arg-type]
    app.add_exception_handler(Outdated, outdated)  # type: ignore[arg-type]
    app.add_exception_handler(TooOften, hurried)  # type: ignore[arg-type]
    app.add_exception_handler(Failed, failed)  # type: ignore[arg-type]
    app.add_exception_handler(Unconfirmed, unconfirmed)  # type: ignore[arg-type]
    app.add_exception_handler(ClientDisconnect, broken_off)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, unforeseen)


def internal_error(scope: Scope) -> Response:
    """The answer to a request that went wrong unforeseen; the log has the rest by its id."""
    return refusal(scope, "internal error: the log has it under the request's id", 500)
