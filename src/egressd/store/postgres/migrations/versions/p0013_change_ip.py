"""The pages by which nodes get another address."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0013"
down_revision = "p0012"


def upgrade() -> None:
    """Add the columns: nodes that were made before have no such page."""
    for name in ("change_ip_url", "change_ip_via"):
        op.add_column("nodes", sa.Column(name, sa.Text, nullable=False, server_default=""))
