"""The names of imported nodes. Characters that a name cannot have are changed, and noted."""

from __future__ import annotations

import unicodedata
from typing import Final

from egressd.formats.rows import Unreadable, trimmed
from egressd.model.names import NODE_NAME_MAX, node_name_problem, seen_name
from egressd.model.wording import Sentence, say

_LOOKED_AT: Final = 4 * NODE_NAME_MAX
"""Characters of a name that are read. Some of them may be invisible, and each has up to four in NFD
(UAX #15, 9). Putting the marks of a longer text in order can take minutes.
"""
_NUMBER_MAX: Final = 7
"""Characters of a blank and a number behind a name. A text has 100,000 rows at most."""


class Names:
    """The names of a text's nodes, each of them unique. Unless they `are_checked`, a node may get
    one that no node can have, such as ``DIRECT`` or an empty one.
    """

    def __init__(self, *, are_checked: bool = True) -> None:
        self._are_checked = are_checked
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        """Name -> the last number given to it."""

    def take(self, own: str, address: str) -> tuple[str, list[Sentence]]:
        """Return the name of the next node, and the notes on the changes to it.

        The name is made from `own`, or from `address` if `own` is empty. Raises Unreadable.
        """
        notes: list[Sentence] = []
        given = trimmed(own)
        is_cut = len(given) > _LOOKED_AT
        given = given[:_LOOKED_AT]
        name = trimmed(seen_name(given))
        if name != given and name != unicodedata.normalize("NFC", given):
            notes.append(say("name-unseen-removed"))
        if "," in name:
            name = name.replace(",", " ").strip()
            notes.append(say("name-comma-replaced"))
        if not name and not address and self._are_checked:
            raise Unreadable(f"name must be given: server:port has over {NODE_NAME_MAX} characters")
        name = name or address
        if is_cut or len(name) > NODE_NAME_MAX:
            name = name[:NODE_NAME_MAX].rstrip()
            notes.append(say("name-cut", most=NODE_NAME_MAX))
        if self._are_checked and (problem := node_name_problem(name)):
            raise Unreadable(problem)
        if name in self._taken:
            name = self._numbered(name)
            notes.append(say("name-numbered", name=name))
        self._taken.add(name)
        return name, notes

    def _numbered(self, name: str) -> str:
        """Return `name` with the next free number, from 2."""
        stem = name[: NODE_NAME_MAX - _NUMBER_MAX].rstrip()
        number = self._numbers.get(stem, 1) + 1
        while (numbered := f"{stem} {number}") in self._taken:
            number += 1
        self._numbers[stem] = number
        return numbered
