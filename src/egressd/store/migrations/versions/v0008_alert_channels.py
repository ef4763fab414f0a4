"""The services that alerts are sent to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the table of channels."""
    op.create_table(
        "alert_channels",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("via", sa.Text, nullable=False),
        sa.Column("is_enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alert_channels"),
        sa.CheckConstraint("is_enabled IN (0, 1)", name="ck_alert_channels_switch"),
        sa.UniqueConstraint("name", name="uq_alert_channels_name"),
    )
