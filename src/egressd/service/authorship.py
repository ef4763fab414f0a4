"""The author of the change that is being made, for the record of changes.

Requests of one author are a task each, and the tasks that they start have the same author.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from egressd.model.console import ChangeRecord
from egressd.model.wording import Sentence

DEVICE: Final = "egressd"
"""The author of changes that the device makes by itself."""


class Author(msgspec.Struct, kw_only=True):
    """The author of changes, and what it has changed."""

    who: str
    source: str = "local"
    what: str = ""
    """Method and path of the request."""
    revision: int | None = None
    """The last change of the configuration that it has made."""

    def record(self, at: str, text: Sentence) -> ChangeRecord:
        """Return the record of what it has changed at a time."""
        return ChangeRecord(
            at=at,
            who=self.who,
            source=self.source,
            what=self.what,
            text=text,
            revision=self.revision,
        )


_author: Final[ContextVar[Author | None]] = ContextVar("author", default=None)


@contextmanager
def authored(author: Author) -> Iterator[Author]:
    """Have all changes in the block be of this author."""
    token = _author.set(author)
    try:
        yield author
    finally:
        _author.reset(token)


def current_author() -> Author:
    """Return the author of changes that are made now."""
    return _author.get() or Author(who=DEVICE)
