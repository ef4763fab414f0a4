"""A link's parameters, and which of them were used: the one reader of them for all schemes.

What nobody asked for has no effect, and is told with the row; so no parameter is passed over in
silence, whichever program thought of it.
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
"""Parameters that some programs escape twice, and what then is left after the first time. v2rayN
reads them so. A path may hold escapes of its own, but none of a slash."""

_NAMES: Final = frozenset(
    {
        *("sni", "peer", "servername", "host", "obfsparam", "alpn", "flow", "path", "wspath"),
        *("servicename", "fp", "pbk", "sid", "spx", "ech", "vcn"),
    }
)
_NOTHING: Final = frozenset({"null", "none", "undefined"})
"""What programs write for a name that they have none of: the null of JavaScript, Python's None."""
_HALF_ESCAPED: Final = "amp"
"""What is before a name where HTML's ``&amp;`` has lost its semicolon. No name begins so."""

_KEY_MAX: Final = 32
"""Characters of a name that a reader may ask for."""
_key: Final = lru_cache(1024)(fold)


class Parameters:
    """Parameters by their folded names (`fields.fold`); the first of a name counts.

    `shown` has the names by which the text has some of them. `bare` are the folded names of those
    that have no ``=``: other programs take them for empty, so that they say nothing, which is told.
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
        """The first of the parameters that is given and not empty, or an empty text.

        The others count as used where they say the same.
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
        """Whether one of the parameters says yes."""
        is_on = False
        for name in names:
            if (key := _key(name)) in self._given:
                if key not in self._bare:
                    self._used.add(key)
                is_on = is_on or self._given[key][1].lower() in _YES
        return is_on

    def add(self, name: str, value: str) -> None:
        """Add what another parameter stands for, where it is not given itself."""
        self._given.setdefault(_key(name), (name, value))

    def leave(self, name: str) -> None:
        """Count a parameter as not used after all."""
        self._used.discard(_key(name))

    def has(self, name: str) -> bool:
        """Whether a parameter is given and not empty; it does not count as used by that."""
        return bool(self._given.get(_key(name), ("", ""))[1])

    def is_bare(self, name: str) -> bool:
        """Whether a parameter is given without a ``=``; as `has`."""
        return _key(name) in self._bare

    def is_given(self, name: str) -> bool:
        """Whether a parameter is given, though it may be empty; as `has`."""
        return _key(name) in self._given

    def shown(self, name: str) -> str:
        """The name by which the text has a parameter."""
        return self._shown.get(name, name)

    def unused(self) -> list[str]:
        """The names of parameters that ask for something and were not used.

        Raises Unreadable for one that would change what is sent or trusted.
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
    """The parameters of ``a=b&c=d``. A plus is a space, as Go's and Java's make it.

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
