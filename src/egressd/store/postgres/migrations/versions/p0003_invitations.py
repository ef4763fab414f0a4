"""Invitations: a box without a role talks to a member through a row of its own.

A guest, the role of an invitation, reads that row until it expires, and writes its request there.
All texts in it are sealed with a secret that only the two boxes have.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0003"
down_revision = "p0002"

_GROUP, _GUESTS = "egressd_member", "egressd_guest"


def upgrade() -> None:
    """Add invitations, the guests' group, and the way by which a member leaves."""
    op.execute(
        f"""
        DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{_GUESTS}') THEN
                CREATE ROLE {_GUESTS} NOLOGIN;
            END IF;
        END $$
        """
    )
    # The id of the machine, by which a copy of a member's disk is found out.
    op.add_column("member", sa.Column("device", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "invitation",
        sa.Column("role_name", sa.Text, primary_key=True),
        sa.Column("site", sa.BigInteger, sa.ForeignKey("site.id"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        # The member that was made for it, until the box has confirmed that it joined.
        sa.Column("member", sa.BigInteger, sa.ForeignKey("member.id")),
        *(
            sa.Column(name, sa.Text, nullable=False, server_default="")
            for name in ("offer", "request", "answer", "outcome")
        ),
    )
    op.execute("ALTER TABLE invitation ENABLE ROW LEVEL SECURITY")
    own = "role_name = session_user AND expires_at > now()"
    op.execute(f"CREATE POLICY own_row ON invitation FOR SELECT TO {_GUESTS} USING ({own})")
    op.execute(
        f"CREATE POLICY own_answer ON invitation FOR UPDATE TO {_GUESTS}"
        f" USING ({own}) WITH CHECK ({own})"
    )
    op.execute(f"GRANT SELECT ON invitation, schema_reader, alembic_version TO {_GUESTS}")
    op.execute(f"GRANT UPDATE (request, outcome) ON invitation TO {_GUESTS}")
    op.execute(
        """
        CREATE FUNCTION egressd_leave() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            UPDATE member SET is_revoked = true, is_ungated = false WHERE role_name = session_user;
            IF FOUND THEN
                EXECUTE format('ALTER ROLE %I NOLOGIN', session_user);
            END IF;
        END $$
        """
    )
    op.execute(
        """
        DO $$ BEGIN
            EXECUTE format(
                'ALTER FUNCTION egressd_leave() SET search_path = %I, pg_temp', current_schema()
            );
        END $$
        """
    )
    op.execute("REVOKE ALL ON FUNCTION egressd_leave() FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION egressd_leave() TO {_GROUP}")
