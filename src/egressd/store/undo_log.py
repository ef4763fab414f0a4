"""The log of changes with their inverses, on a connection and inside its transaction.

A format has a number, as those of `edit_log` have, and is stored with the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Select, bindparam, insert, select, text

from egressd.model.undo import (
    CHANGES_KEPT,
    INVERSES_MAX,
    LoggedChange,
    PastChange,
    Reversal,
)
from egressd.model.wording import sentence_of
from egressd.store.edit_log import row_of
from egressd.store.rows import Execute
from egressd.store.schema import undo_log

FORMAT: Final = 1
"""The newest format of inverses that this egressd reads, and the one that it writes."""

_PACKED_FROM: Final = 2048
"""Bytes from which on an inverse is compressed."""
_TRIM_EVERY: Final = 32
"""Revisions after which what is too old is deleted, in place of after each one."""
_LARGE: Final = 128 * 1024
"""Bytes of an inverse after which there is made room at once."""
_ROOM: Final = INVERSES_MAX - _TRIM_EVERY * _LARGE
"""Bytes of inverses that are left then: what follows without making room fits into the rest."""
_PLAIN, _ZLIB = b"\0", b"\1"

_INSERT: Final = insert(undo_log)
_SHOWN: Final = [column for column in undo_log.c if column.name != "inverse"]
_LATEST: Final = select(*_SHOWN).order_by(undo_log.c.revision.desc()).limit(bindparam("number"))
_ONE: Final = select(*_SHOWN).where(undo_log.c.revision == bindparam("number"))
_UNDOING: Final = select(*_SHOWN).where(undo_log.c.undoes == bindparam("number"))
_FORGET: Final = [
    text(
        f"DELETE FROM undo_log WHERE undoes {kind} AND revision <= (SELECT revision FROM undo_log"  # noqa: S608 - ours
        f" WHERE undoes {kind} ORDER BY revision DESC LIMIT 1 OFFSET :kept)"
    )
    for kind in ("IS NULL", "IS NOT NULL")
]
_EMPTY: Final = text(
    "UPDATE undo_log SET inverse = NULL, size = 0 WHERE size > 0 AND revision IN ("
    "SELECT revision FROM ("
    " SELECT revision, sum(size) OVER (ORDER BY revision DESC) AS total FROM undo_log"
    # Mostly there is room, which is found out faster.
    " WHERE (SELECT sum(size) FROM undo_log) > :room"
    ") AS summed WHERE total > :room)"
)

Convert = Callable[[bytes], bytes]
"""Seals an inverse for the database, or opens it."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[tuple[str, int | str, Any, Any]])


def pack(inverse: Sequence[Reversal]) -> bytes:
    """Return an inverse as bytes of the format `FORMAT`."""
    content = _encoder.encode([(each.table, each.key, each.before, each.after) for each in inverse])
    if len(content) < _PACKED_FROM:
        return _PLAIN + content
    return _ZLIB + zlib.compress(content, 1)


def unpack(packed: bytes) -> list[Reversal]:
    """Return the inverse in bytes of the format `FORMAT`. Raises ValueError for others."""
    content = packed[1:]
    if packed[:1] == _ZLIB:
        try:
            content = zlib.decompress(content)
        except zlib.error as error:
            raise ValueError(f"an inverse is damaged: {error}") from error
    return [
        Reversal(table, key, row_of(table, before), after)
        for table, key, before, after in _decoder.decode(content)
    ]


def place_of_inverse(revision: int) -> str:
    """Return the place of an inverse, for its seal."""
    return f"undo_log/{revision}/inverse"


def write_logged(
    execute: Execute, change: LoggedChange, revision: int, seal: Convert | None = None
) -> None:
    """Add a change, and make room for it. Nothing waits for an answer."""
    inverse = pack(change.reversals)
    if seal is not None:
        inverse = seal(inverse)
    said = msgspec.to_builtins(change.text_coded)
    fits = len(inverse) <= _ROOM
    row = {
        "revision": revision,
        "at": change.at,
        "who": change.who,
        "source": change.source,
        "what": change.what,
        "text": str(change.text),
        "coded": said,
        "undoes": change.undoes,
        "format": FORMAT,
        "size": len(inverse) if fits else 0,
        "inverse": inverse if fits else None,
    }
    execute(_INSERT, row)
    if revision % _TRIM_EVERY == 0:
        for statement in _FORGET:
            execute(statement, {"kept": CHANGES_KEPT})
    if revision % _TRIM_EVERY == 0 or len(inverse) > _LARGE:
        execute(_EMPTY, {"room": _ROOM})


def read_latest(connection: Connection, number: int) -> list[PastChange]:
    """Return the latest changes, the last one first."""
    return _read(connection, _LATEST, number)


def read_about(connection: Connection, revision: int) -> list[PastChange]:
    """Return a change, those that undo it, those that undo these, and so on; none if there is no
    such change.
    """
    found = _read(connection, _ONE, revision)
    for each in found:  # which grows meanwhile
        found += _read(connection, _UNDOING, each.revision)
    return found


def _read(connection: Connection, query: Select[Any], number: int) -> list[PastChange]:
    return [
        PastChange(
            revision=row["revision"],
            at=row["at"],
            who=row["who"],
            source=row["source"],
            what=row["what"],
            text=sentence_of(row["coded"] or row["text"]),
            undoes=row["undoes"],
            has_inverse=row["size"] > 0,
        )
        for row in connection.execute(query, {"number": number}).mappings()
    ]


def read_inverse(
    connection: Connection, revision: int, unseal: Convert | None = None
) -> list[Reversal] | None:
    """Return the inverse of a change; None if there is none. Raises ValueError for one that no
    egressd of this version, or an older one, has written.
    """
    query = select(undo_log.c.format, undo_log.c.inverse).where(undo_log.c.revision == revision)
    found = connection.execute(query).one_or_none()
    if found is None or found.inverse is None:
        return None
    if found.format > FORMAT:
        raise ValueError("an inverse is of a newer egressd: upgrade this one")
    return unpack(found.inverse if unseal is None else unseal(bytes(found.inverse)))
