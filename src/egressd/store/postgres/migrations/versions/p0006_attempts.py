"""A member announces each change before its kernel gets it: until it says how that ended, another
member does not know what is in force there. And its row has the time of its role's last change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0006"
down_revision = "p0005"


def upgrade() -> None:
    """Add the number of the change that is being made, NULL if none is, and the time."""
    op.add_column("beat", sa.Column("attempt", sa.BigInteger))
    op.add_column("beat", sa.Column("role_since", sa.TIMESTAMP(timezone=True)))
