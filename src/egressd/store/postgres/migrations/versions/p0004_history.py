"""The history of a site's state: members say which one they follow.

Two copies of a database, one of them restored to an older state, count the same revisions. A batch
of the log has an id that no other has, so that the batch of a revision names its whole history.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "p0004"
down_revision = "p0003"


def upgrade() -> None:
    """Add the batch that a member has in force, see that the log has that of each head, note which
    members have no gate, and let no other role connect.
    """
    # An older egressd would write to another history than its own, and delete the log's head.
    op.execute(f"UPDATE schema_reader SET min_reader = '{revision}'")  # noqa: S608 - ours
    op.add_column("beat", sa.Column("batch", sa.Uuid))
    # No member reads these edits: nothing of the log that is older is there.
    op.execute(
        """
        WITH bare AS (
            SELECT site, revision, gen_random_uuid() AS batch FROM meta WHERE NOT EXISTS (
                SELECT FROM change
                WHERE change.site = meta.site AND change.revision = meta.revision
            )
        ), batches AS (
            INSERT INTO edit_batch (site, id, format, edits)
            SELECT site, batch, 0, '' FROM bare
        )
        INSERT INTO change (site, revision, batch, member)
        SELECT site, revision, batch, (SELECT min(id) FROM member WHERE member.site = bare.site)
        FROM bare
        """
    )
    # The only member has no gate, whether or not it has said so.
    op.execute(
        """
        UPDATE member SET is_ungated = true WHERE NOT is_revoked AND NOT EXISTS (
            SELECT FROM member AS other
            WHERE other.site = member.site AND other.id <> member.id AND NOT other.is_revoked
        )
        """
    )
    # Each role that can connect can send notifications, and see who is connected. A database that
    # `egressd cluster init --local` has made is for nothing else.
    op.execute(
        """
        DO $$ BEGIN
            IF (SELECT datdba::regrole::text FROM pg_database WHERE datname = current_database())
                = 'egressd_owner'
            THEN
                EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database());
                EXECUTE format(
                    'GRANT CONNECT ON DATABASE %I TO egressd_member, egressd_guest',
                    current_database()
                );
            END IF;
        END $$
        """
    )
