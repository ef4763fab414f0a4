"""Changes on trial: the state to which they are taken back, until they are confirmed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table, which has one row while changes are on trial."""
    op.create_table(
        "trial",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("began_at", sa.Integer, nullable=False),
        sa.Column("minutes", sa.Integer, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_trial"),
        sa.CheckConstraint("id = 0", name="ck_trial_one_row"),
    )
