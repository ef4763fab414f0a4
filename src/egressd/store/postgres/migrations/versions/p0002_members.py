"""Several members of one site: the log that they follow, and the beats that they watch.

``change`` has one row for each revision of a site's state, written with it. Its edits are in
``edit_batch``, sealed with the site's key. ``beat`` is unlogged: a crash of the server empties it,
and every member then joins anew (`egressd.service.membership`).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0002"
down_revision = "p0001"

_GROUP = "egressd_member"


def upgrade() -> None:
    """Add the log, the beats, and what members say of themselves."""
    # An older egressd would write the state without its log.
    op.execute(f"UPDATE schema_reader SET min_reader = '{revision}'")  # noqa: S608 - ours
    for column in (
        sa.Column("certificate", sa.Text, nullable=False, server_default=""),
        sa.Column("version", sa.Text, nullable=False, server_default=""),
        # The newest format of `edit_batch` that the member reads.
        sa.Column("format_max", sa.BigInteger, nullable=False, server_default="0"),
        # True while the member's kernel lets clients through without a lease.
        sa.Column("is_ungated", sa.Boolean, nullable=False, server_default=sa.false()),
    ):
        op.add_column("member", column)
    op.create_unique_constraint("uq_member_site_id", "member", ["site", "id"])
    op.execute(
        f"CREATE POLICY own_row ON member FOR UPDATE TO {_GROUP}"
        " USING (site = (SELECT egressd_site()) AND role_name = session_user)"
        " WITH CHECK (site = (SELECT egressd_site()) AND role_name = session_user)"
    )
    op.execute(f"GRANT UPDATE (version, format_max, is_ungated) ON member TO {_GROUP}")
    op.create_table(
        "edit_batch",
        _site(),
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("format", sa.BigInteger, nullable=False),
        sa.Column("edits", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("site", "id"),
    )
    op.create_table(
        "change",
        _site(),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("batch", sa.Uuid, nullable=False),
        sa.Column("member", sa.BigInteger, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("site", "revision"),
        sa.ForeignKeyConstraint(["site", "batch"], ["edit_batch.site", "edit_batch.id"]),
        sa.ForeignKeyConstraint(["site", "member"], ["member.site", "member.id"]),
    )
    op.create_index("ix_change_batch", "change", ["site", "batch"])
    op.create_table(
        "beat",
        _site(),
        sa.Column("member", sa.BigInteger, nullable=False),
        # Another one with each beat that may prolong the member's lease.
        sa.Column("n", sa.BigInteger, nullable=False),
        # The revision that is in force in the member's kernel.
        sa.Column("applied", sa.BigInteger, nullable=False),
        sa.Column("is_fenced", sa.Boolean, nullable=False),
        sa.Column("role", sa.Text, nullable=False, server_default=""),
        # Names of targets of the revision `applied` that cannot be in force at the member.
        sa.Column("blocked", sa.JSON, nullable=False, server_default="[]"),
        sa.PrimaryKeyConstraint("site", "member"),
        sa.ForeignKeyConstraint(["site", "member"], ["member.site", "member.id"]),
        prefixes=["UNLOGGED"],
    )
    for table, rights in (
        ("edit_batch", "SELECT, INSERT, DELETE"),
        ("change", "SELECT, INSERT, DELETE"),
        ("beat", "SELECT, INSERT, UPDATE"),
    ):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY own_site ON {table} TO {_GROUP}"
            " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
        )
        op.execute(f"GRANT {rights} ON {table} TO {_GROUP}")


def _site() -> sa.Column[int]:
    return sa.Column(
        "site",
        sa.BigInteger,
        sa.ForeignKey("site.id"),
        nullable=False,
        server_default=sa.text("egressd_site()"),
    )
