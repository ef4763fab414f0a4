"""The owner's work on the site's database: members have no right to any of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from psycopg import sql
from sqlalchemy import Connection, text

from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.postgres.connection import driver_of, engine_on

SCRIPTS: Final = Path(__file__).parent / "migrations"
GROUP: Final = "egressd_member"
"""The role that every member's role belongs to."""

_LOCK: Final = 0x45475244
"""The key of the advisory lock that one owner at a time holds: "EGRD"."""
_LOCK_MS: Final = 2000
"""Milliseconds to wait for locks: a migration must not stop the members for longer."""


def migrate(conninfo: str) -> None:
    """Bring the schema to the newest revision, in one transaction. `conninfo` connects as the
    owner. Raises Failed.
    """
    # Imported here: a running service never migrates, and need not keep Alembic in memory.
    from egressd.store.migrating import Migrations

    with as_owner(conninfo, "migrate the site's database") as connection:
        if connection.execute(text("SELECT to_regclass('meta') IS NOT NULL")).scalar_one():
            # A change that is under way ends before; a later one sees which egressd may write.
            # Beats, which share a lock on the table, go on.
            connection.execute(text("LOCK TABLE meta IN SHARE ROW EXCLUSIVE MODE"))
        Migrations(SCRIPTS).upgrade(connection)


def add_member(
    conninfo: str,
    *,
    site: str,
    key_id: str,
    member: str,
    role: str,
    certificate: str = "",
    device: str = "",
) -> None:
    """Make the site, the member and the role that it logs in as, as far as they are not there.

    `certificate` and `device` replace what the member had, unless they are empty. Raises Failed if
    site, member and role are there and belong together otherwise.
    """
    action = f"add the member {member} to the site {site}"
    with as_owner(conninfo, action) as connection:
        number, key = connection.execute(
            text(
                "INSERT INTO site (name, key_id) VALUES (:name, :key)"
                # An update that changes nothing returns the row that was there.
                " ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING id, key_id"
            ),
            {"name": site, "key": key_id},
        ).one()
        if key != key_id:
            raise Failed(action, "the site is there already, with another key than this box's")
        found = connection.execute(
            text(
                "SELECT site.name, member.name, role_name"
                " FROM member JOIN site ON site.id = member.site"
                " WHERE role_name = :role OR (site.name = :site AND member.name = :member)"
            ),
            {"role": role, "site": site, "member": member},
        ).all()
        if not found:
            create_role(connection, role)
            connection.execute(
                text(
                    # The only member's kernel lets clients through before it knows of a site.
                    "INSERT INTO member (site, name, role_name, is_ungated)"
                    " VALUES (:site, :name, :role, NOT EXISTS ("
                    " SELECT FROM member AS other WHERE other.site = :site"
                    " AND NOT other.is_revoked))"
                ),
                {"site": number, "name": member, "role": role},
            )
        elif [tuple(row) for row in found] != [(site, member, role)]:
            where, who, its = found[0]
            raise Failed(action, f"the role {its} is that of the member {who} of the site {where}")
        for column, value in (("certificate", certificate), ("device", device)):
            if value:
                connection.execute(
                    text(f"UPDATE member SET {column} = :value WHERE role_name = :role"),  # noqa: S608 - ours
                    {"value": value, "role": role},
                )


def revoke_member(conninfo: str, *, site: str, member: str, is_off: bool = False) -> None:
    """Take a member's right to the site, and end its connections. Repeat-safe.

    Its kernel lets clients through until its lease has run out, at most, and the other members wait
    for that. A kernel that needs no lease goes on without end. Raises Failed for such a member,
    unless `is_off`: its machine is off; and if there is no such member.
    """
    action = f"remove the member {member} from the site {site}"
    with as_owner(conninfo, action) as connection:
        found = connection.execute(
            text(
                "SELECT member.id, is_ungated FROM member JOIN site ON site.id = member.site"
                " WHERE site.name = :site AND member.name = :member"
            ),
            {"site": site, "member": member},
        ).one_or_none()
        if found is None:
            raise Failed(action, "there is no such member")
        if found.is_ungated and not is_off:
            raise Failed(
                action,
                "it lets clients through without a lease, and would go on by its old rules."
                " Start its service first; or switch the machine off, and give --is-off",
            )
        role = revoke(connection, found.id)
    # After the commit: a connection that is ended before could be made anew.
    with as_owner(conninfo, action) as connection:
        end_connections(connection, role)


def revoke(connection: Connection, member: int) -> str:
    """Take a member's right to its site, and return its role, whose connections stay."""
    role = connection.execute(
        text(
            "UPDATE member SET is_revoked = true, is_ungated = false WHERE id = :id"
            " RETURNING role_name"
        ),
        {"id": member},
    ).scalar_one()
    forbid_login(connection, role)
    return str(role)


def has_role(connection: Connection, role: str) -> bool:
    """True if the server has the role."""
    found = connection.execute(
        text("SELECT FROM pg_roles WHERE rolname = :role"), {"role": role}
    ).first()
    return found is not None


def forbid_login(connection: Connection, role: str) -> None:
    """Take a role's right to log in."""
    driver_of(connection).execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(role)))


def end_connections(connection: Connection, role: str) -> None:
    """End the connections of a role."""
    connection.execute(
        text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = :role"),
        {"role": role},
    )


def create_role(connection: Connection, role: str) -> None:
    """Make a role that may log in as a member, unless it is there."""
    name, group = sql.Identifier(role), sql.Identifier(GROUP)
    statements = [sql.SQL("GRANT {} TO {}").format(group, name)]
    if not has_role(connection, role):
        statements.insert(0, sql.SQL("CREATE ROLE {} LOGIN").format(name))
    for statement in statements:
        driver_of(connection).execute(statement)


@contextmanager
def as_owner(conninfo: str, action: str) -> Iterator[Connection]:
    """Yield a transaction that excludes every other owner's. Raises Failed."""
    with reported(action):
        engine = engine_on(conninfo)
        with engine.connect() as connection, connection.begin():
            connection.execute(text(f"SET LOCAL lock_timeout = {_LOCK_MS}"))
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield connection
