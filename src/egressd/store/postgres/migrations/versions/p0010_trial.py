"""Changes of a site on trial: the state that they are taken back to, sealed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0010"
down_revision = "p0009"

_GROUP = "egressd_member"


def upgrade() -> None:
    """Add the table, which each member reads and writes for its own site alone."""
    op.create_table(
        "trial",
        sa.Column(
            "site",
            sa.BigInteger,
            sa.ForeignKey("site.id"),
            nullable=False,
            server_default=sa.text("egressd_site()"),
        ),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("id", "began_at", "minutes", "revision", "format")
        ),
        sa.Column("who", sa.Text(collation="C"), nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("site", "id"),
    )
    op.execute("ALTER TABLE trial ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_site ON trial TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON trial TO {_GROUP}")
