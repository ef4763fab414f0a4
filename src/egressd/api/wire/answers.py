"""The shapes of answers that several resources share, and how an answer is made.

Answers are msgspec structs, encoded at once: the same classes describe them in the OpenAPI
document, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from egressd.api.negotiation import wants_codes
from egressd.model.wording import Sentence, as_text, coded
from egressd.service.authorship import current_author

Message = Annotated[Sentence, Meta(description="What was done, and what to know about it.")]

_encode = msgspec.json.Encoder(enc_hook=as_text).encode
_JSON = "application/json"
_UNCACHED = {"cache-control": "no-store"}


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all answers."""


class Error(Answer, frozen=True, kw_only=True):
    """The reason for which a request was not carried out."""

    error: str


class Said(Answer, frozen=True, kw_only=True):
    """It is stored, and in force."""

    msg: Message


class SaidId(Answer, frozen=True, kw_only=True):
    """It is stored, and in force."""

    msg: Message
    id: int


class Deleted(Answer, frozen=True, kw_only=True):
    """The number of rows that were deleted."""

    msg: Message
    deleted: int


class Updated(Answer, frozen=True, kw_only=True):
    """The number of rows that were updated."""

    msg: Message
    updated: int


class Imported(Answer, frozen=True, kw_only=True):
    """The result of an import."""

    msg: Message
    imported: Annotated[int, Meta(description="Rows that are new, or that updated something.")]
    skipped: Annotated[int, Meta(description="Rows that are bad, or there already.")]


_LENGTH: Final = "content-length"
SAID: Final = "egressd.said"
"""Key of a request's state: the sentences of its answer, by field."""


class _TwofoldResponse(Response):
    """An answer with sentences: to a caller that asks for problem documents also for programs."""

    def __init__(self, answer: msgspec.Struct, said: Mapping[str, Sentence], status: int) -> None:
        super().__init__(_encode(answer), status, _UNCACHED, _JSON)
        self._answer = answer
        self._said = said

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer in the form that the request asks for."""
        scope.setdefault("state", {})[SAID] = self._said
        if not wants_codes(scope):
            await super().__call__(scope, receive, send)
            return
        beside = {f"{name}_coded": coded(sentence) for name, sentence in self._said.items()}
        answer = msgspec.structs.asdict(self._answer) | beside
        if "msg" in self._said and (revision := current_author().revision) is not None:
            # By it the console's page offers to undo what it has just done.
            answer["revision"] = revision
        headers = {name: value for name, value in self.headers.items() if name != _LENGTH}
        await Response(_encode(answer), self.status_code, headers)(scope, receive, send)


def reply(answer: object, status: int = 200) -> Response:
    """`answer` as JSON."""
    if isinstance(answer, Answer):
        fields = ((name, getattr(answer, name)) for name in answer.__struct_fields__)
        if said := {name: value for name, value in fields if isinstance(value, Sentence)}:
            return _TwofoldResponse(answer, said, status)
    return Response(_encode(answer), status, _UNCACHED, _JSON)


def failure(text: str, status: int) -> Response:
    """``{"error": text}``. What UTF-8 cannot hold is shown escaped."""
    text = text.encode("utf-8", "backslashreplace").decode()
    return reply(Error(error=text), status)
