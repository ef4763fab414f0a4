"""Errors to HTTP, in one place.

| error | status |
|---|---|
| a body or parameter that does not fit its schema, `Invalid` | 400 |
| `Missing`, `OverQuota`: a business failure | 200 with ``error`` |
| `Failed`: the store or the data plane | 500 |
| anything else | 500, and a traceback in the log |
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from egressd.api.endpoints import Found
from egressd.api.problems import Problems
from egressd.api.wire.answers import failure
from egressd.model.errors import Failed, Invalid, Missing, OverQuota, told


def install(app: FastAPI, problems: Problems) -> None:
    """Give `app` its handlers."""

    async def misfit(request: Request, error: RequestValidationError) -> Response:
        found = Found.of(request.scope)
        assert found is not None
        sentences = problems.sentences(request.method, found.endpoint.path, error.errors())
        return failure(told(sentences), 400)

    async def unreadable(_: Request, error: HTTPException) -> Response:
        return failure(error.detail, error.status_code)

    async def invalid(_: Request, error: Invalid) -> Response:
        return failure(str(error), 400)

    async def refused(_: Request, error: Missing | OverQuota) -> Response:
        return failure(str(error), 200)

    async def broken_off(_: Request, error: ClientDisconnect) -> Response:
        return failure("the body did not arrive", 400)  # for the log: nobody is there to read it

    async def failed(_: Request, error: Failed) -> Response:
        return failure(str(error), 500)

    async def unforeseen(_: Request, error: Exception) -> Response:
        return internal_error()

    app.add_exception_handler(RequestValidationError, misfit)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, unreadable)  # type: ignore[arg-type]
    app.add_exception_handler(Invalid, invalid)  # type: ignore[arg-type]
    app.add_exception_handler(Missing, refused)  # type: ignore[arg-type]
    app.add_exception_handler(OverQuota, refused)  # type: ignore[arg-type]
    app.add_exception_handler(Failed, failed)  # type: ignore[arg-type]
    app.add_exception_handler(ClientDisconnect, broken_off)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, unforeseen)


def internal_error() -> Response:
    """The answer to a request that went wrong unforeseen; the log has the rest by its id."""
    return failure("internal error: the log has it under the request's id", 500)
