"""The names of imported nodes: what cannot stand in a name is changed, and told."""

from __future__ import annotations

import unicodedata
from typing import Final

from egressd.formats.rows import Unreadable, trimmed
from egressd.model.names import NODE_NAME_MAX, node_name_problem, seen_name

_LOOKED_AT: Final = 4 * NODE_NAME_MAX
"""Characters of a name that are looked at: some may not be seen, and each has up to four in NFD
(UAX #15, 9). Of a longer text, putting its marks in order can take minutes."""
_NUMBER_MAX: Final = 7
"""Characters that a number needs: a text has 100,000 rows at most."""


class Names:
    """The names of a text's nodes, no two of which are the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        """The last number behind a name."""

    def take(self, own: str, address: str) -> tuple[str, list[str]]:
        """The name of the next node, which calls itself `own` or else by its `address`, and what
        was changed of it. Raises Unreadable.
        """
        notes = []
        given = trimmed(own)
        is_cut = len(given) > _LOOKED_AT
        given = given[:_LOOKED_AT]
        name = trimmed(seen_name(given))
        if name != given and name != unicodedata.normalize("NFC", given):
            notes.append("what cannot be seen was left out of the name")
        if not name and not address:
            raise Unreadable(f"name must be given: server:port has over {NODE_NAME_MAX} characters")
        name = name or address
        if "," in name:
            name = name.replace(",", " ").strip()
            notes.append("a comma in the name became a blank")
        if is_cut or len(name) > NODE_NAME_MAX:
            name = name[:NODE_NAME_MAX].rstrip()
            notes.append(f"the name was cut to {NODE_NAME_MAX} characters")
        if problem := node_name_problem(name):
            raise Unreadable(problem)
        if name in self._taken:
            name = self._numbered(name)
            notes.append(f"an earlier row has the name: this node is {name}")
        self._taken.add(name)
        return name, notes

    def _numbered(self, name: str) -> str:
        """`name` with the next number that makes it another's of nobody, from 2."""
        stem = name[: NODE_NAME_MAX - _NUMBER_MAX].rstrip()
        number = self._numbers.get(stem, 1) + 1
        while (numbered := f"{stem} {number}") in self._taken:
            number += 1
        self._numbers[stem] = number
        return numbered
