"""Reading a request's body: bounded in size, time and depth, and strict about its JSON.

JSON is in UTF-8, and strict (`model.strict_json`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import Message, Receive

from egressd.model import strict_json
from egressd.model.faults import fault
from egressd.model.strict_json import NotStrict
from egressd.model.wording import Value

JSON: Final = "application/json"

BODY_TIMEOUT_S: Final = 30.0
"""Seconds for a whole body to arrive."""

_DEPTH_MAX: Final = 16
"""Nesting of a body. Ours have three levels; what text fields hold is not counted."""
_DIGITS_MAX: Final = 20
"""Characters of the longest 64-bit integer."""
_REFUSED: Final = {"syntax": "body-syntax", "depth": "body-depth", "number": "body-number"}
"""Code of `NotStrict` -> code of the fault."""
_BEYOND_64_BITS: Final = 1 << 64
_EXACT_MAX: Final = 1 << 53
"""The integers that a double holds exactly, and that ``1.0`` or ``1e3`` may stand for."""


class UnreadableBody(HTTPException):
    """A body that is not taken, with the reason (400)."""

    def __init__(self, code: str, **values: Value) -> None:
        self.faults = (fault("", code, **values),)
        super().__init__(400, str(self.faults[0]))


class JsonRequest(Request):
    """A request whose `json` is strict."""

    async def json(self) -> Any:
        """The body's document. Raises UnreadableBody."""
        return decode(await self.body())


def has_body(headers: Headers, media_type: str = JSON) -> bool:
    """Return True if a body comes with the request. Raises UnreadableBody if it is announced as
    another type than `media_type`.
    """
    length = headers.get("content-length", "0")
    if "transfer-encoding" not in headers and not length.strip("0"):
        return False
    kinds = headers.getlist("content-type")
    if len(kinds) != 1 or kinds[0].partition(";")[0].strip().lower() != media_type:
        raise UnreadableBody("content-type", media_type=media_type)
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise UnreadableBody("content-encoding")
    return True


def bounded(
    receive: Receive, headers: Headers, size_max: int, timeout_s: float = BODY_TIMEOUT_S
) -> Receive:
    """`receive` for a body of at most `size_max` bytes that arrives within `timeout_s`.

    Raises UnreadableBody from there, or at once when the body is announced to be larger.
    """
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > size_max:
        raise UnreadableBody("body-size", most=size_max)
    received = 0
    deadline = asyncio.get_running_loop().time() + timeout_s

    async def receive_bounded() -> Message:
        nonlocal received
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise UnreadableBody("body-late", seconds=f"{timeout_s:g}") from None
        received += len(message.get("body", b""))
        if received > size_max:
            raise UnreadableBody("body-size", most=size_max)
        return message

    return receive_bounded


def decode(body: bytes) -> Any:
    """The JSON document `body`. Raises UnreadableBody.

    Integers beyond 64 bits become one just beyond them, which every field refuses by name.
    """
    try:
        return strict_json.decode(body.decode("utf-8"), _DECODER, _DEPTH_MAX)
    except UnicodeDecodeError:
        raise UnreadableBody("body-utf-8") from None
    except NotStrict as error:
        if error.code == "key-twice":
            raise UnreadableBody("given-twice", name=error.values["key"]) from None
        raise UnreadableBody(_REFUSED[error.code], **error.values) from None


def _key(name: str) -> str:
    # A key with a lone surrogate is no text to pydantic, which could not name it.
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()


def refuse_twice(names: Iterable[str]) -> None:
    """Raises UnreadableBody when a name comes twice."""
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise UnreadableBody("given-twice", name=name[:64])


def _integer(digits: str) -> int:
    # int() takes time that grows with the square of the digits.
    if len(digits) <= _DIGITS_MAX:
        return int(digits)
    return -_BEYOND_64_BITS if digits.startswith("-") else _BEYOND_64_BITS


def _number(text: str) -> float:
    """A number with a fraction or an exponent. A whole one is an integer, as JSON Schema has it."""
    number = float(text)
    if abs(number) <= _EXACT_MAX and number.is_integer():
        return int(number)
    if number in (float("inf"), float("-inf")):
        return _BEYOND_64_BITS if number > 0 else -_BEYOND_64_BITS
    return number


_DECODER: Final = strict_json.json_decoder(integer=_integer, real=_number, key=_key)
