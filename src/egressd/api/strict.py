"""HTTP/1.1 framing without leniency: h11, and what it would let pass.

h11 is a parser that touches no socket. It takes some framings that another parser reads in another
way (RFC 9112, 11.2: request smuggling), and bounds a request's head only while that is incomplete.
What is checked here besides is checked by its documented methods, on the bytes that they are given.
"""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

import h11

HEAD_MAX: Final = 32 * 1024
"""Bytes of a request's line and headers together."""

TOO_LARGE: Final = f"the request's head must not be larger than {HEAD_MAX} bytes"
NO_HTTP: Final = (
    "the request must be HTTP/1.1 (RFC 9112): in its target, what is not ASCII is percent-encoded"
)
_HEAD_END: Final = re.compile(rb"\n\r?\n")
"""The end of a head as h11 finds it."""
_AMBIGUOUS: Final = re.compile(
    rb"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]"  # control characters
    rb"|(?<!\r)\n|\r(?!\n)"  # a line that does not end in CR LF
    rb"|\n[ \t]"  # obs-fold
    rb"|\n(?i:content-length):(?:[^\r]*,|(?s:.*)\n(?i:content-length):)"  # several lengths
)
"""The parts of a head that h11 accepts, and that another parser may read differently."""
_TARGET: Final = re.compile(rb"(?:(?i:https?)://[^/?#]+(?=[/?#]|$)|(?=[/*]))([^#]*)(?:#.*)?")
"""A target in origin, absolute or asterisk form (RFC 9112, 3.2), and what of it is asked for. A
fragment does not belong there, and is passed over."""
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_LINE_MAX: Final = 4096
"""Bytes of a chunk's line, and of a trailer's."""
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t -~\x80-\xff]*)?\r\n")
_TRAILER: Final = re.compile(
    rb"(?!(?i:content-length|transfer-encoding):)[!#-'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n"
)
_OVER: Final = (h11.MUST_CLOSE, h11.CLOSED, h11.ERROR)
"""States of a client from which nothing is taken any more."""


class StrictConnection(h11.Connection):
    """A server's side of h11 that refuses what is ambiguous.

    `next_event` raises RemoteProtocolError for it; `fault` says why then. What comes after a
    request that is the connection's last is not looked at.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, HEAD_MAX)
        self.fault = NO_HTTP
        self._chunks: Chunks | None = None
        """The chunks of the body that is being received, if it has chunks."""
        self._is_unsound = False

    @property
    def is_between_requests(self) -> bool:
        """True if nothing of another request has arrived yet."""
        return self.their_state is h11.IDLE and not self.trailing_data[0]

    def receive_data(self, data: bytes) -> None:
        """Take what has arrived. Empty lines before a request are none of it (RFC 9112, 2.2)."""
        if self.their_state in _OVER:
            return
        if self.is_between_requests:
            data = data.lstrip(b"\r\n")
        if data:  # h11 would take nothing for the end of the connection
            self._check_chunks(data)
            super().receive_data(data)

    def start_next_cycle(self) -> None:
        """Go on with the next request."""
        ahead, _ = self.trailing_data
        if ahead[:1] in (b"\r", b"\n"):
            super().__init__(h11.SERVER, HEAD_MAX)
            self.receive_data(ahead)
        else:
            super().start_next_cycle()

    def next_event(self) -> Any:
        """Return the next event of h11's, NEED_DATA or PAUSED. Raises RemoteProtocolError."""
        if self.their_state in _OVER:
            return h11.NEED_DATA
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        if self._is_unsound:
            self._refuse()
        event = super().next_event()
        if isinstance(event, h11.Request):
            return self._checked(event)
        if isinstance(event, h11.EndOfMessage):
            self._chunks = None
        return event

    def _check_head(self, received: bytes) -> None:
        end = _HEAD_END.search(received, 0, HEAD_MAX)
        if end is None:
            if len(received) >= HEAD_MAX:
                self._refuse(TOO_LARGE)
        elif _AMBIGUOUS.search(received, 0, end.end()):
            self._refuse()

    def _checked(self, request: h11.Request) -> h11.Request:
        framing = {name for name, _ in request.headers} & _FRAMING
        target = _TARGET.fullmatch(request.target)
        if target is None or len(framing) > 1 or request.http_version not in (b"1.1", b"1.0"):
            self._refuse()
        if b"transfer-encoding" in framing:  # of which h11 takes no other than chunked
            self._chunks = Chunks()
            self._check_chunks(self.trailing_data[0])
        if target[1] == request.target:
            return request
        return h11.Request(
            method=request.method,
            target=target[1] if target[1].startswith((b"/", b"*")) else b"/" + target[1],
            headers=request.headers.raw_items(),
            http_version=request.http_version,
        )

    def _check_chunks(self, data: bytes) -> None:
        if self._chunks is not None and not self._chunks.go_on_with(data):
            self._is_unsound = True

    def _refuse(self, fault: str = NO_HTTP) -> NoReturn:
        self.fault = fault
        raise h11.RemoteProtocolError(fault)


class Chunks:
    """The framing of a chunked body (RFC 9112, 7.1), as it arrives."""

    def __init__(self) -> None:
        self._skipped = 0
        """Bytes to come that are a chunk's data and the end of its line, which h11 checks."""
        self._line = b""
        self._is_in_trailers = False
        self._is_over = False

    def go_on_with(self, data: bytes) -> bool:
        """Return True if the framing is sound so far. Bytes after the body are not examined."""
        at = 0
        while at < len(data) and not self._is_over:
            if self._skipped:
                step = min(self._skipped, len(data) - at)
                self._skipped -= step
                at += step
                continue
            end = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:end]
            at = end
            if len(self._line) > _LINE_MAX:
                return False
            if self._line.endswith(b"\n"):
                if not self._take(self._line):
                    return False
                self._line = b""
        return True

    def _take(self, line: bytes) -> bool:
        if self._is_in_trailers:
            self._is_over = line == b"\r\n"
            return self._is_over or _TRAILER.fullmatch(line) is not None
        chunk = _CHUNK.fullmatch(line)
        if chunk is None:
            return False
        size = int(chunk[1], 16)
        self._is_in_trailers = size == 0
        self._skipped = size and size + len(b"\r\n")
        return True
