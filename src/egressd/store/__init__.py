"""The durable storage of the desired state, and of the few secrets beside it.

Called by `app` and `cli`, which pass it to `service` as its ``Store``. Imports `model` and nothing
else of egressd's. A change that this room has acknowledged is on the disk; data that it cannot
trust it refuses to read (`Failed`), because rules that are read as absent would open the device.

- `database`: the SQLite database, one writer thread, backups.
- `occupancy`: the lock on the data directory, for one process at a time.
- `preparation`: everything that has to be read from the program's files, read at once.
- `migrating`, `migration_process`: the upgrade of an older database, by Alembic, in a process of
  its own.
- `own_process`: the command that runs a module here in a process of its own.
- `connection`: connections to SQLite, and the detection of a bad database.
- `schema`, `rows`: the tables, and nouns written to them and read back.
- `undo_log`, `trial`: changes with their inverses; the state before changes on trial.
- `migrations`: one Alembic revision a schema.
- `console`: the console's password and sessions, and the record of changes.
- `api_token`, `setup_code`, `trial_calls`, `files`: small files that are replaced whole.
"""
