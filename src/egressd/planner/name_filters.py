"""Patterns over nodes' names, by RE2: no pattern takes longer than the names are long.

The syntax is RE2's (github.com/google/re2/wiki/Syntax).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import re2

FILTER_MAX: Final = 500
"""Characters of a pattern."""
_MEMORY_MAX: Final = 1 << 20
"""Bytes that a compiled pattern may take."""
_REPLACED_MAX: Final = 2_000
"""Characters from which on a name is not replaced further: it grows up to 500 times by each
pattern."""
_PLACE: Final = re.compile(r"\\(.?)")
"""A backslash in a replacement, and what follows."""


def problem_of(pattern: str) -> str:
    """Return why RE2 refuses a pattern, in its own words; empty if it does not."""
    try:
        _compiled(pattern)
    except re2.error as error:
        return str(error.args[0].decode() if isinstance(error.args[0], bytes) else error)
    return ""


def is_found(pattern: str, name: str) -> bool:
    """True if the pattern is found in the name. A pattern that RE2 refuses matches nothing."""
    return found_in(pattern, [(0, name.encode())]) != []


def found_in(pattern: str, names: Iterable[tuple[int, bytes]]) -> list[int]:
    """Return the numbers of the names, in UTF-8, that the pattern is found in. In text RE2's Python
    binding would count characters for each name, which takes three times as long.
    """
    try:
        search = _compiled(pattern).search
    except re2.error:
        return []
    return [number for number, name in names if search(name) is not None]


def places_fit(pattern: str, replacement: str) -> bool:
    """True if a replacement refers to groups of the pattern alone, each as ``\\1``, and to the
    whole as ``\\0``; a backslash is ``\\\\``.
    """
    groups = _compiled(pattern).groups
    return all(
        place == "\\" or (place.isdecimal() and int(place) <= groups)
        for place in _PLACE.findall(replacement)
    )


def replaced(renaming: Mapping[str, str], name: str) -> str:
    """Return a name with each of the patterns replaced, one after the other. A name that has become
    far longer than a name can be is returned as it is then.
    """
    for pattern, replacement in renaming.items():
        if len(name) > _REPLACED_MAX:
            break
        parts, end = [], 0
        for match in _compiled(pattern).finditer(name):
            parts += [name[end : match.start()], _filled(replacement, match)]
            end = match.end()
        name = "".join((*parts, name[end:]))
    return name


def _filled(replacement: str, match: Any) -> str:
    return _PLACE.sub(
        lambda place: "\\" if place[1] == "\\" else match.group(int(place[1])) or "", replacement
    )


@lru_cache(1024)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_MAX
    return re2.compile(pattern, options)
