"""JSON objects of configurations: strict JSON, bounded, without control characters."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from egressd.model import strict_json
from egressd.model.bounds import CONFIG_MAX
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, Step, fault
from egressd.model.names import has_control_characters
from egressd.model.strict_json import NotStrict

DEPTH_MAX = 8
"""Levels of nested objects and arrays, the outermost included."""
INTEGER_DIGITS_MAX = 20
MANY_LINES: Final = frozenset({"private-key"})
"""Keys whose text may have line breaks: keys of SSH are files of many lines."""

_REFUSED: Final = {
    "syntax": "json-syntax",
    "depth": "json-depth",
    "key-twice": "json-key-twice",
    "number": "json-number",
    "number-size": "json-number-size",
}
"""Code of `NotStrict` -> code of the fault."""


def read_object(text: str, name: str) -> dict[str, Any]:
    """Return the JSON object that `text` holds.

    Raises Invalid, whose messages call the document `name`: not JSON, not an object, over
    `CONFIG_MAX` or `DEPTH_MAX`, a key twice in an object, a number that is not finite, a control
    character or a lone surrogate in a key or a string.
    """
    value = parse_object(text, name)
    if may_be_unclean(text) and (faults := unclean_places(value, name)):
        raise Invalid(*faults)
    return value


def parse_object(text: str, name: str) -> dict[str, Any]:
    """Return the object as `read_object` does. The caller checks for control characters and lone
    surrogates.
    """
    check_size(text, name)
    try:
        value = strict_json.decode(text, _DECODER, DEPTH_MAX)
    except NotStrict as error:
        raise Invalid(fault(name, _REFUSED[error.code], **error.values)) from None
    if not isinstance(value, dict):
        raise Invalid(fault(name, "json-object"))
    return value


def may_be_unclean(text: str) -> bool:
    """True if JSON text may stand for control characters. An escape begins with a backslash;
    without one, each character stands for itself.
    """
    return "\\" in text or has_control_characters(text)


def check_size(text: str, name: str) -> None:
    """Raise Invalid, whose message calls the document `name`, when it is over `CONFIG_MAX`."""
    # A text with too many characters need not be encoded.
    if len(text) > CONFIG_MAX or len(text.encode("utf-8", "surrogatepass")) > CONFIG_MAX:
        raise Invalid(fault(name, "json-size", most=CONFIG_MAX))


def write_object(value: dict[str, Any]) -> str:
    """Return `value` as JSON on one line, with its keys in their order."""
    return _ENCODER.encode(value)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotStrict("number-size")
    return number


def _whole(text: str) -> int:
    if len(text) > INTEGER_DIGITS_MAX:
        raise NotStrict("number-size")
    return int(text)


def unclean_places(value: Any, *path: Step) -> list[Fault]:
    """Return the faults of the keys and strings at `path` and below with a control character."""
    if isinstance(value, str):
        return [Fault(path, "control-characters")] if has_control_characters(value) else []
    if isinstance(value, list):
        return [bad for n, item in enumerate(value) for bad in unclean_places(item, *path, n)]
    if isinstance(value, dict):
        found: list[Fault] = []
        for key, item in value.items():
            if key in MANY_LINES and isinstance(item, str):
                item = "".join(item.splitlines())  # noqa: PLW2901
            if has_control_characters(key):
                found.append(Fault(path, "control-characters-in-key"))
            else:
                found += unclean_places(item, *path, key[:60])
        return found
    return []


_DECODER = strict_json.json_decoder(integer=_whole, real=_finite)
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
