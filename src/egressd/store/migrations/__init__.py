"""The migrations from every schema that was ever released to the newest one.

A revision is a module in `versions`, named ``vNNNN_what``; its ``revision`` is ``NNNN`` and its
``down_revision`` the one before. There is no downgrade: an older egressd refuses a newer database,
and a backup restores the older state. A revision that changes a table does so in
``op.batch_alter_table`` (SQLite cannot alter in place), with every constraint named. All revisions
that a database lacks run in one transaction: if the process is killed, it is unchanged.
"""
