"""Sites, their members, and each site's state.

The tables of the state are those of `store.schema`, with the site before each key. A member never
names a site: the default of the column and the policies take it from the role that has logged in
(``session_user``, which a member cannot change as it can a setting).
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "p0001"
down_revision = None

_GROUP = "egressd_member"
"""The role that every member's role belongs to."""
_MIN_READER = revision
"""The oldest schema whose egressd may still use a database of this one."""


def upgrade() -> None:
    """Create all tables, the members' group, and its rights."""
    op.execute(
        f"""
        DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{_GROUP}') THEN
                CREATE ROLE {_GROUP} NOLOGIN;
            END IF;
        END $$
        """
    )
    op.create_table("schema_reader", sa.Column("min_reader", sa.Text, nullable=False))
    op.execute(f"INSERT INTO schema_reader VALUES ('{_MIN_READER}')")  # noqa: S608 - ours
    op.create_table(
        "site",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("key_id", sa.Text, nullable=False),
    )
    op.create_table(
        "member",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("site", sa.BigInteger, sa.ForeignKey("site.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role_name", sa.Text, nullable=False, unique=True),
        sa.Column("is_revoked", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.UniqueConstraint("site", "name"),
    )
    # With its owner's rights, and with names that no other role can define before it is called
    # (CREATE FUNCTION, "Writing SECURITY DEFINER Functions Safely").
    op.execute(
        """
        CREATE FUNCTION egressd_site() RETURNS bigint LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
        BEGIN
            RETURN (SELECT site FROM member WHERE role_name = session_user AND NOT is_revoked);
        END $$
        """
    )
    op.execute(
        """
        DO $$ BEGIN
            EXECUTE format(
                'ALTER FUNCTION egressd_site() SET search_path = %I, pg_temp', current_schema()
            );
        END $$
        """
    )
    op.execute(f"GRANT SELECT ON site, member, schema_reader, alembic_version TO {_GROUP}")
    for table in ("site", "member"):
        column = "id" if table == "site" else "site"
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY own_site ON {table} FOR SELECT TO {_GROUP}"
            f" USING ({column} = (SELECT egressd_site()))"
        )
    _create_state()


def _create_state() -> None:
    named = [_text("name")]
    _table("nodes", _id(), *named, *_texts("protocol config_json group created_at"), unique="name")
    _table(
        "rules",
        _id(),
        *_texts("ip mac comment"),
        _switch(),
        _text("target_node"),
        _integer("upload_limit_kbps"),
        _integer("download_limit_kbps"),
        *_texts("created_at updated_at"),
        unique="ip",
    )
    _table(
        "lines",
        _id(),
        *_texts("type name server"),
        _integer("port"),
        *_texts("username password secret interface comment dns_profile"),
        sa.Column("dns_servers", sa.JSON, nullable=False),
        _switch(),
        unique="name",
    )
    _table(
        "proxy_services",
        _id(),
        *_texts("name outbound_interface"),
        _integer("port"),
        *_texts("username password"),
        _switch(),
        _text("created_at"),
        unique="name",
    )
    _table("whitelist", _id(), *_texts("domains ips node"))
    _table("settings", _text("name"), sa.Column("value", sa.JSON, nullable=False))
    _table("numbers", _text("name"), _integer("number"))
    _table("counters", _text("name"), _integer("value"))
    _table("meta", _id(), _integer("revision"), _text("generation"))


def _table(name: str, key: sa.Column[Any], *columns: sa.Column[Any], unique: str = "") -> None:
    """Create a table of which each member sees the rows of its own site alone."""
    site = sa.Column(
        "site",
        sa.BigInteger,
        sa.ForeignKey("site.id"),
        nullable=False,
        server_default=sa.text("egressd_site()"),
    )
    constraints: list[sa.Constraint] = [sa.PrimaryKeyConstraint("site", key.name)]
    if unique:
        constraints.append(sa.UniqueConstraint("site", unique))
    op.create_table(name, site, key, *columns, *constraints)
    op.execute(f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY")
    # In a sub-select the function is called once for a statement, not once for a row.
    op.execute(
        f"CREATE POLICY own_site ON {name} TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {_GROUP}")


def _id() -> sa.Column[Any]:
    return _integer("id")


def _integer(name: str) -> sa.Column[Any]:
    # The API's numbers go to 2^53.
    return sa.Column(name, sa.BigInteger, nullable=False)


def _text(name: str) -> sa.Column[Any]:
    # Compared as bytes, as SQLite does, whatever the database's collation is.
    return sa.Column(name, sa.Text(collation="C"), nullable=False)


def _texts(names: str) -> list[sa.Column[Any]]:
    return [_text(name) for name in names.split()]


def _switch() -> sa.Column[Any]:
    return sa.Column("is_enabled", sa.Boolean, nullable=False)
