"""The sealed texts that this box has in common with its site, and the record of those it knows.

The texts are in the site's database (`store.postgres.shared_access`), sealed with the site's key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.files import replace_durably
from egressd.store.postgres.shared_access import SharedText
from egressd.store.sealing import SiteSeal


class Seen(msgspec.Struct, frozen=True):
    """The version of a text that this box has last written or taken over, and its digest."""

    version: int = 0
    digest: str = ""


class AccessLink(Protocol):
    """The site's database, as `store.postgres.shared_access` has it. Every method raises Failed."""

    async def versions(self) -> dict[str, int]: ...

    async def read(self, names: Collection[str]) -> list[SharedText]: ...

    async def put(self, text: SharedText, *, after: int, key_id: str) -> bool: ...

    async def drop(self, names: Collection[str]) -> None: ...

    async def close(self) -> None: ...


class SiteTexts:
    """Reads and writes the site's texts. `record` is the file of what this box and its site had in
    common last, and `seal` returns the seal with the site's key of this moment.
    """

    def __init__(self, link: AccessLink, record: Path, seal: Callable[[], SiteSeal]) -> None:
        self._link = link
        self._record = record
        self._seal = seal
        self._seen: dict[str, Seen] | None = None

    async def read(self, names: Collection[str]) -> list[tuple[str, int, str]]:
        """Return name, version and text of each of these names, as far as they are there. Raises
        Failed.
        """
        found = await self._link.read(names)
        return [(each.name, each.version, self._opened(each)) for each in found]

    async def put(self, name: str, version: int, text: str, *, after: int) -> bool:
        """Write a text in place of the version `after`, 0 if there is to be none. Return False,
        with nothing written, if another one is there. Raises Failed.
        """
        seal = self._seal()
        made = SharedText(name, version, "")
        made = made._replace(value=seal.close(text, made.place))
        return await self._link.put(made, after=after, key_id=seal.key_id)

    async def drop(self, names: Collection[str]) -> None:
        """Delete texts. Raises Failed."""
        if names:
            await self._link.drop(names)

    def _opened(self, sealed: SharedText) -> str:
        try:
            return self._seal().open(sealed.value, sealed.place)
        except ValueError:
            # The site may have another key, which this box takes with the next change.
            raise Failed("read what members have in common", "the seal is another one") from None

    # --- The record. ----------------------------------------------------------------------

    @property
    def known(self) -> dict[str, Seen]:
        """The texts that this box and its site had in common last, by name."""
        if self._seen is None:
            self._seen = {}
            with suppress(OSError, msgspec.DecodeError):
                self._seen = msgspec.json.decode(self._record.read_bytes(), type=dict[str, Seen])
        return self._seen

    def known_below(self, prefix: str) -> Iterator[str]:
        """Yield the rest after `prefix` in each known name that begins with it."""
        return (name.removeprefix(prefix) for name in self.known if name.startswith(prefix))

    def note(self, name: str, version: int, text: str = "") -> None:
        """Note that this box and its site have a text in common. Raises Failed."""
        self.known[name] = Seen(version, digest_of(text))
        self._keep()

    def mark(self, names: Collection[str]) -> None:
        """Note names without a text. Raises Failed."""
        if names:
            self.known.update({name: Seen() for name in names})
            self._keep()

    def forget(self, names: Collection[str]) -> None:
        """Note that this box has nothing of these names any more. Raises Failed."""
        if names:
            for name in names:
                del self.known[name]
            self._keep()

    def _keep(self) -> None:
        with reported(f"write {self._record}"):
            replace_durably(self._record, msgspec.json.encode(self.known))


def digest_of(text: str) -> str:
    """Return the digest by which the record knows a text."""
    return hashlib.sha256(text.encode()).hexdigest()
