"""Invitations to a site: a row by which a member and a box without a role talk to each other.

The box logs in as a *guest*, a role that ends with the invitation, and whose password is the
token's: PostgreSQL keeps a hash of it, with its expiry. What the two write is sealed with the
token's secret (see `app.join_token`), which the database never has.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from psycopg import conninfo as libpq
from psycopg import sql
from sqlalchemy import Connection, text

from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.postgres.connection import (
    CONNECT_S,
    check_schema,
    check_server,
    driver_of,
    engine_on,
)
from egressd.store.postgres.schema import (
    as_owner,
    create_role,
    end_connections,
    forbid_login,
    has_role,
    revoke,
)

GUESTS: Final = "egressd_guest"
"""The role that every guest's role belongs to."""
VALID_S: Final = 900
"""Seconds that an invitation is valid."""
JOINED: Final = "joined"
"""The outcome of an invitation whose box is a member now."""
FARTHEST_S: Final = 1.0
"""Seconds that a round trip to the database may take: a quarter of a lease, since a beat is sent
that often."""
_CONNECT_S: Final = 10 * CONNECT_S
"""Seconds until a guest gives up a connection: a database that is too far away answers in time to
be measured."""
_NO_LOGIN: Final = ("authentication failed", "does not exist", "no pg_hba.conf entry")
"""Parts of PostgreSQL's answers to a role that is not there: which one depends on the lines of
``pg_hba.conf`` after ours."""
_LOOKS: Final = 3
"""Round trips of which the shortest counts."""


class Joiner(NamedTuple):
    """A box that asks for membership, as a member of the site writes it down."""

    member: str
    role: str
    certificate: str
    device: str


class Conversation(NamedTuple):
    """The texts of an invitation, empty as long as they are not written."""

    offer: str
    request: str
    answer: str
    outcome: str


class Invitation:
    """The side of an invitation that has the owner's rights. Every method raises Failed."""

    def __init__(self, owner: str, site: str) -> None:
        self._owner = owner
        self._site = site
        self.role = f"{GUESTS}_{secrets.token_hex(6)}"
        self._action = f"invite a box to the site {site}"

    def certificates(self) -> dict[str, str]:
        """Return member -> certificate, of all that are not revoked."""
        with as_owner(self._owner, self._action) as connection:
            rows = connection.execute(
                text(
                    "SELECT member.name, certificate FROM member JOIN site ON site.id = member.site"
                    " WHERE site.name = :site AND NOT is_revoked"
                ),
                {"site": self._site},
            )
            return {row.name: row.certificate for row in rows}

    def open(self, offer: str, password: str) -> None:
        """Make the guest's role and its row. Invitations that have expired are removed, with the
        members of boxes that did not confirm.
        """
        with as_owner(self._owner, self._action) as connection:
            site = connection.execute(
                text("SELECT id FROM site WHERE name = :name"), {"name": self._site}
            ).scalar_one_or_none()
            if site is None:
                raise Failed(self._action, "the database has no such site")
            query = text("SELECT revision FROM meta WHERE site = :site")
            if connection.execute(query, {"site": site}).first() is None:
                raise Failed(
                    self._action,
                    "it has no configuration yet: restart the service of its first member",
                )
            expired = text("SELECT role_name FROM invitation WHERE expires_at <= now()")
            for role in connection.execute(expired).scalars().all():
                _withdraw(connection, role)
            expiry = connection.execute(
                text(
                    "INSERT INTO invitation (role_name, site, expires_at, offer) VALUES"
                    " (:role, :site, now() + make_interval(secs => :seconds), :offer)"
                    " RETURNING expires_at::text"
                ),
                {"role": self.role, "site": site, "seconds": VALID_S, "offer": offer},
            ).scalar_one()
            driver = driver_of(connection)
            # Hashed here, so that no log of the server has the password itself.
            hashed = driver.pgconn.encrypt_password(
                password.encode(), self.role.encode(), b"scram-sha-256"
            )
            driver.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} VALID UNTIL {} IN ROLE {}").format(
                    sql.Identifier(self.role),
                    sql.Literal(hashed.decode()),
                    sql.Literal(expiry),
                    sql.Identifier(GUESTS),
                )
            )

    def read(self) -> Conversation | None:
        """Return the texts, or None once the invitation has expired."""
        with as_owner(self._owner, self._action) as connection:
            row = connection.execute(
                text(
                    "SELECT offer, request, answer, outcome FROM invitation"
                    " WHERE role_name = :role AND expires_at > now()"
                ),
                {"role": self.role},
            ).one_or_none()
            return None if row is None else Conversation(*row)

    def admit(self, joiner: Joiner, answer: str) -> None:
        """Make the box a member with a role that may log in, and answer it.

        Raises Failed, and changes nothing, if a member has that name, or that machine.
        """
        action = f"add the member {joiner.member} to the site {self._site}"
        with as_owner(self._owner, action) as connection:
            site = connection.execute(
                text("SELECT site FROM invitation WHERE role_name = :role"), {"role": self.role}
            ).scalar_one()
            rows = connection.execute(
                text("SELECT name, device, is_revoked, role_name FROM member WHERE site = :site"),
                {"site": site},
            ).all()
            for name, device, is_revoked, _ in rows:
                if name == joiner.member and not is_revoked:
                    raise Failed(action, "the site has a member of that name: give another")
                if device and device == joiner.device and not is_revoked:
                    raise Failed(
                        action,
                        f"it has the machine id of the member {name}: a copied disk needs an id of"
                        " its own. Remove /etc/machine-id and run systemd-machine-id-setup",
                    )
            create_role(connection, joiner.role)
            # The row of a member that was revoked is used again: the log refers to it. It has no
            # version before its first start as a member: until then it is as it was.
            number = connection.execute(
                text(
                    "INSERT INTO member (site, name, role_name, certificate, device)"
                    " VALUES (:site, :name, :role, :certificate, :device)"
                    " ON CONFLICT (site, name) DO UPDATE SET role_name = excluded.role_name,"
                    " certificate = excluded.certificate, device = excluded.device,"
                    " version = '', is_revoked = false RETURNING id"
                ),
                {
                    "site": site,
                    "name": joiner.member,
                    "role": joiner.role,
                    "certificate": joiner.certificate,
                    "device": joiner.device,
                },
            ).scalar_one()
            connection.execute(
                text(
                    "UPDATE invitation SET answer = :answer, member = :member"
                    " WHERE role_name = :role"
                ),
                {"answer": answer, "member": number, "role": self.role},
            )
            for old in (role for name, _, _, role in rows if name == joiner.member):
                _drop(connection, old)

    def refuse(self, answer: str) -> None:
        """Answer the box without making it a member."""
        with as_owner(self._owner, self._action) as connection:
            connection.execute(
                text("UPDATE invitation SET answer = :answer WHERE role_name = :role"),
                {"answer": answer, "role": self.role},
            )

    def close(self) -> None:
        """Remove the invitation and its role, and the member that was made for it unless the box
        has confirmed that it joined.
        """
        with as_owner(self._owner, self._action) as connection:
            _withdraw(connection, self.role)


class Guest:
    """The side of an invitation that has the token's rights alone. Every method raises Failed."""

    def __init__(self, conninfo: str, place: str) -> None:
        self._place = place
        given = libpq.conninfo_to_dict(conninfo)
        # With one server, `check_server` says more of one that is read-only than libpq does.
        state = "read-write" if "," in str(given.get("host", "")) else "any"
        more: dict[str, Any] = {"connect_timeout": _CONNECT_S, "target_session_attrs": state}
        self._engine = engine_on(libpq.make_conninfo(conninfo, **more))

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Stay connected in the block."""
        action = f"use {self._place}"
        with reported(action):
            try:
                opened = self._engine.connect()
            except Exception as error:
                if any(each in str(error) for each in _NO_LOGIN):
                    raise Failed(
                        action,
                        "the token was used, was withdrawn, or has expired: egressd cluster invite"
                        f" makes another ({str(error).strip()})",
                    ) from error
                raise
            with opened as self._connection:
                yield

    def check(self) -> None:
        """Raise Failed unless a member could work with the database."""
        action = f"use {self._place}"
        with reported(action):
            # The first one begins a transaction, which is a round trip more.
            took = min([self._round_trip() for _ in range(_LOOKS)])
            self._connection.rollback()
            if took > FARTHEST_S:
                raise Failed(
                    action,
                    f"it is too far away: a round trip takes {took:.1f} s, and a member needs less"
                    f" than {FARTHEST_S:g} s",
                )
            with self._connection.begin():
                check_server(self._connection, self._place)
                check_schema(self._connection, self._place)

    def read(self) -> Conversation:
        """Return the texts. Raises Failed once the invitation is not there."""
        action = f"use {self._place}"
        with reported(action), self._connection.begin():
            row = self._connection.execute(
                text(
                    "SELECT offer, request, answer, outcome FROM invitation"
                    " WHERE role_name = session_user"
                )
            ).one_or_none()
        if row is None:
            raise Failed(
                action,
                "the invitation is not there: it was withdrawn, or has expired, or this is the"
                " database of another site",
            )
        return Conversation(*row)

    def ask(self, request: str) -> None:
        """Write the request. Raises Failed if there is one: a token is used once."""
        action = f"use {self._place}"
        with reported(action), self._connection.begin():
            written = self._connection.execute(
                text(
                    "UPDATE invitation SET request = :request"
                    " WHERE role_name = session_user AND request = ''"
                ),
                {"request": request},
            )
            if written.rowcount != 1:
                raise Failed(action, "the token was used already")

    def end(self, outcome: str) -> None:
        """Write how the invitation ended: `JOINED`, or the reason why not."""
        with reported(f"use {self._place}"), self._connection.begin():
            self._connection.execute(
                text("UPDATE invitation SET outcome = :outcome WHERE role_name = session_user"),
                {"outcome": outcome},
            )

    def _round_trip(self) -> float:
        begun = time.monotonic()
        self._connection.execute(text("SELECT 1"))
        return time.monotonic() - begun


def _withdraw(connection: Connection, role: str) -> None:
    ended = connection.execute(
        text("DELETE FROM invitation WHERE role_name = :role RETURNING member, outcome"),
        {"role": role},
    ).one_or_none()
    _drop(connection, role)
    if ended is None or ended.member is None or ended.outcome == JOINED:
        return
    made = revoke(connection, ended.member)
    gone = connection.execute(
        text(
            "DELETE FROM member WHERE id = :id"
            " AND NOT EXISTS (SELECT FROM change WHERE member = :id)"
            " AND NOT EXISTS (SELECT FROM beat WHERE member = :id)"
        ),
        {"id": ended.member},
    )
    if gone.rowcount:
        _drop(connection, made)


def _drop(connection: Connection, role: str) -> None:
    """Remove a role that has nothing in the database."""
    if not has_role(connection, role):
        return
    forbid_login(connection, role)
    end_connections(connection, role)
    driver_of(connection).execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
