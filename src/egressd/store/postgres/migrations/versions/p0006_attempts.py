"""A member announces each change before its kernel gets it: until it says how that ended, another
member does not know what is in force there.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0006"
down_revision = "p0005"


def upgrade() -> None:
    """Add the number of the change that is being made; NULL if none is."""
    op.add_column("beat", sa.Column("attempt", sa.BigInteger))
