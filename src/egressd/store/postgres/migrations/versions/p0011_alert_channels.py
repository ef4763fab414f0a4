"""The services that alerts are sent to are a part of a site's state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0011"
down_revision = "p0010"

_GROUP = "egressd_member"


def upgrade() -> None:
    """Add the table of channels. Each member sees the rows of its own site alone."""
    # An older egressd would take a state without them for the whole.
    op.execute(f"UPDATE schema_reader SET min_reader = '{revision}'")  # noqa: S608 - ours
    op.create_table(
        "alert_channels",
        sa.Column(
            "site",
            sa.BigInteger,
            sa.ForeignKey("site.id"),
            nullable=False,
            server_default=sa.text("egressd_site()"),
        ),
        sa.Column("id", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.Text(collation="C"), nullable=False)
            for name in ("name", "url", "via")
        ),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Text(collation="C"), nullable=False),
        sa.PrimaryKeyConstraint("site", "id"),
        sa.UniqueConstraint("site", "name"),
    )
    op.execute("ALTER TABLE alert_channels ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_site ON alert_channels TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON alert_channels TO {_GROUP}")
