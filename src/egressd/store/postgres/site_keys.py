"""Another key for a site: all that is sealed in its database is sealed anew.

It is a change of the site's state that changes nothing in it. A member that writes with the old key
finds that another change came first, follows it, and takes the new key on that way.
"""

# ruff: noqa: S608 - the statements are made of parts that are all here

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, text

from egressd.model.errors import Failed
from egressd.store import edit_log, rows
from egressd.store.postgres.connection import NEWEST, channel_of
from egressd.store.postgres.database import place_of_batch
from egressd.store.postgres.schema import as_owner
from egressd.store.postgres.shared_access import place_of_shared
from egressd.store.sealing import SiteSeal
from egressd.store.trial import PLACE as TRIAL_PLACE
from egressd.store.undo_log import place_of_inverse


class KeyHolder(NamedTuple):
    """A member that is to have the site's new key."""

    id: int
    name: str
    role: str
    certificate: str
    envelope: str
    """The one that it was given the site's key in; empty if it was given it when it joined."""


class Rotation:
    """The owner's work on a site's key. Every method raises Failed."""

    def __init__(self, owner: str, site: str) -> None:
        self._owner = owner
        self._site = site
        self._action = f"give the site {site} another key"

    def rotate(
        self,
        *,
        old: SiteSeal,
        new: SiteSeal,
        by: str,
        envelope: Callable[[KeyHolder], str],
    ) -> str:
        """Replace the key, in one transaction, and return the batch of that change.

        `by` is the member that asks for it, and `envelope` returns the new key sealed for a member.
        """
        with as_owner(self._owner, self._action) as connection:
            site, revision = self._locked(connection, old)
            holders = self._holders(connection, site)
            author = next((holder.id for holder in holders if holder.name == by), None)
            if author is None:
                raise Failed(self._action, f"this box's name, {by}, is no member's")
            values: list[dict[str, Any]] = [
                {"id": holder.id, "envelope": envelope(holder)} for holder in holders
            ]
            connection.execute(
                text("UPDATE member SET key_envelope = :envelope WHERE id = :id"), values
            )
            _reseal_state(connection, site, old, new)
            _reseal_log(connection, site, old, new)
            _reseal_access(connection, site, old, new)
            _reseal_inverses(connection, site, old, new)
            _reseal_trial(connection, site, old, new)
            batch = _add_change(connection, site, revision + 1, author, new)
            connection.execute(
                text("UPDATE site SET key_id = :key WHERE id = :site"),
                {"key": new.key_id, "site": site},
            )
            # An older egressd cannot take the new key.
            connection.execute(
                text("UPDATE schema_reader SET min_reader = greatest(min_reader, :newest)"),
                {"newest": NEWEST},
            )
            connection.execute(
                text("SELECT pg_notify(:channel, :revision)"),
                {"channel": channel_of(site), "revision": str(revision + 1)},
            )
        return batch

    def without(self, batch: str) -> tuple[list[str], list[str]]:
        """Return the names of the members that have not followed to the change `batch`: those that
        have shown since the server's last crash that they run, and the others.
        """
        with as_owner(self._owner, self._action) as connection:
            found = connection.execute(
                text(
                    "SELECT member.name, n IS NOT NULL AS has_run"
                    " FROM member JOIN site ON site.id = member.site"
                    " LEFT JOIN beat ON beat.member = member.id"
                    " WHERE site.name = :site AND NOT is_revoked AND coalesce(applied, -1) <"
                    " (SELECT revision FROM change WHERE change.site = site.id"
                    " AND batch = CAST(:batch AS uuid)) ORDER BY member.name"
                ),
                {"site": self._site, "batch": batch},
            ).all()
        running = [row.name for row in found if row.has_run]
        return running, [row.name for row in found if not row.has_run]

    def _locked(self, connection: Connection, old: SiteSeal) -> tuple[int, int]:
        """Return the site's id, and its revision, at which it stays until the transaction's end."""
        found = connection.execute(
            text("SELECT id, key_id FROM site WHERE name = :name"), {"name": self._site}
        ).one_or_none()
        if found is None:
            raise Failed(self._action, "the database has no such site")
        # `as_owner` excludes other rotations, and this lock the members' changes.
        revision = connection.execute(
            text("SELECT revision FROM meta WHERE site = :site FOR UPDATE"), {"site": found.id}
        ).scalar_one_or_none()
        if revision is None:
            raise Failed(
                self._action, "it has no configuration yet: restart the service of its first member"
            )
        if found.key_id != old.key_id:
            raise Failed(
                self._action,
                "this box has another key than the site's: if its service runs, try again",
            )
        return found.id, revision

    def _holders(self, connection: Connection, site: int) -> Sequence[KeyHolder]:
        found = connection.execute(
            text(
                "SELECT id, name, role_name, certificate, key_envelope FROM member"
                " WHERE site = :site AND NOT is_revoked ORDER BY id"
            ),
            {"site": site},
        )
        holders = [KeyHolder(*row) for row in found]
        for holder in holders:
            if not holder.certificate:
                raise Failed(
                    self._action,
                    f"the member {holder.name} has no certificate: it must join anew",
                )
        return holders


def _reseal_state(connection: Connection, site: int, old: SiteSeal, new: SiteSeal) -> None:
    for name, columns in rows.SECRETS.items():
        table = rows.table_of(name)
        found = connection.execute(
            text(f"SELECT id, {', '.join(columns)} FROM {table} WHERE site = :site"),
            {"site": site},
        ).all()
        values = []
        for row in found:
            changed: dict[str, Any] = {"row": row.id, "site": site}
            for column in columns:
                place = rows.place_of(name, column, row.id)
                changed[column] = new.close(old.open(getattr(row, column), place), place)
            values.append(changed)
        if values:
            put = ", ".join(f"{column} = :{column}" for column in columns)
            connection.execute(
                text(f"UPDATE {table} SET {put} WHERE site = :site AND id = :row"), values
            )


def _reseal_log(connection: Connection, site: int, old: SiteSeal, new: SiteSeal) -> None:
    found = connection.execute(
        # A migration has made empty ones, which no member reads.
        text("SELECT id, edits FROM edit_batch WHERE site = :site AND edits <> ''"),
        {"site": site},
    ).all()
    values = []
    for row in found:
        place = place_of_batch(row.id)
        values.append(
            {"id": row.id, "edits": new.close_bytes(old.open_bytes(row.edits, place), place)}
        )
    if values:
        connection.execute(text("UPDATE edit_batch SET edits = :edits WHERE id = :id"), values)


def _reseal_access(connection: Connection, site: int, old: SiteSeal, new: SiteSeal) -> None:
    # A member that writes meanwhile sees afterwards that its key is not the site's any more.
    connection.execute(text("LOCK TABLE shared_access IN SHARE ROW EXCLUSIVE MODE"))
    found = connection.execute(
        text("SELECT name, version, value FROM shared_access WHERE site = :site"), {"site": site}
    ).all()
    values = []
    for row in found:
        place = place_of_shared(row.name, row.version)
        value = new.close(old.open(row.value, place), place)
        values.append({"site": site, "name": row.name, "value": value})
    if values:
        connection.execute(
            text("UPDATE shared_access SET value = :value WHERE site = :site AND name = :name"),
            values,
        )


def _reseal_inverses(connection: Connection, site: int, old: SiteSeal, new: SiteSeal) -> None:
    revisions = connection.execute(
        text("SELECT revision FROM undo_log WHERE site = :site AND inverse IS NOT NULL"),
        {"site": site},
    ).scalars()
    # One at a time: together they are large.
    for revision in revisions.all():
        key = {"site": site, "revision": revision}
        inverse = connection.execute(
            text("SELECT inverse FROM undo_log WHERE site = :site AND revision = :revision"), key
        ).scalar_one()
        place = place_of_inverse(revision)
        connection.execute(
            text(
                "UPDATE undo_log SET inverse = :inverse WHERE site = :site AND revision = :revision"
            ),
            {**key, "inverse": new.close_bytes(old.open_bytes(inverse, place), place)},
        )


def _reseal_trial(connection: Connection, site: int, old: SiteSeal, new: SiteSeal) -> None:
    # None begins meanwhile: a member that has sealed one with the old key is waited for.
    connection.execute(text("LOCK TABLE trial IN SHARE ROW EXCLUSIVE MODE"))
    found = connection.execute(
        text("SELECT state FROM trial WHERE site = :site"), {"site": site}
    ).scalar_one_or_none()
    if found is not None:
        state = new.close_bytes(old.open_bytes(found, TRIAL_PLACE), TRIAL_PLACE)
        connection.execute(
            text("UPDATE trial SET state = :state WHERE site = :site"),
            {"state": state, "site": site},
        )


def _add_change(
    connection: Connection, site: int, revision: int, author: int, seal: SiteSeal
) -> str:
    """Add a change without edits to the log, as the site's newest, and return its batch."""
    batch = uuid.uuid4()
    edits = seal.close_bytes(edit_log.pack(()), place_of_batch(batch))
    values = {"site": site, "batch": batch, "format": edit_log.format_of(()), "edits": edits}
    values |= {"revision": revision, "member": author}
    for statement in (
        "INSERT INTO edit_batch (site, id, format, edits) VALUES (:site, :batch, :format, :edits)",
        "INSERT INTO change (site, revision, batch, member)"
        " VALUES (:site, :revision, :batch, :member)",
        "UPDATE meta SET revision = :revision WHERE site = :site",
    ):
        connection.execute(text(statement), values)
    return str(batch)
