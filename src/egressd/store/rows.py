"""Conversion of nouns to rows and back, inside the caller's transaction."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Column, Connection, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from egressd.model import desired
from egressd.model.desired import DesiredState, Edit, highest_ids
from egressd.model.errors import Failed
from egressd.model.nouns import Line, Node, ProxyService, Rule, Settings, Whitelist
from egressd.store import schema

_ROWS: dict[str, tuple[Table, type[msgspec.Struct]]] = {
    "nodes": (schema.nodes, Node),
    "rules": (schema.rules, Rule),
    "lines": (schema.lines, Line),
    "services": (schema.proxy_services, ProxyService),
    "whitelist": (schema.whitelist, Whitelist),
}
"""`DesiredState` field -> table, and the noun of its rows. Columns are named as fields."""

_SHOWN = 200
"""Characters of a reason that may repeat stored text."""

_KEYS = select(func.json_each(bindparam("keys")).table_valued("value").c.value)
_DELETE = {name: delete(table).where(table.c.id.in_(_KEYS)) for name, (table, _) in _ROWS.items()}
_INSERT = {name: insert(table) for name, (table, _) in _ROWS.items()}


def found_database(connection: Connection) -> None:
    """Write the one row of `meta` into a database that has just been created."""
    row = {"id": 0, "revision": 0, "generation": str(uuid.uuid4())}
    connection.execute(insert(schema.meta), row)


def read_state(connection: Connection) -> DesiredState:
    """Return the stored state. Raises ValueError for a row that no egressd would have written."""
    tables: dict[str, dict[Any, Any]] = {
        name: dict(_read(connection, table, noun)) for name, (table, noun) in _ROWS.items()
    }
    saved = _pairs(connection, schema.settings.c.name, schema.settings.c.value)
    tables["settings"] = {0: msgspec.convert(saved, Settings)}
    numbers = _pairs(connection, schema.numbers.c.name, schema.numbers.c.number)
    tables["numbers"] = msgspec.convert(numbers, dict[str, int])
    counters = _pairs(connection, schema.counters.c.name, schema.counters.c.value)
    tables["last_ids"] = msgspec.convert(counters, dict[str, int])
    revision = connection.execute(select(schema.meta.c.revision)).scalar_one()
    for rule in tables["rules"].values():
        _check_address(rule)
    return desired.load(tables, msgspec.convert(revision, int))


def _check_address(rule: Rule) -> None:
    try:
        rule.network  # noqa: B018 - it is evaluated to find faults
    except ValueError as error:
        raise ValueError(f"rule {rule.id} has no address: {str(error)[:_SHOWN]}") from error


def _read(
    connection: Connection, table: Table, noun: type[msgspec.Struct]
) -> Iterable[tuple[int, Any]]:
    for row in connection.execute(select(table)).mappings():
        # Strict: SQLite would keep a text in an integer's column.
        yield row["id"], msgspec.convert(row, noun)


def _pairs(connection: Connection, key: Column[Any], value: Column[Any]) -> dict[Any, Any]:
    return {row[0]: row[1] for row in connection.execute(select(key, value))}


def write_edits(connection: Connection, edits: Sequence[Edit], revision: int) -> None:
    """Write `edits` as `revision`, which must follow the stored one (else Failed).

    All changed rows are deleted before any is inserted, so that rows may exchange names.
    """
    advanced = connection.execute(
        update(schema.meta).where(schema.meta.c.revision == revision - 1),
        {"revision": revision},
    )
    if advanced.rowcount != 1:
        raise Failed(
            "write to the database",
            f"it does not hold revision {revision - 1}: another program has written to it",
        )
    last = {(edit.table, edit.key): edit.after for edit in edits}
    for name in _ROWS:
        rows = {key: after for (table, key), after in last.items() if table == name}
        _replace(connection, name, rows)
    if (after := last.get(("settings", 0))) is not None:
        connection.execute(delete(schema.settings))
        values = msgspec.structs.asdict(after)
        connection.execute(
            insert(schema.settings), [{"name": n, "value": v} for n, v in values.items()]
        )
    numbers = {key: after for (table, key), after in last.items() if table == "numbers"}
    if numbers:
        connection.execute(
            insert(schema.numbers), [{"name": n, "number": v} for n, v in numbers.items()]
        )
    _raise_counters(connection, highest_ids(edits))


def _replace(connection: Connection, name: str, rows: dict[Any, Any]) -> None:
    if not rows:
        return
    connection.execute(_DELETE[name], {"keys": json.dumps(list(rows))})
    put = [
        {"id": key, **msgspec.structs.asdict(after)}
        for key, after in rows.items()
        if after is not None
    ]
    if put:
        connection.execute(_INSERT[name], put)


def _raise_counters(connection: Connection, highest: dict[str, int]) -> None:
    if not highest:
        return
    statement = upsert(schema.counters)
    statement = statement.on_conflict_do_update(
        index_elements=["name"],
        set_={"value": statement.excluded.value},
        where=statement.excluded.value > schema.counters.c.value,
    )
    connection.execute(statement, [{"name": n, "value": v} for n, v in highest.items()])
