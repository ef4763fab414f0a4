"""The inverse of each change of a site's state, sealed with the site's key.

Changes that an older egressd makes meanwhile have none, and cannot be undone.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0008"
down_revision = "p0007"

_GROUP = "egressd_member"


def upgrade() -> None:
    """Add the table, which each member reads and writes for its own site alone."""
    op.create_table(
        "undo_log",
        sa.Column(
            "site",
            sa.BigInteger,
            sa.ForeignKey("site.id"),
            nullable=False,
            server_default=sa.text("egressd_site()"),
        ),
        sa.Column("revision", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.Text(collation="C"), nullable=False)
            for name in ("at", "who", "source", "what", "text")
        ),
        sa.Column("coded", sa.JSON),
        sa.Column("undoes", sa.BigInteger),
        sa.Column("format", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("inverse", sa.LargeBinary),
        sa.PrimaryKeyConstraint("site", "revision"),
    )
    # It is compressed before it is sealed.
    op.execute("ALTER TABLE undo_log ALTER COLUMN inverse SET STORAGE EXTERNAL")
    op.execute("ALTER TABLE undo_log ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_site ON undo_log TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON undo_log TO {_GROUP}")
