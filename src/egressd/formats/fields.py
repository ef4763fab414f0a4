"""A table-driven reader of nested key/value configurations.

A `Table` lists the keys that an object may have and the `Kind` of value that each takes; `read`
checks an object against it and finds every fault, and every key that is not in the table, in one
pass. Tables nest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

from egressd.formats.hosts import PORT_MAX, parse_host
from egressd.model.bounds import TEXT_MAX
from egressd.model.faults import Fault, fault
from egressd.model.wording import Value

USER_ID_MAX = 30
"""Bytes of a text in place of a UUID, as in Xray."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\Z")
_DIGITS = re.compile(r"\s*(-?[0-9]{1,18})(?:\.0{1,18})?\s*\Z")
_BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_LIST_MAX = 64
"""Items of a list, or headers: the maximum."""
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}\Z")


def fold(key: str) -> str:
    """Return a key without the differences between programs: ``skip_cert_verify``,
    ``skipCertVerify``.
    """
    return key.lower().replace("-", "").replace("_", "")


def _as_it_is(text: str) -> Any:
    return text


@dataclass(frozen=True)
class Kind:
    """A kind of value: the check of a value, and the fault of one that does not pass.

    ``code`` and ``values`` are the fault's. ``check`` returns the normalised value or raises
    ValueError. ``from_text`` turns the text of a bare scalar (as in YAML or a URL) into the type
    that ``check`` expects. ``is_taken`` is true for a value that is read as another word, which the
    operator should know.
    """

    code: str
    check: Callable[[Any], Any]
    from_text: Callable[[str], Any] = _as_it_is
    is_taken: Callable[[Any], bool] | None = None
    values: Mapping[str, Value] = field(default_factory=dict)

    def fault(self, path: str) -> Fault:
        """Return the fault of the field at `path` if it is not of this kind."""
        return fault(path, self.code, **self.values)


@dataclass(frozen=True)
class Table:
    """The keys of an object: the values that each takes, and the required ones."""

    keys: Mapping[str, Kind | Table]
    required: frozenset[str] = frozenset()

    def fault(self, path: str) -> Fault:
        """Return the fault of the field at `path` if it is no object."""
        return fault(path, "object")

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """Return the required keys, in their order."""
        return tuple(key for key in self.keys if key in self.required)

    @cached_property
    def folded(self) -> Mapping[str, str]:
        """Return each key by its folded form (see `fold`)."""
        return {fold(key): key for key in self.keys}


@dataclass
class Reading:
    """The result of reading an object: values, faults, and unknown keys.

    ``taken`` has the values that were read as another word, ``idle`` the keys that are known and
    have no effect beside the others.
    """

    values: dict[str, Any] = field(default_factory=dict)
    problems: list[Fault] = field(default_factory=list)
    unknown: dict[str, Any] = field(default_factory=dict)
    """The value of each unknown key, by path."""
    taken: dict[str, str] = field(default_factory=dict)
    """The word that each such value was read as, by path."""
    idle: list[str] = field(default_factory=list)


def read(table: Table, given: Mapping[str, Any]) -> Reading:
    """Check `given` against `table`. Null and empty text count as absent.

    Keys are named by their path (``ws-opts.path``).
    """
    reading = Reading()
    reading.values = _read_table(table, given, "", reading)
    return reading


def _read_table(
    table: Table, given: Mapping[str, Any], place: str, reading: Reading
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in given.items():
        kind = table.keys.get(key)
        path = place + key
        if value is None or value == "":
            continue
        if kind is None:
            reading.unknown[path] = value
        elif isinstance(kind, Kind):
            try:
                values[key] = kind.check(value)
            except ValueError:
                reading.problems.append(kind.fault(path))
            else:
                if kind.is_taken is not None and kind.is_taken(value):
                    reading.taken[path] = str(values[key])
        elif isinstance(value, dict):
            values[key] = _read_table(kind, value, f"{path}.", reading)
        else:
            reading.problems.append(kind.fault(path))
    for key in table.needed:
        if given.get(key) in (None, ""):
            reading.problems.append(table.keys[key].fault(place + key))
    return values


# --- Kinds. ---------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > TEXT_MAX:
        raise ValueError
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError  # noqa: TRY004 (one exception type says "not of this kind")
    return value


def _boolean_from_text(text: str) -> Any:
    return _BOOLEANS.get(text.strip().lower(), text)


def _whole_from_text(text: str) -> Any:
    match = _DIGITS.match(text)
    return int(match[1]) if match else text


def _host_from_text(text: str) -> str:
    # Some programs add a second pair of quotes to an IPv6 address.
    return text.strip(" '\"")


def _uuid(value: Any) -> str:
    if not _UUID.match(_text(value)):
        raise ValueError
    return str(UUID(value))


def _user_id(value: Any) -> str:
    if _UUID.match(_text(value)):
        return str(UUID(value))
    if not 0 < len(value.encode()) <= USER_ID_MAX:
        raise ValueError
    return str(value)


def _only(value: Any) -> Any:
    """Return the only item of a list, since some programs write a list where a text is expected."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _http_path(value: Any) -> str:
    path = _text(_only(value))
    if _BAD_ESCAPE.search(path):
        raise ValueError
    return "/" + path.removeprefix("/")


def _text_list(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) > _LIST_MAX:
        raise ValueError
    return [_text(item) for item in value if item is not None]


def _given_headers(value: Any) -> dict[str, Any]:
    """Return the headers that have a value. Null and empty text count as absent, in a list too."""
    if not isinstance(value, dict) or len(value) > _LIST_MAX:
        raise ValueError
    if not all(_HEADER_NAME.match(name) for name in value):
        raise ValueError
    given = {
        name: [item for item in content if item is not None]
        if isinstance(content, list)
        else content
        for name, content in value.items()
    }
    return {name: content for name, content in given.items() if content not in (None, "", [])}


def _headers(value: Any) -> dict[str, str]:
    return {name: _text(_only(content)) for name, content in _given_headers(value).items()}


def _header_lists(value: Any) -> dict[str, list[str]]:
    return {
        name: _text_list(content if isinstance(content, list) else [content])
        for name, content in _given_headers(value).items()
    }


def whole(first: int, last: int) -> Kind:
    """Return the kind of whole numbers within bounds, both included."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not first <= value <= last:
            raise ValueError
        return value

    return Kind("whole-number", check, _whole_from_text, values={"least": first, "most": last})


def choice(*words: str, aliases: Mapping[str, str] | None = None) -> Kind:
    """Return the kind of a few words, in either case. An alias stands for the word it maps to."""
    meaning = {word: word for word in words} | dict(aliases or {})

    def check(value: Any) -> str:
        if not isinstance(value, str) or value.lower() not in meaning:
            raise ValueError
        return meaning[value.lower()]

    if len(words) == 1:
        return Kind("word", check, values={"word": words[0]})
    return Kind("one-of", check, values={"choices": words})


def list_from_text(text: str) -> list[str]:
    """Return the words between commas, without blanks around them. They may stand in the brackets
    and quotes of a JSON list.
    """
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].replace('"', "").replace("'", "")
    return [word for part in text.split(",") if (word := part.strip())]


def text_where(code: str, is_fine: Callable[[str], object], **values: Value) -> Kind:
    """Return the kind of texts for which `is_fine` gives a true value and raises no ValueError."""

    def check(value: Any) -> str:
        if not is_fine(_text(value)):
            raise ValueError
        return str(value)

    return Kind(code, check, values=values)


def short_text(limit: int) -> Kind:
    """Return the kind of texts of at most `limit` bytes of UTF-8."""
    return text_where("text-of-bytes", lambda text: len(text.encode()) <= limit, most=limit)


TEXT = Kind("text", _text, values={"most": TEXT_MAX})
BOOLEAN = Kind("boolean", _boolean, _boolean_from_text)
HOST = Kind("host", lambda value: parse_host(_text(value)), _host_from_text)
PORT = whole(1, PORT_MAX)
UUID_TEXT = Kind("uuid", _uuid, str.strip)
USER_ID = Kind(
    "user-id",
    _user_id,
    str.strip,
    values={"most": USER_ID_MAX},
)
"""The planner makes the same UUID (version 5) of a text as Xray, mihomo and sing-box."""
TEXT_LIST = Kind("text-list", _text_list, list_from_text, values={"most": _LIST_MAX})
HEADERS = Kind("headers", _headers)
HEADER_LISTS = Kind("header-lists", _header_lists)
HTTP_PATH = Kind("http-path", _http_path)
HTTP_PATHS = Kind(
    "http-paths",
    lambda value: [_http_path(path) for path in _text_list(value)],
    lambda text: [text],
    values={"most": _LIST_MAX},
)
