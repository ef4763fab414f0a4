"""The looks of the names of one kind of thing, to keep a new name distinguishable from all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from egressd.model.faults import Fault
from egressd.model.skeleton import skeleton
from egressd.service import checks

_NONE: Final[Mapping[str, Iterable[str]]] = {}


class Looks:
    """The existing names, and those that an import adds.

    `thing` is the word for one of them. The looks of `names` are computed now; those of `there` are
    given: skeleton -> names. `is_target`: True if rules name such things.
    """

    def __init__(
        self,
        thing: str,
        names: Iterable[str] = (),
        *,
        there: Mapping[str, Iterable[str]] = _NONE,
        is_target: bool = False,
    ) -> None:
        self._thing = thing
        self._there = there
        self._is_target = is_target
        self._seen: dict[str, str] = {}
        for name in names:
            self.add(name)

    def __contains__(self, name: object) -> bool:
        """True if there is a name that looks like this one."""
        return any(True for _ in self._like(str(name)))

    def add(self, name: str) -> None:
        """Add a name. Of several that look the same the first is reported."""
        self._seen.setdefault(skeleton(name), name)

    def problems(self, name: str, own: str = "") -> Iterator[Fault]:
        """Yield why users could confuse a new name with the others. `own` is the thing's current
        name.
        """
        like = (other for other in self._like(name) if other != own)
        return checks.new_name("name", name, self._thing, like, is_target=self._is_target)

    def _like(self, name: str) -> Iterator[str]:
        look = skeleton(name)
        yield from self._there.get(look, ())
        if look in self._seen:
            yield self._seen[look]
