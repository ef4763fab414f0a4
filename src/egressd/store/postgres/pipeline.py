"""Statements that are sent together, and whose answers come together (libpq's pipeline mode).

A database that is far away then costs one wait for all of them, in place of one for each
(PostgreSQL's documentation, 34.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.rows import namedtuple_row
from sqlalchemy import Connection, Engine, Executable, RootTransaction, event
from sqlalchemy.exc import DBAPIError

from egressd.store.postgres.connection import driver_of, engine_on

_PIPELINE: Final = "egressd_pipeline"
"""The execution option that has a statement's pipeline, and the key of `Connection.info` that has
the one that a transaction begins in.
"""
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"


class StatementAnswer:
    """The server's answer to one statement. Nothing is in it before the pipeline is sent."""

    def __init__(self) -> None:
        self.count = -1
        """Number of rows that it has returned or changed."""
        self.rows: list[Any] = []
        """The rows that it returns, as named tuples."""


class Pipeline:
    """Statements for one connection, in the order in which they are to be executed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sent: list[tuple[StatementAnswer, str, Any, bool]] = []

    def begin(self) -> RootTransaction:
        """Begin a transaction, with a statement of the pipeline."""
        self._connection.info[_PIPELINE] = self
        try:
            return self._connection.begin()
        finally:
            del self._connection.info[_PIPELINE]

    def send(self, statement: Executable, values: Any = None) -> StatementAnswer:
        """Add a statement, with its parameters or a list of them, and return its answer to be."""
        self._connection.execute(statement, values, execution_options={_PIPELINE: self})
        return self._sent[-1][0]

    def add(self, statement: str, parameters: Any, *, is_many: bool) -> None:
        """Add a statement as the driver is given it."""
        self._sent.append((StatementAnswer(), statement, parameters, is_many))

    def commit(self) -> None:
        """Add the end of the transaction: SQLAlchemy's own COMMIT then finds nothing to do."""
        self.add("COMMIT", None, is_many=False)

    def finish(self) -> None:
        """Send all, and fill the answers.

        Raises DBAPIError for the first statement that fails; the answers of those before it are
        there.
        """
        cursors: list[psycopg.Cursor[Any]] = []
        faults: list[psycopg.Error] = []
        driver = driver_of(self._connection)
        # The end of the block raises for the statements after the one that has failed.
        with _noted(faults), driver.pipeline(), _noted(faults):
            for _, statement, parameters, is_many in self._sent:
                cursors.append(cursor := driver.cursor(row_factory=namedtuple_row))
                (cursor.executemany if is_many else cursor.execute)(statement, parameters)
        for (answer, *_), cursor in zip(self._sent, cursors, strict=False):
            answer.count = cursor.rowcount
            if cursor.description:
                answer.rows = cursor.fetchall()
        if faults:
            if driver.closed:
                self._connection.invalidate(faults[0])
            raise DBAPIError(None, None, faults[0], hide_parameters=True) from faults[0]


@contextmanager
def _noted(faults: list[psycopg.Error]) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        faults.append(error)


def pipelined_engine_on(conninfo: str) -> Engine:
    """Return an engine with whose connections pipelines can be made."""
    engine = engine_on(conninfo)
    event.listen(engine, "connect", _leave_begin)
    event.listen(engine, "begin", _begin)
    event.listen(engine, "do_execute", _keep)
    event.listen(engine, "do_executemany", _keep)
    return engine


def _leave_begin(connection: psycopg.Connection[Any], _record: Any) -> None:
    # psycopg's own BEGIN, before the first statement, waits for its answer in a pipeline, too.
    connection.autocommit = True


def _begin(connection: Connection) -> None:
    pipeline: Pipeline | None = connection.info.get(_PIPELINE)
    if pipeline is None:
        connection.exec_driver_sql(_BEGIN)
    else:
        pipeline.add(_BEGIN, None, is_many=False)


def _keep(_cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    pipeline: Pipeline | None = context.execution_options.get(_PIPELINE)
    if pipeline is None:
        return False
    pipeline.add(statement, parameters, is_many=context.executemany)
    return True
