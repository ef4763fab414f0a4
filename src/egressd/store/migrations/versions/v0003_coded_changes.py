"""The codes and values of recorded changes, beside their texts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column. Changes that were recorded before have only their text."""
    with op.batch_alter_table("changes", recreate="always") as changes:
        changes.add_column(sa.Column("coded", sa.JSON, nullable=True))
