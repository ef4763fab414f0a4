from __future__ import annotations

import asyncio
import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers
from starlette.types import Message, Receive

from egressd.api.intake import UnreadableBody, bounded, decode, has_body

documents = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(documents)
def test_json_is_read_unchanged(document: Any) -> None:
    assert decode(json.dumps(document).encode()) == document


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(UnreadableBody):
        decode(body)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "must be JSON"),
        (b"{", "must be JSON"),
        (b"{'a': 1}", "must be JSON"),
        (b'{"a": 1} x', "must be JSON"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"a": 1, "a": 2}', "a must not be given twice"),
        (b'{"b": {"a": 1, "\\u0061": 2}}', "a must not be given twice"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b"\xef\xbb\xbf{}", "must be JSON"),
        (b"[" * 100_000, "nest deeper"),
        (b"[" * 17 + b"]" * 17, "nest deeper"),
        (b'{"a":' * 17 + b"1" + b"}" * 17, "nest deeper"),
    ],
)
def test_unsafe_json_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(UnreadableBody) as caught:
        decode(body)
    assert reason in caught.value.detail


def test_sixteen_levels_of_nesting_are_read() -> None:
    assert decode(b"[" * 16 + b"]" * 16)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.0", 1),
        ("1e3", 1000),
        ("-2.00", -2),
        ("1.5", 1.5),
        ("9007199254740992.0", 2**53),
        ("1e300", 1e300),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_whole_number_is_an_integer_in_any_spelling(text: str, number: float) -> None:
    read = decode(text.encode())
    assert read == number
    assert type(read) is type(number)


@pytest.mark.parametrize("text", ["1e400", "1" + "0" * 30, "9" * 5000])
@pytest.mark.parametrize("sign", ["", "-"])
def test_a_number_beyond_64_bits_is_not_truncated(text: str, sign: str) -> None:
    read = decode((sign + text).encode())
    assert isinstance(read, int)
    assert abs(read) >= 2**64 > 2**63
    assert math.copysign(1, read) == (-1 if sign else 1)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-length": "0"},
        {"content-type": "text/plain"},
        {"content-type": "text/plain", "content-length": "00"},
    ],
)
def test_a_request_without_a_body_may_have_any_content_type(headers: dict[str, str]) -> None:
    assert not has_body(Headers(headers))


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        " application/json ",
    ],
)
@pytest.mark.parametrize("frame", [("content-length", "2"), ("transfer-encoding", "chunked")])
def test_a_json_content_type_with_a_length_is_a_body(kind: str, frame: tuple[str, str]) -> None:
    assert has_body(Headers(dict([("content-type", kind), frame])))


@pytest.mark.parametrize(
    "raw",
    [
        [],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [(b"content-type", b"application/jsonx")],
        [(b"content-type", b"application/json"), (b"content-type", b"application/json")],
        [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")],
    ],
)
def test_another_content_type_or_encoding_is_refused(raw: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(UnreadableBody, match="Content-"):
        has_body(Headers(raw=[*raw, (b"content-length", b"2")]))


def chunks(*bodies: bytes, pause_s: float = 0) -> Receive:
    """Return the receiving side of a body in several parts."""
    left = list(bodies)

    async def receive() -> Message:
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    return receive


async def read(receive: Receive, headers: dict[str, str], **bounds: Any) -> bytes:
    receive = bounded(receive, Headers(headers), **bounds)
    body, more = b"", True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    return body


async def test_a_body_within_the_size_limit_is_read() -> None:
    assert await read(chunks(b"abc", b"def"), {}, size_max=6) == b"abcdef"


async def test_a_body_with_a_too_large_content_length_is_not_read() -> None:
    async def never() -> Message:
        raise AssertionError("the body was read")

    for length in ("7", "9" * 400):
        with pytest.raises(UnreadableBody, match="larger than 6 bytes"):
            await read(never, {"content-length": length}, size_max=6)


async def test_a_body_that_grows_too_large_is_refused() -> None:
    with pytest.raises(UnreadableBody, match="larger than 6 bytes"):
        await read(chunks(b"abc", b"defg", b"never read"), {}, size_max=6)


async def test_a_slow_body_times_out() -> None:
    with pytest.raises(UnreadableBody, match=r"within 0\.1 seconds"):
        await read(chunks(*[b"a"] * 9, pause_s=0.04), {}, size_max=99, timeout_s=0.1)
