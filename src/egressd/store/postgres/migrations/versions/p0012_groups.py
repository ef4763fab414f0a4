"""The groups that have settings of their own are a part of a site's state."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0012"
down_revision = "p0011"

_GROUP = "egressd_member"


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(collation="C"), nullable=False)


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def upgrade() -> None:
    """Add the table of groups. Each member sees the rows of its own site alone."""
    # An older egressd would take a state without them for the whole.
    op.execute(f"UPDATE schema_reader SET min_reader = '{revision}'")  # noqa: S608 - ours
    op.create_table(
        "target_groups",
        sa.Column(
            "site",
            sa.BigInteger,
            sa.ForeignKey("site.id"),
            nullable=False,
            server_default=sa.text("egressd_site()"),
        ),
        _number("id"),
        _text("name"),
        _text("strategy"),
        sa.Column("members", sa.JSON, nullable=False),
        sa.Column("weights", sa.JSON, nullable=False),
        _text("filter"),
        _text("check_url"),
        _number("check_interval_s"),
        _number("tolerance_ms"),
        _number("failback_min"),
        _text("on_switch"),
        _number("rotate_every_s"),
        _text("created_at"),
        sa.PrimaryKeyConstraint("site", "id"),
        sa.UniqueConstraint("site", "name"),
    )
    op.execute("ALTER TABLE target_groups ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY own_site ON target_groups TO {_GROUP}"
        " USING (site = (SELECT egressd_site())) WITH CHECK (site = (SELECT egressd_site()))"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON target_groups TO {_GROUP}")
