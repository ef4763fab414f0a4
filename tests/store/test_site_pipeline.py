"""Statements that are sent to PostgreSQL together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from egressd.store.postgres.connection import driver_of
from egressd.store.postgres.pipeline import Pipeline, pipelined_engine_on
from tests.store.rig import Site
from tests.support.postgres import OWNER

pytestmark = pytest.mark.slow

INSERT = text("INSERT INTO numbered VALUES (:n)")


@pytest.fixture
def connection(site: Site) -> Iterator[Connection]:
    """A connection to a database with the empty table `numbered`, of one session."""
    engine = pipelined_engine_on(site.server.conninfo(OWNER))
    with engine.connect() as connection:
        with connection.begin():
            connection.execute(text("CREATE TEMPORARY TABLE numbered (n BIGINT PRIMARY KEY)"))
        yield connection


def numbers(connection: Connection) -> list[int]:
    with connection.begin():
        return list(connection.execute(text("SELECT n FROM numbered ORDER BY n")).scalars())


def test_each_statement_gets_its_own_answer(connection: Connection) -> None:
    pipeline = Pipeline(connection)
    with pipeline.begin():
        added = pipeline.send(INSERT, [{"n": n} for n in range(3)])
        read = pipeline.send(text("SELECT n AS found FROM numbered WHERE n > :n"), {"n": 0})
        removed = pipeline.send(text("DELETE FROM numbered WHERE n = :n"), {"n": 9})
        assert (added.count, read.rows) == (-1, [])
        pipeline.finish()
        assert (added.count, removed.count) == (3, 0)
        assert sorted(row.found for row in read.rows) == [1, 2]
    assert numbers(connection) == [0, 1, 2]


def test_a_fault_ends_the_transaction_and_leaves_earlier_answers(connection: Connection) -> None:
    pipeline = Pipeline(connection)
    transaction = pipeline.begin()
    first = pipeline.send(INSERT, {"n": 1})
    second = pipeline.send(INSERT, {"n": 1})
    third = pipeline.send(INSERT, {"n": 2})
    with pytest.raises(DBAPIError, match="duplicate key"):
        pipeline.finish()
    assert (first.count, second.count, third.count) == (1, -1, -1)
    transaction.rollback()
    assert numbers(connection) == []


def test_a_pipeline_may_end_its_transaction(connection: Connection) -> None:
    pipeline = Pipeline(connection)
    with pipeline.begin():
        pipeline.send(INSERT, {"n": 1})
        pipeline.commit()
        pipeline.finish()
        connection.rollback()
    assert numbers(connection) == [1]


def test_more_than_the_sockets_hold_is_sent(connection: Connection) -> None:
    """Neither end waits for the other one to read."""
    pipeline = Pipeline(connection)
    content = "x" * 100_000
    with pipeline.begin():
        answers = [
            pipeline.send(text("SELECT CAST(:content AS text) AS content"), {"content": content})
            for _ in range(100)
        ]
        pipeline.finish()
    assert {row.content for answer in answers for row in answer.rows} == {content}


def test_a_connection_that_has_ended_is_a_fault(connection: Connection, site: Site) -> None:
    process = driver_of(connection).info.backend_pid
    pipeline = Pipeline(connection)
    transaction = pipeline.begin()
    pipeline.send(INSERT, {"n": 1})
    site.server.query(f"SELECT pg_terminate_backend({process}, 10000)")
    with pytest.raises(DBAPIError, match=r"terminating connection|server closed"):
        pipeline.finish()
    transaction.rollback()
