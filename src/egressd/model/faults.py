"""Faults of a request: the field, the rule that it breaks, and the rule's values.

Programs use the fault; its sentence, for people, is made from it in one place (`wording`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from egressd.model.wording import OTHER, Sentence, Value, say

Step: TypeAlias = str | int
"""A member's name, or an index of a list."""

_NO_VALUES: Final[Mapping[str, Value]] = {}
_ESCAPES: Final = {"~": "~0", "/": "~1"}
"""The characters that a JSON pointer escapes (RFC 6901, 3)."""

_MUST_BE: Final = "body must be "


class Fault(msgspec.Struct, frozen=True):
    """One fault. ``str`` of it is its sentence."""

    path: tuple[Step, ...]
    """The path to the field, from the request's body or from its parameters taken as one object;
    empty if the fault is of no single field."""
    code: str
    """A key of `SENTENCES`."""
    values: Mapping[str, Value] = _NO_VALUES

    def __str__(self) -> str:
        return str(self.sentence)

    def __hash__(self) -> int:
        return hash((self.path, self.code))

    @property
    def sentence(self) -> Sentence:
        """The fault as a sentence, which has the field among its values."""
        # A sentence that became a fault names its field itself.
        return say(self.code, **{"field": self.field, **self.values})

    @property
    def field(self) -> str:
        """The field as sentences spell it: ``items[2].name``; ``body`` for all of the body."""
        name = "" if self.path else "body"
        for step in self.path:
            if isinstance(step, int):
                name += f"[{step}]"
            else:
                name += f".{step}" if name else step
        return name

    @property
    def pointer(self) -> str:
        """The field as a JSON pointer (RFC 6901): ``/items/2/name``."""
        return "".join(
            "/" + re.sub("[~/]", lambda found: _ESCAPES[found[0]], str(step)) for step in self.path
        )

    def at(self, field: str) -> Fault:
        """Return the same fault of another field, spelled as `fault` takes it."""
        return msgspec.structs.replace(self, path=_path(field))

    def inside(self, *outer: Step) -> Fault:
        """Return the fault with the path to the object of its field before its own."""
        return msgspec.structs.replace(self, path=(*outer, *self.path))


def fault(field: str, code: str, **values: Value) -> Fault:
    """Return a fault of `field`: names with dots between them, or an empty text for no field."""
    return Fault(_path(field), code, values)


def takes(code: str, **values: Value) -> Sentence:
    """Return the values that a field takes, if the code's sentence is "{field} must be …". It has
    that code, and no field among its values.
    """
    sentence = str(fault("", code, **values))
    assert sentence.startswith(_MUST_BE)
    return Sentence(sentence.removeprefix(_MUST_BE), code, values)


def in_words(text: str) -> Fault:
    """Return a fault that has only a text."""
    if isinstance(text, Sentence):
        return Fault((), text.code, text.values)
    return Fault((), OTHER, {"text": text})


def as_faults(faults: Iterable[Fault | str]) -> tuple[Fault, ...]:
    """Return `faults`, each text as one that has no more."""
    return tuple(in_words(each) if isinstance(each, str) else each for each in faults)


def _path(field: str) -> tuple[Step, ...]:
    return tuple(field.split(".")) if field else ()
