"""Connections to PostgreSQL, and what must be true of the database at the other end."""

from __future__ import annotations

import select
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import conninfo, sql
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.pool import NullPool

from egressd.model.errors import Failed, Invalid

NEWEST: Final = "p0014"
"""The schema's revision that this egressd uses (a test compares it with the migrations)."""
CONNECT_S: Final = 3
"""Seconds that a connection may take to come about, for each address of the server."""
STATEMENT_MS: Final = 10_000
"""Milliseconds that a statement may take, a wait for another writer included. It does not bound a
COMMIT that waits for a synchronous standby: see `database.SiteDatabase`."""
IDLE_MS: Final = 90_000
"""Milliseconds that a transaction may be open without a statement: more than a change may take that
waits for netd."""
OTHER_HISTORY: Final = (
    "its history is another one than this box's: it was restored to an older state, or a standby"
    " took over that lacks changes"
)
"""The cause of a failure: the database lacks a change that this box has in force."""
IS_NEWER: Final = f"EXISTS (SELECT FROM schema_reader WHERE min_reader > '{NEWEST}' COLLATE \"C\")"
"""The SQL condition that the database's schema is for newer egressds only."""
TOO_NEW: Final = "its schema is of a newer egressd: upgrade this one"
"""The cause of a failure: `IS_NEWER`."""

_PARAMETERS: Final[dict[str, Any]] = {
    "application_name": "egressd",
    # libpq's own default goes on without TLS; on a socket of this machine none is used.
    "sslmode": "verify-full",
    "connect_timeout": CONNECT_S,
    # A server that is gone without a word is noticed within seconds, in a wait for an answer
    # (tcp_user_timeout, ms) and in silence (keepalives), see libpq's documentation, 34.1.2.
    "tcp_user_timeout": 4000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
    # Of several hosts, take the one that can be written to.
    "target_session_attrs": "read-write",
}


_SESSION: Final = {
    # The server notices, too, that this end is gone without a word: until it does, a transaction
    # that was open keeps its locks, and no other member can write. On a socket of the machine
    # these have no effect.
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": "4000",
    # A frozen process keeps its connection. A change waits in a transaction for netd's answer.
    "idle_in_transaction_session_timeout": str(IDLE_MS),
}
"""Settings of each session at the server."""


class Standing(NamedTuple):
    """The site and the member that a connection's role belongs to, and the database's schema."""

    site: str
    site_id: int
    key_id: str
    member: str
    member_id: int
    schema: str


def check_conninfo(given: str) -> None:
    """Raise Invalid for a text that libpq cannot read as a connection string."""
    try:
        conninfo.conninfo_to_dict(given)
    except psycopg.ProgrammingError as error:
        raise Invalid(f"cluster.database: {str(error).strip()}") from None


def whole_conninfo(given: str) -> str:
    """Return `given` with what every connection of egressd's has, unless it says otherwise."""
    return conninfo.make_conninfo(**{**_PARAMETERS, **conninfo.conninfo_to_dict(given)})


def engine_on(given: str) -> Engine:
    """Return an engine that connects as `given`, a connection string of libpq's, says."""
    whole = whole_conninfo(given)

    def connect() -> psycopg.Connection[Any]:
        connection = psycopg.connect(whole)
        try:
            connection.execute(session_settings(STATEMENT_MS))
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    return create_engine(
        "postgresql+psycopg://",
        creator=connect,
        poolclass=NullPool,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
    )


def session_settings(statement_ms: int, **more: str) -> sql.Composed:
    """Return the statements that set what each session has, and how long a statement may take."""
    settings = {**_SESSION, "statement_timeout": str(statement_ms), **more}
    return sql.SQL("; ").join(
        sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
        for name, value in settings.items()
    )


def channel_of(site_id: int) -> str:
    """Return the channel on which the members of a site hear of changes and acknowledgements."""
    return f"egressd_{site_id}"


def driver_of(connection: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's connection beneath SQLAlchemy's."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def has_ended(driver: psycopg.BaseConnection[Any]) -> bool:
    """True if the server is known to have ended a connection that is not in use: its farewell has
    arrived. Nothing is asked.
    """
    arrivals = select.poll()
    try:
        arrivals.register(driver.fileno(), select.POLLIN)
        while arrivals.poll(0):
            driver.pgconn.consume_input()  # raises at the end of the stream
    except psycopg.Error:
        return True
    return False


def check_server(connection: Connection, place: str) -> None:
    """Raise Failed unless a session's state lasts on this connection, and it can be written to."""
    action = f"use {place}"
    process = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    # A pooler tells a process id of its own, and each transaction may be another server process.
    if process != driver_of(connection).info.backend_pid:
        raise Failed(action, "a pooler is in between: connect to PostgreSQL itself")
    if connection.execute(text("SHOW transaction_read_only")).scalar_one() != "off":
        raise Failed(action, "it is read-only")


def check_schema(connection: Connection, place: str) -> str:
    """Return the schema. Raises Failed if it is not there, or another than this egressd uses."""
    action = f"use {place}"
    there = connection.execute(text("SELECT to_regclass('schema_reader') IS NOT NULL")).scalar_one()
    if not there:
        raise Failed(action, "it has no tables of egressd's: run egressd cluster init")
    schema, min_reader = connection.execute(
        text("SELECT version_num, min_reader FROM alembic_version, schema_reader")
    ).one()
    if min_reader > NEWEST:
        raise Failed(action, TOO_NEW)
    if schema < NEWEST:
        raise Failed(action, f"its schema {schema} is older: run egressd cluster migrate")
    return str(schema)


def standing(connection: Connection, place: str) -> Standing:
    """Return what the database says of the role that has logged in.

    Raises Failed if the schema is not there, if it is another one than this egressd uses, or
    if the role is no member's.
    """
    action = f"use {place}"
    schema = check_schema(connection, place)
    found = connection.execute(
        text(
            "SELECT site.name, site.id, site.key_id, member.name, member.id"
            " FROM member JOIN site ON site.id = member.site"
            " WHERE member.role_name = session_user AND NOT member.is_revoked"
        )
    ).one_or_none()
    if found is None:
        role = connection.execute(text("SELECT session_user")).scalar_one()
        raise Failed(action, f"the role {role} belongs to no member of a site")
    # The owner, a superuser and a role with BYPASSRLS would see, and replace, every site's rows.
    if not connection.execute(text("SELECT row_security_active('meta')")).scalar_one():
        raise Failed(action, "this box's role is not kept to its site: take one with no rights")
    name, site_id, key_id, member, member_id = found
    return Standing(name, site_id, key_id, member, member_id, schema)
