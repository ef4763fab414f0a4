"""The inverse of each change, and the revisions of recorded changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add table and column. Changes that were made before cannot be undone."""
    with op.batch_alter_table("changes", recreate="always") as changes:
        changes.add_column(sa.Column("revision", sa.Integer, nullable=True))
    op.create_table(
        "undo_log",
        sa.Column("revision", sa.Integer, nullable=False, autoincrement=False),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("at", "who", "source", "what", "text")
        ),
        sa.Column("coded", sa.JSON, nullable=True),
        sa.Column("undoes", sa.Integer, nullable=True),
        sa.Column("format", sa.Integer, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("inverse", sa.LargeBinary, nullable=True),
        sa.PrimaryKeyConstraint("revision", name="pk_undo_log"),
    )
