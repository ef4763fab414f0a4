"""``egressd restore`` of a device that does not run."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from egressd.cli import cli
from egressd.model.errors import Failed
from egressd.store import connection
from egressd.store.database import Database


def test_what_is_merely_locked_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_BUSY_SECONDS", 0)
    config, file = tmp_path / "egressd.toml", tmp_path / "file"
    listen = '[api]\nuser = "root"\nlisten = "127.0.0.1:9"\n'
    config.write_text(f'[data]\ndir = "{tmp_path}"\n{listen}')
    data = tmp_path / "api"

    async def back_up() -> None:
        database = Database(data)
        await database.open()
        await database.backup(file)
        await database.close()

    asyncio.run(back_up())
    before = [*data.iterdir()]
    with closing(sqlite3.connect(data / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        argv = ["restore", "--set-aside", "--config", str(config), str(file)]
        result = CliRunner().invoke(cli, argv)
    assert isinstance(result.exception, Failed), result.output
    assert "locked" in str(result.exception)
    assert {*before} <= {*data.iterdir()}
    assert [*data.glob("*bad*")] == []
