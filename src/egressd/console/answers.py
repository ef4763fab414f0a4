"""JSON in and out of the console's own endpoints."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from egressd.console.door import header
from egressd.model.errors import Invalid

T = TypeVar("T")

JSON: Final = "application/json"
_BODY_MAX: Final = 16 * 1024
_TIMEOUT_S: Final = 10.0
_UNCACHED: Final = {"cache-control": "no-store"}


def reply(answer: object, status: int = 200) -> Response:
    """Return `answer` as JSON."""
    return Response(msgspec.json.encode(answer), status, _UNCACHED, JSON)


def failure(text: str, status: int) -> Response:
    """Return ``{"error": text}``."""
    return reply({"error": text}, status)


async def json_body(request: Request, shape: type[T]) -> T:
    """Return the request's JSON document. Raises Invalid."""
    content = await body(request, JSON, _BODY_MAX)
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.ValidationError as error:
        raise Invalid(f"body does not fit: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Invalid("body must be JSON") from None


async def body(request: Request, media_type: str, size_max: int) -> bytes:
    """Return the request's body, of at most `size_max` bytes. Raises Invalid."""
    kind = header(request.scope, b"content-type") or ""
    if kind.partition(";")[0].strip().lower() != media_type:
        raise Invalid(f"Content-Type must be {media_type}")
    content = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > size_max:
                    raise Invalid(f"body must not be larger than {size_max} bytes")
    except TimeoutError:
        raise Invalid(f"body did not arrive within {_TIMEOUT_S:g} seconds") from None
    except ClientDisconnect:
        raise Invalid("body did not arrive") from None
    return bytes(content)
