"""The byte streams that the parser accepts as requests: none has two readings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.api.strict import HEAD_MAX, NO_HTTP, TOO_LARGE, Chunks, StrictConnection

NEXT: Final = b"GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
HEAD: Final = b"POST /a HTTP/1.1\r\nHost: x\r\n"
LENGTH: Final = b"Content-Length: 5\r\n\r\nhello"
CODING: Final = HEAD + b"Transfer-Encoding: "
CHUNKED: Final = CODING + b"chunked\r\n\r\n"

Request = tuple[str, str, bytes]
"""Method, target and body."""

REFUSED: Final = {
    "lengths and chunks": HEAD + b"Content-Length: 5\r\n" + CHUNKED[len(HEAD) :] + b"0\r\n\r\n",
    "chunks and lengths": CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    "two equal lengths": HEAD + b"Content-Length: 5\r\n" + LENGTH,
    "two lengths": HEAD + b"Content-Length: 6\r\n" + LENGTH,
    "two lengths apart": HEAD + b"Content-Length: 5\r\nX: y\r\ncontent-length: 6\r\n\r\nhello",
    "a list of equal lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "a list of lengths": HEAD + b"Content-Length: 5, 6\r\n\r\nhello",
    "a signed length": HEAD + b"Content-Length: +5\r\n\r\nhello",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\nhello",
    "a length in hexadecimal": HEAD + b"Content-Length: 0x5\r\n\r\nhello",
    "a length with a blank": HEAD + b"Content-Length: 5 5\r\n\r\nhello",
    "no length": HEAD + b"Content-Length: \r\n\r\nhello",
    "a length beyond all": HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\nhello",
    "a blank before the colon": HEAD + b"Content-Length : 5\r\n\r\nhello",
    "a tab before the colon": HEAD + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": CODING + b"xchunked\r\n\r\n0\r\n\r\n",
    "the identity": CODING + b"identity\r\n\r\n0\r\n\r\n",
    "a coding besides": CODING + b"gzip, chunked\r\n\r\n0\r\n\r\n",
    "another coding last": CODING + b"chunked, identity\r\n\r\n0\r\n\r\n",
    "a coding twice": CHUNKED[:-2] + CHUNKED[len(HEAD) :] + b"0\r\n\r\n",
    "a coding in quotes": CODING + b'"chunked"\r\n\r\n0\r\n\r\n',
    "a vertical tab": HEAD + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a null": CODING + b"chunked\x00\r\n\r\n0\r\n\r\n",
    "a folded coding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a folded line": HEAD + b"X: a\r\n b\r\n" + LENGTH,
    "a folded first line": b"POST /a HTTP/1.1\r\n Host: x\r\n\r\n",
    "line feeds alone": b"POST /a HTTP/1.1\nHost: x\nContent-Length: 5\n\nhello",
    "one line feed alone": b"POST /a HTTP/1.1\r\nHost: x\n" + LENGTH,
    "a line feed at the end": HEAD + b"Content-Length: 5\r\n\nhello",
    "a carriage return alone": HEAD + b"X: a\rContent-Length: 5\r\n\r\nhello",
    "a control character": HEAD + b"X: a\x01b\r\n" + LENGTH,
    "a blank before": b" " + HEAD + LENGTH,
    "a tab between": b"POST\t/a HTTP/1.1\r\nHost: x\r\n" + LENGTH,
    "two blanks between": b"POST  /a HTTP/1.1\r\nHost: x\r\n" + LENGTH,
    "a blank in the target": b"POST /a b HTTP/1.1\r\nHost: x\r\n" + LENGTH,
    "no host": b"GET /a HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /a HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "HTTP/0.9": b"GET /a\r\n\r\n",
    "HTTP/1.2": b"POST /a HTTP/1.2\r\nHost: x\r\n" + LENGTH,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an authority for a target": b"POST y:80 HTTP/1.1\r\nHost: x\r\n" + LENGTH,
    "a name that is none": HEAD + b"X\xc3\xa9: a\r\n" + LENGTH,
    "no name": HEAD + b": y\r\n" + LENGTH,
    "no colon": HEAD + b"Xyz\r\n" + LENGTH,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "a chunk that does not end": CHUNKED + b"5\r\nhelloXX0\r\n\r\n",
    "a chunk with line feeds": CHUNKED + b"5\nhello\n0\n\n",
    "a line feed in an extension": CHUNKED + b"5;\nhello\r\n0\r\n\r\n",
    "a carriage return in an extension": CHUNKED + b"5;\rx\r\nhello\r\n0\r\n\r\n",
    "a blank behind a size": CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n",
    "a blank before a size": CHUNKED + b" 5\r\nhello\r\n0\r\n\r\n",
    "a size with 0x": CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a negative size": CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    "a size beyond all": CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
    "an extension without end": CHUNKED + b"5;" + b"a" * 5000,
    "a line feed for the end": CHUNKED + b"5\r\nhello\r\n0\r\n\n",
    "a trailer with a line feed": CHUNKED + b"5\r\nhello\r\n0\r\nX: y\n\n",
    "a length for a trailer": CHUNKED + b"5\r\nhello\r\n0\r\nContent-Length: 50\r\n\r\n",
    "a coding for a trailer": CHUNKED + b"5\r\nhello\r\n0\r\ntransfer-encoding: chunked\r\n\r\n",
    "a trailer that is none": CHUNKED + b"5\r\nhello\r\n0\r\nGET /next HTTP/1.1\r\n\r\n",
}  # fmt: skip

TAKEN: Final[dict[str, tuple[bytes, Request]]] = {
    "a length": (HEAD + LENGTH, ("POST", "/a", b"hello")),
    "a length with zeros": (HEAD + b"Content-Length: 05\r\n\r\nhello", ("POST", "/a", b"hello")),
    "no body": (b"GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n", ("GET", "/a?b", b"")),
    "chunks": (CHUNKED + b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", ("POST", "/a", b"hello")),
    "CHUNKED": (CODING + b"CHUNKED\r\n\r\n0\r\n\r\n", ("POST", "/a", b"")),
    "an extension": (CHUNKED + b'5;a="b c"\r\nhello\r\n0\r\n\r\n', ("POST", "/a", b"hello")),
    "a trailer": (CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", ("POST", "/a", b"hello")),
    "empty lines before": (b"\r\n\r\n" + HEAD + LENGTH, ("POST", "/a", b"hello")),
    "absolute form": (
        b"POST http://y:80/a?q HTTP/1.1\r\nHost: x\r\n" + LENGTH,
        ("POST", "/a?q", b"hello"),
    ),
    "no path": (b"GET HTTP://y HTTP/1.1\r\nHost: x\r\n\r\n", ("GET", "/", b"")),
    "a query alone": (b"GET http://y?q HTTP/1.1\r\nHost: x\r\n\r\n", ("GET", "/?q", b"")),
    "the asterisk": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", ("OPTIONS", "*", b"")),
    "a fragment": (b"GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", ("GET", "/a", b"")),
    "octets beyond ASCII": (HEAD + b"X: a\xe9b\r\n" + LENGTH, ("POST", "/a", b"hello")),
    "another protocol": (
        HEAD + b"Connection: Upgrade\r\nUpgrade: h2c\r\n" + LENGTH,
        ("POST", "/a", b"hello"),
    ),
}


def read(parts: Iterable[bytes]) -> tuple[list[Request], str]:
    """Return the requests that a server sees, each answered at once, and the reason why it
    disconnects, or nothing.
    """
    connection = StrictConnection()
    requests: list[Request] = []
    head: h11.Request | None = None
    body = b""
    try:
        for part in parts:
            connection.receive_data(part)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Request):
                    head, body = event, b""
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    assert head is not None
                    requests.append((head.method.decode(), head.target.decode(), body))
                    connection.send(h11.Response(status_code=404, headers=[]))
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is h11.DONE:
                        connection.start_next_cycle()
    except h11.RemoteProtocolError:
        return requests, connection.fault
    return requests, ""


@pytest.mark.parametrize("step", [1, 7, 1000_000])
@pytest.mark.parametrize("name", REFUSED)
def test_an_ambiguous_request_is_refused(name: str, step: int) -> None:
    sent = REFUSED[name] + NEXT
    assert read(sent[at : at + step] for at in range(0, len(sent), step)) == ([], NO_HTTP)


@pytest.mark.parametrize("step", [1, 7, 1000_000])
@pytest.mark.parametrize("name", TAKEN)
def test_a_clear_request_and_the_next_one_are_accepted(name: str, step: int) -> None:
    sent, request = TAKEN[name]
    sent += NEXT + b"what follows the last request is nobody's"
    found = read(sent[at : at + step] for at in range(0, len(sent), step))
    assert found == ([request, ("GET", "/next", b"")], "")


def test_an_empty_line_between_requests_is_skipped() -> None:
    """Old clients send an empty line behind a body, together with it or later."""
    first, request = TAKEN["a length"]
    asked = [request, ("GET", "/next", b"")]
    assert read([first + b"\r\n" + NEXT]) == (asked, "")
    assert read([first + b"\r\n", NEXT]) == (asked, "")
    assert read([first, b"\r\n", b"\r", b"\n" + NEXT]) == (asked, "")


@pytest.mark.parametrize("step", [1, 1000, 1000_000])
def test_the_size_of_a_head_is_limited_in_any_segmentation(step: int) -> None:
    def asked(size: int) -> tuple[list[Request], str]:
        filler = b"X: " + b"a" * (size - len(HEAD) - len(b"X: \r\n\r\n")) + b"\r\n\r\n"
        sent = HEAD + filler
        assert len(sent) == size
        return read(sent[at : at + step] for at in range(0, size, step))

    assert asked(HEAD_MAX) == ([("POST", "/a", b"")], "")
    assert asked(HEAD_MAX + 1) == ([], TOO_LARGE)


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
)
def test_chunks_are_parsed_in_any_segmentation(chunks: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    framing, at = Chunks(), 0
    for cut in cuts:
        assert framing.go_on_with(sent[at : at + cut])
        at += cut
    assert framing.go_on_with(sent[at:] + b"not looked at any more\n")
    body = b"".join(chunks)
    assert read([CHUNKED, sent, NEXT]) == ([("POST", "/a", body), ("GET", "/next", b"")], "")


@given(
    st.lists(st.sampled_from([*REFUSED.values(), NEXT, b"\r\n", b"0\r\n\r\n", b"x"]), max_size=4)
)
def test_any_bytes_are_parsed_alike_in_any_segmentation(parts: list[bytes]) -> None:
    whole, _ = read([b"".join(parts)])
    bytewise, _ = read(bytes([octet]) for octet in b"".join(parts))
    assert whole == bytewise
