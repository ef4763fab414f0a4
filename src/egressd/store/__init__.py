"""The durable home of the desired state, and of the few secrets beside it.

Called by `app` and `cli`, which hand it to `service` as its ``Store``. Imports `model` and
nothing else of ours. What this room answered is on the disk; what it cannot trust it
refuses to read (`Failed`), since rules that are read as absent would open the device.

- `database`: the SQLite database, one writer thread, backups.
- `occupancy`: who works on the data directory, one process at a time.
- `preparation`: everything that has to be read from the program's files, read at once.
- `connection`: how a connection is opened, and how a database is told from a bad one.
- `schema`, `rows`: the tables, and nouns written to them and read back.
- `migrations`: one Alembic revision a schema.
- `console`: the console's password and sessions, and the record of changes.
- `api_token`, `setup_code`, `trial_calls`, `files`: small files that are replaced whole.
"""
