"""Conversion of nouns to rows and back, inside the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Executable,
    Table,
    Text,
    bindparam,
    delete,
    exists,
    insert,
    select,
    update,
)

from egressd.model import desired
from egressd.model.desired import DesiredState, Edit, highest_ids
from egressd.model.errors import WriteConflict
from egressd.model.nouns import (
    AlertChannel,
    Line,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)
from egressd.store import schema
from egressd.store.sealing import Seal

_ROWS: dict[str, tuple[Table, type[msgspec.Struct]]] = {
    "nodes": (schema.nodes, Node),
    "rules": (schema.rules, Rule),
    "lines": (schema.lines, Line),
    "services": (schema.proxy_services, ProxyService),
    "alert_channels": (schema.alert_channels, AlertChannel),
    "groups": (schema.target_groups, TargetGroup),
    "subscriptions": (schema.subscriptions, Subscription),
    "whitelist": (schema.whitelist, Whitelist),
}
"""`DesiredState` field -> table, and the noun of its rows. Columns are named as fields."""

_STATE = (
    *(table for table, _ in _ROWS.values()),
    schema.settings,
    schema.numbers,
    schema.counters,
    schema.meta,
)
"""Every table that holds a part of the state."""

SECRETS: Final = {
    "nodes": ("config_json", "change_ip_url"),
    "lines": ("password", "secret"),
    "services": ("password",),
    "alert_channels": ("url",),
    "subscriptions": ("url", "headers"),
}
"""`DesiredState` field -> the columns of its table that hold secrets."""

_SHOWN = 200
"""Characters of a reason that may repeat stored text."""

_DELETE = {
    name: delete(table).where(table.c.id == bindparam("key")) for name, (table, _) in _ROWS.items()
}
_INSERT = {name: insert(table) for name, (table, _) in _ROWS.items()}
_ADVANCE: Final = update(schema.meta).where(schema.meta.c.revision == bindparam("before"))
_RAISE: Final = (
    update(schema.counters)
    .where(schema.counters.c.name == bindparam("key"), schema.counters.c.value < bindparam("least"))
    .values(value=bindparam("least"))
)
_COUNT: Final = insert(schema.counters).from_select(
    ["name", "value"],
    select(bindparam("key", type_=Text), bindparam("least", type_=BigInteger)).where(
        ~exists().where(schema.counters.c.name == bindparam("key"))
    ),
)


class Execute(Protocol):
    """Executes a statement, now or later, with parameters or a list of them."""

    def __call__(self, statement: Executable, values: Any = None, /) -> object:
        """Execute it. What it returns may not be there yet, and is not looked at."""


def table_of(name: str) -> str:
    """Return the name of the table with the rows of a `DesiredState` field."""
    return str(_ROWS[name][0].name)


def found_database(connection: Connection) -> None:
    """Write the one row of `meta` into a database that has just been created."""
    row = {"id": 0, "revision": 0, "generation": str(uuid.uuid4())}
    connection.execute(insert(schema.meta), row)


def found_state(
    connection: Connection, state: DesiredState, generation: str, seal: Seal | None = None
) -> None:
    """Replace all that is stored by a whole state, with the ids and numbers it has. No earlier
    change can be undone in it.
    """
    for table in (*_STATE, schema.undo_log, schema.trial):
        connection.execute(delete(table))
    row = {"id": 0, "revision": state.revision - 1, "generation": generation}
    connection.execute(insert(schema.meta), row)
    edits = [
        Edit(name, key, row)
        for name in (*_ROWS, "numbers")
        if name != "whitelist"
        for key, row in getattr(state, name).items()
    ]
    edits += [Edit("whitelist", 0, state.whitelist), Edit("settings", 0, state.settings)]
    write_edits(connection, edits, state.revision, seal)
    _raise_counters(connection.execute, dict(state.last_ids))


def generation(connection: Connection) -> str | None:
    """Return the UUID that the stored state was founded with; None if there is no state yet."""
    found = connection.execute(select(schema.meta.c.generation)).scalar_one_or_none()
    return None if found is None else str(found)


def read_state(connection: Connection, seal: Seal | None = None) -> DesiredState:
    """Return the stored state, with the secrets opened that `seal` has closed. Raises ValueError
    for a row that no egressd would have written.
    """
    tables: dict[str, dict[Any, Any]] = {
        name: dict(_read(connection, name, seal)) for name in _ROWS
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


def _read(connection: Connection, name: str, seal: Seal | None) -> Iterable[tuple[int, Any]]:
    table, noun = _ROWS[name]
    for row in connection.execute(select(table)).mappings():
        # Strict: SQLite would keep a text in an integer's column.
        try:
            found = msgspec.convert(row, noun)
        except msgspec.ValidationError as error:
            raise ValueError(_in_short(str(error))) from error
        if seal is not None:
            secrets = {
                column: seal.open(getattr(found, column), place_of(name, column, row["id"]))
                for column in SECRETS.get(name, ())
            }
            found = msgspec.structs.replace(found, **secrets)
        yield row["id"], found


def _in_short(text: str) -> str:
    """Return a reason, which names the column at its end and may repeat a long value before."""
    half = _SHOWN // 2
    return text if len(text) <= _SHOWN else f"{text[:half]}…{text[-half:]}"


def place_of(name: str, column: str, id_: int) -> str:
    """Return the place of a secret, for its seal."""
    return f"{name}/{id_}/{column}"


def _pairs(connection: Connection, key: Column[Any], value: Column[Any]) -> dict[Any, Any]:
    return {row[0]: row[1] for row in connection.execute(select(key, value))}


def write_edits(
    connection: Connection, edits: Sequence[Edit], revision: int, seal: Seal | None = None
) -> None:
    """Write `edits` as `revision`, which must follow the stored one (else WriteConflict)."""
    values = {"revision": revision, "before": revision - 1}
    check_advanced(connection.execute(_ADVANCE, values).rowcount, revision)
    put_edits(connection.execute, edits, seal)


def check_advanced(count: int, revision: int) -> None:
    """Raise WriteConflict unless the stored revision is `revision` now, in `count` = 1 row."""
    if count != 1:
        raise WriteConflict(
            "write to the database",
            f"it does not hold revision {revision - 1}: another program has written to it",
        )


def put_edits(execute: Execute, edits: Sequence[Edit], seal: Seal | None = None) -> None:
    """Write `edits`, without a look at what is stored: nothing waits for an answer.

    All changed rows are deleted before any is inserted, so that rows may exchange names.
    """
    last = {(edit.table, edit.key): edit.after for edit in edits}
    for name in _ROWS:
        rows = {key: after for (table, key), after in last.items() if table == name}
        _replace(execute, name, rows, seal)
    if (after := last.get(("settings", 0))) is not None:
        execute(delete(schema.settings))
        values = msgspec.to_builtins(after)
        execute(insert(schema.settings), [{"name": n, "value": v} for n, v in values.items()])
    numbers = {key: after for (table, key), after in last.items() if table == "numbers"}
    if numbers:
        execute(insert(schema.numbers), [{"name": n, "number": v} for n, v in numbers.items()])
    _raise_counters(execute, highest_ids(edits))


def _replace(execute: Execute, name: str, rows: dict[Any, Any], seal: Seal | None) -> None:
    if not rows:
        return
    execute(_DELETE[name], [{"key": key} for key in rows])
    put = [
        {"id": key, **msgspec.structs.asdict(after)}
        for key, after in rows.items()
        if after is not None
    ]
    if seal is not None:
        for row in put:
            for column in SECRETS.get(name, ()):
                row[column] = seal.close(row[column], place_of(name, column, row["id"]))
    if put:
        execute(_INSERT[name], put)


def _raise_counters(execute: Execute, highest: dict[str, int]) -> None:
    raised = [{"key": name, "least": value} for name, value in highest.items()]
    if raised:
        execute(_RAISE, raised)
        execute(_COUNT, raised)
