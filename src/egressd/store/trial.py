"""The trial that goes on, on a connection and inside its transaction."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy import Connection, Executable, delete, insert, select

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, WriteConflict
from egressd.model.trial import ChangeTrial
from egressd.store import edit_log
from egressd.store.schema import meta, trial

PLACE: Final = "trial/0/state"
"""The place of the state that is kept, for its seal."""

DROP: Final[Executable] = delete(trial)
"""The statement that ends the trial."""

Convert = Callable[[bytes], bytes]
"""Seals a state for the database, or opens it."""


def write_trial(
    connection: Connection, begun: ChangeTrial, state: DesiredState, seal: Convert | None = None
) -> bool:
    """Begin a trial, whose changes are taken back to `state`. Return False, and write nothing, if
    there is one already. Raises WriteConflict if `state` is not the stored one.
    """
    # Nothing is changed until the end of the transaction.
    stored = connection.execute(select(meta.c.revision).with_for_update()).scalar_one()
    if connection.execute(select(trial.c.id)).first() is not None:
        return False
    if stored != begun.revision:
        raise WriteConflict(
            "begin a trial",
            f"the database is at revision {stored}, and this box at {begun.revision}: try again",
        )
    whole = _whole(state)
    packed = zlib.compress(edit_log.pack(whole), 1)
    if seal is not None:
        packed = seal(packed)
    row = {
        "id": 0,
        **msgspec.structs.asdict(begun),
        "format": edit_log.format_of(whole),
        "state": packed,
    }
    connection.execute(insert(trial), row)
    return True


def read_trial(connection: Connection) -> ChangeTrial | None:
    """Return the trial that goes on, or None."""
    columns = [trial.c[name] for name in ChangeTrial.__struct_fields__]
    row = connection.execute(select(*columns)).mappings().one_or_none()
    return None if row is None else ChangeTrial(**row)


def read_trial_state(connection: Connection, unseal: Convert | None = None) -> DesiredState | None:
    """Return the state that the trial's changes are taken back to; None without a trial. Raises
    ValueError for one that was not written by this egressd or an older one.
    """
    row = connection.execute(select(trial.c.revision, trial.c.format, trial.c.state)).one_or_none()
    if row is None:
        return None
    if row.format > edit_log.FORMAT:
        raise ValueError("the state before the trial is of a newer egressd: upgrade this one")
    packed = bytes(row.state)
    try:
        content = zlib.decompress(packed if unseal is None else unseal(packed))
    except zlib.error as error:
        raise ValueError(f"the state before the trial is damaged: {error}") from error
    return DesiredState().with_edits(edit_log.unpack(content), row.revision)


def drop_trial(connection: Connection) -> bool:
    """End the trial. Return False if there is none."""
    return connection.execute(DROP).rowcount > 0


def check_dropped(count: int) -> None:
    """Raise Failed unless `DROP` has deleted `count` = 1 row, beside the change that takes the
    trial's changes back.
    """
    if count != 1:
        raise Failed("take the changes on trial back", "they were confirmed, or taken back")


def _whole(state: DesiredState) -> list[Edit]:
    # `edits_to` knows every table, and leaves alone whether the device is stopped or open.
    edits = [edit for edit in DesiredState().edits_to(state) if edit.table != "last_ids"]
    return [*edits, Edit("settings", 0, state.settings)]
