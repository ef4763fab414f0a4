"""A site can get another key: each member's row has it, sealed for that member.

An older egressd goes on with this schema until the site gets its first other key.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0005"
down_revision = "p0004"


def upgrade() -> None:
    """Add the envelope. A member reads its row already, and cannot write there."""
    op.add_column("member", sa.Column("key_envelope", sa.Text, nullable=False, server_default=""))
