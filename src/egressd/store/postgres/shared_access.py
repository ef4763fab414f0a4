"""The texts that let users in at each member of a site, sealed: see `app.shared_access`.

A text has a version, which is part of the place that it is sealed for: an earlier one that is put
back in the database is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from egressd.store.postgres.connection import whole_conninfo
from egressd.store.postgres.site_link import LinkSession

_VERSIONS: Final = "SELECT name, version FROM shared_access"
_READ: Final = "SELECT name, version, value FROM shared_access WHERE name = ANY(%(names)s)"
# Nothing is written that was sealed with a key that the site has no more.
_PUT: Final = (
    "INSERT INTO shared_access (name, version, value) SELECT %(name)s, %(version)s, %(value)s"
    " WHERE EXISTS (SELECT FROM site WHERE key_id = %(key_id)s)"
    " ON CONFLICT (site, name) DO UPDATE SET version = excluded.version, value = excluded.value"
    " WHERE shared_access.version = %(after)s"
)
_DROP: Final = "DELETE FROM shared_access WHERE name = ANY(%(names)s)"


class SharedText(NamedTuple):
    """A sealed text in the site's database."""

    name: str
    version: int
    value: str

    @property
    def place(self) -> str:
        """The place that it is sealed for."""
        return place_of_shared(self.name, self.version)


def place_of_shared(name: str, version: int) -> str:
    """Return the place of a text, for its seal."""
    return f"shared_access/{name}/{version}"


class SharedAccessLink:
    """The texts of the site that the connection's role is a member of. Every method raises
    Failed.
    """

    def __init__(self, conninfo: str) -> None:
        self._session = LinkSession(whole_conninfo(conninfo))

    async def close(self) -> None:
        """Close the connection."""
        await self._session.close()

    async def versions(self) -> dict[str, int]:
        """Return the version of each text, by name."""
        async with self._session.connected() as connection:
            rows = await (await connection.execute(_VERSIONS)).fetchall()
        return {row.name: row.version for row in rows}

    async def read(self, names: Collection[str]) -> list[SharedText]:
        """Return the texts of these names, as far as they are there."""
        if not names:
            return []
        async with self._session.connected() as connection:
            rows = await (await connection.execute(_READ, {"names": list(names)})).fetchall()
        return [SharedText(row.name, row.version, row.value) for row in rows]

    async def put(self, text: SharedText, *, after: int, key_id: str) -> bool:
        """Write a text that was sealed with the key `key_id` in place of the version `after`, 0 if
        there is to be none. Return False, with nothing written, if another one or another key is
        there.
        """
        values = {**text._asdict(), "after": after, "key_id": key_id}
        async with self._session.connected() as connection:
            return (await connection.execute(_PUT, values)).rowcount == 1

    async def drop(self, names: Collection[str]) -> None:
        """Delete the texts of these names."""
        if names:
            await self._session.execute(_DROP, {"names": list(names)})
