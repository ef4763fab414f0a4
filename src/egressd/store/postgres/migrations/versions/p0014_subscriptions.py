"""Lists of nodes that are fetched again and again are a part of a site's state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0014"
down_revision = "p0013"

_GROUP = "egressd_member"


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(collation="C"), nullable=False)


def upgrade() -> None:
    """Add the table of subscriptions, and to each node where it comes from. Each member sees the
    rows of its own site alone.
    """
    # An older egressd would take a state without them for the whole.
    op.execute(f"UPDATE schema_reader SET min_reader = '{revision}'")  # noqa: S608 - ours
    op.create_table(
        "subscriptions",
        sa.Column(
            "site",
            sa.BigInteger,
            sa.ForeignKey("site.id"),
            nullable=False,
            server_default=sa.text("egressd_site()"),
        ),
        sa.Column("id", sa.BigInteger, nullable=False),
        *map(_text, ("name", "url", "user_agent", "headers", "group")),
        sa.Column("interval_s", sa.BigInteger, nullable=False),
        *map(_text, ("via", "include", "exclude")),
        sa.Column("rename", sa.JSON, nullable=False),
        _text("gone"),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        _text("created_at"),
        sa.PrimaryKeyConstraint("site", "id"),
        sa.UniqueConstraint("site", "name"),
    )
    op.add_column(
        "nodes", sa.Column("subscription", sa.BigInteger, nullable=False, server_default="0")
    )
    for name in ("name_there", "gone_at"):
        op.add_column(
            "nodes", sa.Column(name, sa.Text(collation="C"), nullable=False, server_default="")
        )
    op.execute("ALTER TABLE subscriptions ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_site ON subscriptions TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON subscriptions TO {_GROUP}")
