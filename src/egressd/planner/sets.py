"""The sets and maps of an nftables table: their declarations, and changes of their elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from egressd.planner.declared import SetSpec, comment_text
from egressd.planner.registry import NFT_TABLE

Elements = dict[str, dict[str, str]]
"""Set or map name -> key -> value (an empty string in a set)."""


class Sets:
    """The sets and maps of egressd's table of one family, and the table's comment."""

    def __init__(
        self, family: str, sets: Mapping[str, SetSpec], maps: Mapping[str, SetSpec], comment: str
    ) -> None:
        self.comment = comment
        self.sets = sets
        self.maps = maps
        self._table = f"{family} {NFT_TABLE}"
        self._specs = {**sets, **maps}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sets and maps, sets first."""
        return tuple(self._specs)

    @cached_property
    def ranges(self) -> frozenset[str]:
        """Names of those whose elements are ranges. They are flushed and filled again as a whole:
        adding one element to an interval set makes libnftables read all of it first."""
        return frozenset(n for n, each in self._specs.items() if "flags interval" in each.spec)

    def create(self) -> list[str]:
        """Return the commands that create the table and all of its sets; they leave existing ones
        alone.
        """
        return self.ensure(self._specs)

    def ensure(self, names: Iterable[str]) -> list[str]:
        """Return the commands that let a small transaction go on if the table or one of these sets
        is missing: with their comments, which a later `create` would not add.
        """
        return [
            f"add table {self._table} {{ {comment_text(self.comment)} }}",
            *(f"add {self._kind(n)} {self._table} {n} {self._specs[n].declared()}" for n in names),
        ]

    def update(self, before: Elements, after: Elements) -> str:
        """Return the transaction that leads from `before` to `after`; empty if nothing differs.

        Only the sets present in `after` are compared.
        """
        lines: list[str] = []
        for name, content in after.items():
            known = before.get(name, {})
            if content == known:
                continue
            if name in self.ranges:
                lines += self.refill(name, content)
            else:
                stale = [k for k, v in known.items() if content.get(k) != v]
                fresh = {k: v for k, v in content.items() if known.get(k) != v}
                lines += self.swap(name, stale, fresh)
        return "\n".join(lines) + "\n" if lines else ""

    def refill(self, name: str, content: Mapping[str, str]) -> list[str]:
        """Return the commands after which a set holds exactly `content`."""
        return [
            f"flush {self._kind(name)} {self._table} {name}",
            *self.swap(name, (), content),
        ]

    def swap(self, name: str, stale: Iterable[str], fresh: Mapping[str, str]) -> list[str]:
        """Return the commands that take keys out of a set, and put elements in."""
        lines = []
        if keys := ", ".join(stale):
            lines.append(f"delete element {self._table} {name} {{ {keys} }}")
        if items := ", ".join(f"{k} : {v}" if v else k for k, v in fresh.items()):
            lines.append(f"add element {self._table} {name} {{ {items} }}")
        return lines

    def _kind(self, name: str) -> str:
        return "map" if name in self.maps else "set"
