"""Sentences for people that keep the code and the values that they were made from.

A `Sentence` is text: it is shown, joined and compared like any other. Programs, and a page in
another language, use its code and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.sentences import SENTENCES

Value: TypeAlias = str | int | tuple[str, ...]
"""A text may be a `Sentence`, also inside a tuple."""

_CODED: Final = "_coded"
_NO_VALUES: Final[Mapping[str, Value]] = {}

OTHER: Final = "other"
"""The code of a sentence that has only its text: the words of another program, for example."""


class Sentence(str):
    """The text of a code with its values."""

    __slots__ = ("code", "values")
    code: str
    values: Mapping[str, Value]

    def __new__(cls, text: str, code: str, values: Mapping[str, Value] = _NO_VALUES) -> Sentence:
        """Return a sentence. `say` makes its text."""
        made = super().__new__(cls, text)
        made.code = code
        made.values = values
        return made

    def __reduce__(self) -> tuple[type[Sentence], tuple[str, str, Mapping[str, Value]]]:
        """Return the type and the arguments that make a copy, for `pickle` and `copy`."""
        return Sentence, (str(self), self.code, self.values)


NONE: Final = Sentence("", "")
"""No sentence."""


def no_sentence() -> Sentence:
    """Return `NONE`: the default of an answer's field, which its schema does not show."""
    return NONE


def say(code: str, /, **values: Value) -> Sentence:
    """Return the sentence of a code, a key of `SENTENCES`."""
    shown = {name: _shown(value) for name, value in values.items()}
    return Sentence(SENTENCES[code].format(**shown), code, values)


def as_sentence(text: str) -> Sentence:
    """Return `text` as a sentence. One of another program has no other code than `OTHER`."""
    if isinstance(text, Sentence):
        return text
    return Sentence(text, OTHER, {"text": text}) if text else NONE


def together(sentences: Iterable[str]) -> Sentence:
    """Return several sentences as one."""
    parts = tuple(filter(None, sentences))
    if len(parts) > 1:
        return say("several", parts=parts)
    return as_sentence(parts[0]) if parts else NONE


class _Number(int):
    """A number that chooses between two forms of a word: ``{n:rule|rules}``."""

    def __format__(self, spec: str) -> str:
        one, bar, many = spec.partition("|")
        if not bar:
            return super().__format__(spec)
        return one if self == 1 else many


class _Listed(str):
    """The texts of a list, with a separator if there is one: ``{parts:; }``."""

    __slots__ = ("texts",)
    texts: tuple[str, ...]

    def __format__(self, spec: str) -> str:
        return (spec or ", ").join(self.texts)


def _shown(value: Value) -> object:
    match value:
        case int():
            return _Number(value)
        case tuple():
            listed = _Listed(", ".join(value))
            listed.texts = value
            return listed
        case _:
            return value


# --- On a socket, and in answers. -----------------------------------------------------------


class Coded(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of the device for programs."""

    code: Annotated[str, Meta(description="The kind of the sentence; a code stays the same.")]
    values: Annotated[
        dict[str, Any],
        Meta(
            description="The values that the sentence is about. One that is a sentence, too, is an "
            "object like this one."
        ),
    ]
    text: Annotated[str, Meta(description="The sentence.")]


def coded(text: str) -> Coded | None:
    """Return a sentence for programs; None for no text."""
    if not text:
        return None
    said = as_sentence(text)
    return Coded(code=said.code, values=coded_values(said.values), text=clean(said))


def all_coded(texts: Iterable[str]) -> tuple[Coded, ...]:
    """Return sentences for programs."""
    return tuple(one for text in texts if (one := coded(text)) is not None)


class Coding(msgspec.Struct, frozen=True, kw_only=True):
    """The base of answers with sentences: of a field ``x`` and a field ``x_coded``, the second is
    always the first for programs.
    """

    def __post_init__(self) -> None:
        """Fill in the coded fields."""
        for name, source in _coded_fields(type(self)):
            said = getattr(self, source)
            value = coded(said) if isinstance(said, str) else all_coded(said)
            msgspec.structs.force_setattr(self, name, value)


@cache
def _coded_fields(kind: type[Coding]) -> tuple[tuple[str, str], ...]:
    names = (name for name in kind.__struct_fields__ if name.endswith(_CODED))
    return tuple((name, name.removesuffix(_CODED)) for name in names)


def as_text(value: object) -> str:
    """Return a sentence as its text. A hook of msgspec's encoders."""
    if isinstance(value, Sentence):
        return str(value)
    raise NotImplementedError


def text_schema(kind: type) -> dict[str, object]:
    """Return the JSON schema of a sentence that is encoded as its text. A hook of msgspec."""
    if kind is Sentence:
        return {"type": "string"}
    raise NotImplementedError


def coded_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sentence's values for programs."""
    return {name: _coded_value(value) for name, value in values.items()}


def _coded_value(value: object) -> object:
    match value:
        case Sentence():
            return coded(value)
        case str():
            return clean(value)
        case tuple() | list():
            return tuple(map(_coded_value, value))
        case _:
            return value


def clean(text: str) -> str:
    """Return `text` with what UTF-8 cannot hold escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def encoded(value: object) -> object:
    """Return a sentence in the form in which sockets carry it. A hook of msgspec's encoders."""
    if isinstance(value, Sentence):
        return coded(value)
    raise NotImplementedError


def decoded(kind: type, value: object) -> object:
    """Return a sentence from what a socket carried: an object, a plain text or None. A hook of
    msgspec's decoders.
    """
    if kind is Sentence:
        return sentence_of(value)
    raise NotImplementedError


def sentence_of(value: object) -> Sentence:
    """Return the sentence of an object like `Coded`, or of a plain text."""
    match value:
        case None:
            return NONE
        case str():
            return as_sentence(value)
        case {"code": str(code), "values": dict(values), "text": str(text)}:
            return Sentence(text, code, {name: _value(each) for name, each in values.items()})
        case _:
            raise ValueError("a sentence must have code, values and text")


def _value(value: object) -> Value:
    match value:
        case str() | int():
            return value
        case list():
            return tuple(_text(each) for each in value)
        case _:
            return sentence_of(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else sentence_of(value)
