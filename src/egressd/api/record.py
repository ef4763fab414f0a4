"""Notes every change that was acknowledged, with who made it.

A change is a request that is not GET and is answered 200 or 201 with a ``msg``: that word says in
every answer of the API that something is stored and in force.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from egressd.api.endpoints import API_PREFIX, OPS_PREFIX
from egressd.api.gate import caller_of
from egressd.api.link_keys import shown_path
from egressd.api.wire.answers import SAID
from egressd.model.times import utc_text
from egressd.model.wording import as_sentence
from egressd.service.authorship import Author, authored
from egressd.service.journal import Journal

_ANSWER_MAX: Final = 64 * 1024
_SUBJECTS: Final = {
    "restore": "everything",
    "stop": "settings",
    "start": "settings",
    "open": "settings",
    "lines": "vpn-lines",
    "changes": "everything",
    "trial": "everything",
}
"""First word of an operation's path -> the kind of thing that it changes, if that is another."""


class _Said(msgspec.Struct):
    msg: str = ""


class Record:
    """ASGI middleware behind the gate."""

    def __init__(self, app: ASGIApp, changes: Journal) -> None:
        self._app = app
        self._changes = changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and note what became of it."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        author = Author(
            who=caller_of(scope).name,
            source=(scope.get("client") or ("local",))[0],
            what=f"{scope['method']} {shown_path(scope)[:200]}",
        )
        with authored(author):
            await self._app(
                scope, receive, _listening(send, lambda text: self._note(scope, author, text))
            )

    def _note(self, scope: Scope, author: Author, text: str) -> None:
        said = scope.get("state", {}).get(SAID, {}).get("msg")
        self._changes.note(
            author.record(utc_text(time.time()), said or as_sentence(text)),
            subject_of(scope["path"]),
        )


def subject_of(path: str) -> str:
    """The kind of thing that a change at `path` is of: ``rules``, ``settings``, ``everything``."""
    prefix = API_PREFIX if path.startswith(API_PREFIX) else OPS_PREFIX
    word = path.removeprefix(prefix).split("/")[1]
    return _SUBJECTS.get(word, word)


def _listening(send: Send, tell: Callable[[str], None]) -> Send:
    """Return a `send` that also passes the ``msg`` of an answer of success to `tell`."""
    status = 0
    answer = bytearray()

    async def send_and_listen(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif status in (200, 201) and len(answer) < _ANSWER_MAX:
            answer.extend(message.get("body", b""))
            if not message.get("more_body", False):
                try:
                    text = msgspec.json.decode(answer, type=_Said).msg
                except (msgspec.DecodeError, UnicodeDecodeError):
                    text = ""
                if text:
                    tell(text)
        await send(message)

    return send_and_listen
