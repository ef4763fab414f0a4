"""The devices that rules belong to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column: rules that were made before belong to no device."""
    op.add_column("rules", sa.Column("bound_mac", sa.Text, nullable=False, server_default=""))
