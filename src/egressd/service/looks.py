"""What the names of one kind of thing look like, so that a new one can be told from all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from egressd.model.skeleton import skeleton
from egressd.service import checks

_NONE: Final[Mapping[str, Iterable[str]]] = {}


class Looks:
    """The names that there are, and those that an import adds.

    `thing` is what one of them is called. `names` are looked at now; those of `there` were already:
    skeleton -> names. `is_target` says whether rules name such things.
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
        """Whether there is a name that looks like this one."""
        return any(True for _ in self._like(str(name)))

    def add(self, name: str) -> None:
        """Note a name. Of several that look the same the first is told."""
        self._seen.setdefault(skeleton(name), name)

    def problems(self, name: str, own: str = "") -> Iterator[str]:
        """Why people could not tell a new name from the others. `own` is what the thing is called
        so far.
        """
        like = (other for other in self._like(name) if other != own)
        return checks.new_name("name", name, self._thing, like, is_target=self._is_target)

    def _like(self, name: str) -> Iterator[str]:
        look = skeleton(name)
        yield from self._there.get(look, ())
        if look in self._seen:
            yield self._seen[look]
