"""JSON in and out of the console's own endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from egressd.console.session_auth import header
from egressd.model import strict_json
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.problem import MEDIA_TYPE, is_asked_for, problem
from egressd.model.strict_json import NotStrict
from egressd.model.wording import as_text

T = TypeVar("T")

JSON: Final = "application/json"
_BODY_MAX: Final = 16 * 1024
_TIMEOUT_S: Final = 10.0
_DEPTH_MAX: Final = 2
_DECODER: Final = strict_json.json_decoder()
_UNCACHED: Final = {"cache-control": "no-store"}


def reply(answer: object, status: int = 200) -> Response:
    """Return `answer` as JSON."""
    return Response(msgspec.json.encode(answer, enc_hook=as_text), status, _UNCACHED, JSON)


def failure(
    scope: Scope, text: str, status: int, faults: Sequence[Fault] = (), **more: object
) -> Response:
    """Return ``{"error": text}`` with `more`, or a problem document if the request asks for one.
    `faults` are those in `text`.
    """
    if not is_asked_for(Headers(scope=scope).getlist("accept")):
        return reply({"error": text, **more}, status)
    response = reply(problem(status, text, faults), status)
    response.headers["content-type"] = MEDIA_TYPE
    return response


async def json_body(request: Request, shape: type[T]) -> T:
    """Return the request's JSON document. Raises Invalid."""
    content = await body(request, JSON, _BODY_MAX)
    try:
        document = msgspec.json.decode(content, type=shape)
        # Of a key that is given twice msgspec takes the last.
        strict_json.decode(content.decode(), _DECODER, _DEPTH_MAX)
    except msgspec.ValidationError as error:
        raise Invalid(fault("", "body-misfit", reason=str(error))) from error
    except (NotStrict, msgspec.DecodeError, UnicodeDecodeError):
        raise Invalid(fault("", "body-json")) from None
    return document


async def body(request: Request, media_type: str, size_max: int) -> bytes:
    """Return the request's body, of at most `size_max` bytes. Raises Invalid."""
    kind = header(request.scope, b"content-type") or ""
    if kind.partition(";")[0].strip().lower() != media_type:
        raise Invalid(fault("", "content-type-only", media_type=media_type))
    content = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > size_max:
                    raise Invalid(fault("", "body-size", most=size_max))
    except TimeoutError:
        raise Invalid(fault("", "body-late", seconds=f"{_TIMEOUT_S:g}")) from None
    except ClientDisconnect:
        raise Invalid(fault("", "body-broken-off")) from None
    return bytes(content)
