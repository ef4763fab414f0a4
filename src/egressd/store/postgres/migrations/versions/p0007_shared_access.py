"""Certificate, API token, console password and sessions are the site's, not each member's.

All of it is sealed with the site's key. An older egressd goes on with its own.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0007"
down_revision = "p0006"

_GROUP = "egressd_member"


def upgrade() -> None:
    """Add the table, which each member reads and writes for its own site alone."""
    op.create_table(
        "shared_access",
        sa.Column(
            "site",
            sa.BigInteger,
            sa.ForeignKey("site.id"),
            nullable=False,
            server_default=sa.text("egressd_site()"),
        ),
        sa.Column("name", sa.Text(collation="C"), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("site", "name"),
    )
    op.execute("ALTER TABLE shared_access ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_site ON shared_access TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON shared_access TO {_GROUP}")
