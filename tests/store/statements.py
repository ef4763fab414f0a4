"""Every statement of the store, each run once."""

from __future__ import annotations

from sqlalchemy import Connection, select

from egressd.model.console import ChangeRecord, Session
from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import Line, Whitelist
from egressd.model.tokens import ScopedToken
from egressd.model.trial import ChangeTrial
from egressd.model.undo import LoggedChange, Reversal
from egressd.model.wording import NONE
from egressd.store import console, scoped_tokens, trial, undo_log
from egressd.store.rows import found_database, read_state, write_edits
from egressd.store.schema import meta

_LINE = Line(
    id=1,
    type="pptp",
    name="pptp_1",
    server="192.0.2.1",
    port=1723,
    username="",
    password="",
)
_EDITS = (
    Edit("lines", 1, _LINE),
    Edit("whitelist", 0, Whitelist()),
    Edit("numbers", "Group_a", 1),
)


def run_all(connection: Connection) -> None:
    """Run every statement on an empty database of the newest schema."""
    found_database(connection)
    write_edits(connection, _EDITS, read_state(connection).revision + 1)
    read_state(connection)
    _run_console(connection)
    token = ScopedToken(id="i", name="", digest="", scopes=("read",), created_at=0, created_by="")
    scoped_tokens.write_tokens(connection, [token])
    scoped_tokens.read_tokens(connection)
    scoped_tokens.drop_tokens(connection, ["i"])
    _run_undo_log(connection)
    revision = connection.execute(select(meta.c.revision)).scalar_one()
    begun = ChangeTrial(began_at=0, minutes=1, who="", revision=revision)
    trial.write_trial(connection, begun, DesiredState())
    trial.read_trial(connection)
    trial.read_trial_state(connection)
    trial.drop_trial(connection)


def _run_console(connection: Connection) -> None:
    session = Session(key="k", id="i", source="", agent="", created_at=0, seen_at=0)
    console.write_password(connection, "", session)
    console.write_seen(connection, {"k": 1})
    console.read_sessions(connection)
    console.drop_sessions(connection, ["k"])
    console.read_password(connection)
    record = ChangeRecord(at="", who="", source="", what="", text=NONE)
    console.write_changes(connection, [record])
    console.read_changes(connection, 1)


def _run_undo_log(connection: Connection) -> None:
    reversals = [Reversal("whitelist", 0, Whitelist(), {})]
    change = LoggedChange(at="", who="", source="", what="", text=NONE, reversals=reversals)
    revision = undo_log._TRIM_EVERY  # at which the log is shortened, too
    undo_log.write_logged(connection.execute, change, revision)
    undo_log.read_latest(connection, 1)
    undo_log.read_about(connection, revision)
    undo_log.read_inverse(connection, revision)
