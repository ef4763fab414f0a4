"""The groups that have settings of their own."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table of groups."""
    op.create_table(
        "target_groups",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("members", sa.JSON, nullable=False),
        sa.Column("weights", sa.JSON, nullable=False),
        sa.Column("filter", sa.Text, nullable=False),
        sa.Column("check_url", sa.Text, nullable=False),
        sa.Column("check_interval_s", sa.Integer, nullable=False),
        sa.Column("tolerance_ms", sa.Integer, nullable=False),
        sa.Column("failback_min", sa.Integer, nullable=False),
        sa.Column("on_switch", sa.Text, nullable=False),
        sa.Column("rotate_every_s", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_target_groups"),
        sa.UniqueConstraint("name", name="uq_target_groups_name"),
    )
