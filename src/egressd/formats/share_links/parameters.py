"""A link's parameters, and a record of those that were used. All schemes read them here.

A parameter that no reader asked for has no effect, and is reported with the row. So none is ignored
silently, from any program.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import unquote, unquote_plus

from egressd.formats.engine_limits import CANNOT
from egressd.formats.fields import fold
from egressd.formats.rows import Unreadable
from egressd.formats.scalars import is_off

_PARAMETERS_MAX: Final = 64
_YES: Final = frozenset({"1", "true", "yes", "on", "tls"})
_ESCAPE: Final = re.compile(r"%[0-9a-fA-F]{2}")
_SLASH: Final = re.compile(r"%2f|%3b", re.IGNORECASE)
_ESCAPED_TWICE: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("sni", "peer", "host", "alpn", "fp", "obfsparam"), _ESCAPE),
    **dict.fromkeys(("path", "servicename", "wspath", "spx", "plugin"), _SLASH),
}
"""Parameters that some programs escape twice, and the escapes that are left after the first
decoding. v2rayN decodes them twice, too. A path may hold escapes of its own, except of a slash.
"""

_NAMES: Final = frozenset(
    {
        *("sni", "peer", "servername", "host", "obfsparam", "alpn", "flow", "path", "wspath"),
        *("servicename", "fp", "pbk", "sid", "spx", "ech", "vcn"),
    }
)
_NOTHING: Final = frozenset({"null", "none", "undefined"})
"""Words that programs write for a missing name: the null of JavaScript, Python's None."""
_HALF_ESCAPED: Final = "amp"
"""The text before a name where HTML's ``&amp;`` has lost its semicolon. No name begins with it."""

_KEY_MAX: Final = 32
"""Characters of a parameter's name that is cached. Readers ask for no longer one."""
_key: Final = lru_cache(1024)(fold)


class Parameters:
    """Parameters by their folded names (`fields.fold`). The first one of a name counts.

    `shown` maps names to their spelling in the text where they differ. `bare` holds the folded
    names of those without ``=``. Other programs take these for empty, so they have no effect, which
    is reported.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[str, str]],
        shown: Mapping[str, str] | None = None,
        bare: Collection[str] = (),
    ) -> None:
        self._bare = bare
        self._shown = shown or {}
        self._given: dict[str, tuple[str, str]] = {}
        self._used: set[str] = set()
        self._repeated: list[str] = []
        for name, text in pairs:
            key, value = _key(name) if len(name) <= _KEY_MAX else fold(name), text
            if "%" in value and key in _ESCAPED_TWICE and _ESCAPED_TWICE[key].search(value):
                value = unquote(value)
            if key in _NAMES and value.lower() in _NOTHING:
                value = ""
            if key not in self._given or not self._given[key][1]:
                self._given[key] = name, value
            elif value and value != self._given[key][1]:
                self._repeated.append(name)

    def get(self, *names: str) -> str:
        """Return the first of the parameters that is given and not empty, or an empty text.

        The others count as used if they have the same value.
        """
        found = ""
        for name in names:
            key = _key(name)
            if (given := self._given.get(key)) is not None:
                found = found or given[1]
                if given[1] == found:
                    self._used.add(key)
        return found

    def is_on(self, *names: str) -> bool:
        """True if one of the parameters has a value that means yes."""
        is_on = False
        for name in names:
            if (key := _key(name)) in self._given:
                if key not in self._bare:
                    self._used.add(key)
                is_on = is_on or self._given[key][1].lower() in _YES
        return is_on

    def add(self, name: str, value: str) -> None:
        """Add the value that another parameter stands for, unless this one is given itself."""
        self._given.setdefault(_key(name), (name, value))

    def leave(self, name: str) -> None:
        """Count a parameter as not used after all."""
        self._used.discard(_key(name))

    def has(self, name: str) -> bool:
        """True if a parameter is given and not empty. This does not count as a use."""
        return bool(self._given.get(_key(name), ("", ""))[1])

    def is_bare(self, name: str) -> bool:
        """True if a parameter is given without a ``=``. This does not count as a use."""
        return _key(name) in self._bare

    def is_given(self, name: str) -> bool:
        """True if a parameter is given, empty or not. This does not count as a use."""
        return _key(name) in self._given

    def shown(self, name: str) -> str:
        """Return the name of a parameter as the text spells it."""
        return self._shown.get(name, name)

    def unused(self) -> list[str]:
        """Return the names of parameters that ask for something and were not used.

        Raises Unreadable for one that would change the bytes that are sent or the peers that are
        trusted.
        """
        names = [*self._repeated]
        for key, (name, value) in self._given.items():
            if key in self._used or (is_off(value) and key not in self._bare):
                continue
            if reason := CANNOT.get(key):
                raise Unreadable(f"the link must not have {name}: {reason}")
            names.append(self.shown(name))
        return names


def parameters_of(query: str) -> Parameters:
    """Return the parameters of ``a=b&c=d``. A plus is a space, as in Go and Java.

    Raises Unreadable.
    """
    parts = query.split("&", _PARAMETERS_MAX) if query else []
    if len(parts) > _PARAMETERS_MAX:
        raise Unreadable(f"the link must not have over {_PARAMETERS_MAX} parameters")
    pairs, bare = [], set()
    try:
        for part in parts:
            key, equals, value = part.partition("=")
            if key:
                key = key if key.isalnum() else unquote_plus(key)
                key = key.removeprefix(_HALF_ESCAPED) or key
                if not equals:
                    bare.add(fold(key))
                pairs.append((key, unquote_plus(value, errors="strict")))
    except UnicodeError as error:
        raise Unreadable("the link's % escapes must be UTF-8") from error
    return Parameters(pairs, bare=bare)
