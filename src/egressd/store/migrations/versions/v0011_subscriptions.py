"""Lists of nodes that are fetched again and again, and the nodes that come from them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the table of subscriptions, and to each node where it comes from."""
    op.create_table(
        "subscriptions",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("user_agent", sa.Text, nullable=False),
        sa.Column("headers", sa.Text, nullable=False),
        sa.Column("group", sa.Text, nullable=False),
        sa.Column("interval_s", sa.Integer, nullable=False),
        sa.Column("via", sa.Text, nullable=False),
        sa.Column("include", sa.Text, nullable=False),
        sa.Column("exclude", sa.Text, nullable=False),
        sa.Column("rename", sa.JSON, nullable=False),
        sa.Column("gone", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_subscriptions"),
        sa.CheckConstraint("is_enabled IN (0, 1)", name="ck_subscriptions_switch"),
        sa.UniqueConstraint("name", name="uq_subscriptions_name"),
    )
    op.add_column(
        "nodes", sa.Column("subscription", sa.Integer, nullable=False, server_default="0")
    )
    for name in ("name_there", "gone_at"):
        op.add_column("nodes", sa.Column(name, sa.Text, nullable=False, server_default=""))
