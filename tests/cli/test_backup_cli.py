"""``egressd restore`` of a device that does not run."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from egressd.cli import cli
from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, Invalid
from egressd.model.nouns import Node
from egressd.store import connection
from egressd.store.database import Database
from tests.support.api_device import TOKEN

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

CONFIG = '{"server": "203.0.113.7", "port": 1080}'
NOW = "2026-11-20T22:58:40Z"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration file of a device that does not run, and has its data in `tmp_path`."""
    file = tmp_path / "egressd.toml"
    listen = '[api]\nuser = "root"\nlisten = "127.0.0.1:9"\n'
    file.write_text(f'[data]\ndir = "{tmp_path}"\n{listen}')
    return file


def stored(folder: Path, edits: list[Edit], backup: Path | None = None) -> DesiredState:
    """The state in a device's database after `edits`, if there are any; its backup is made."""

    async def body() -> DesiredState:
        database = Database(folder)
        await database.open()
        if edits:
            await database.begin(edits, (await database.load()).revision + 1)
            await database.commit()
        if backup is not None:
            await database.backup(backup)
        state = await database.load()
        await database.close()
        return state

    return asyncio.run(body())


def test_a_backup_with_invalid_values_is_refused_unless_older_is_given(
    config: Path, tmp_path: Path
) -> None:
    file, data = tmp_path / "file", tmp_path / "api"
    old = Node(id=1, name="a", protocol="ss", config_json="{}", group="", created_at=NOW)
    stored(tmp_path / "old", [Edit("nodes", 1, old)], file)
    before = stored(data, [Edit("nodes", 3, None)])
    restore = ["restore", "--config", str(config), str(file)]
    result = CliRunner().invoke(cli, restore)
    assert isinstance(result.exception, Invalid), result.output
    assert "node 1: config_json.server must be" in str(result.exception)
    assert stored(data, []) == before
    (data / "state.db").write_bytes(b"damaged")
    result = CliRunner().invoke(cli, [*restore, "--set-aside"])
    assert isinstance(result.exception, Invalid), result.output
    assert (data / "state.db").read_bytes() == b"damaged"
    result = CliRunner().invoke(cli, [*restore, "--set-aside", "--older"])
    assert result.exit_code == 0, result.output
    assert stored(data, []).nodes[1] == old


@pytest.mark.parametrize("older", [(), ("--older",)])
def test_a_running_service_receives_the_older_option(
    shell: Shell, config: Path, tmp_path: Path, older: tuple[str, ...]
) -> None:
    file = tmp_path / "file"
    alike = [
        Node(id=key, name=name, protocol="socks5", config_json=CONFIG, group="", created_at=NOW)
        for key, name in enumerate(("hk-01", "hk-0l"), 1)
    ]
    stored(tmp_path / "old", [Edit("nodes", node.id, node) for node in alike], file)
    text = config.read_text()
    config.write_text(text.replace(str(tmp_path), str(shell.folder.parent)))
    (shell.folder / "token").write_text(TOKEN)
    service = os.open(shell.folder, os.O_RDONLY)  # it holds its directory
    try:
        fcntl.flock(service, fcntl.LOCK_EX)
        argv = ["restore", *older, "--config", str(config), str(file)]
        result = CliRunner().invoke(cli, argv)
    finally:
        os.close(service)
    names = [node.name for node in shell.device.bench.nodes.list()]
    if older:
        assert result.exit_code == 0, result.output or result.exception
        assert names == ["hk-01", "hk-0l"]
    else:
        assert "must not look like another's" in str(result.exception)
        assert names == []


def test_a_locked_database_is_not_set_aside(
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
