"""``egressd backup`` and ``egressd restore``."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from egressd.cli import config_option
from egressd.model.errors import Failed
from egressd.store.api_token import ApiToken
from egressd.store.database import Database
from egressd.store.files import prepare_directory

if TYPE_CHECKING:
    from egressd.app.config import Config

_ANSWER_S: Final = 120.0
"""Seconds that a running service may take to put a backup in force."""

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.command()
@file_argument
@config_option
def backup(file: Path, path: Path | None) -> None:
    """Write everything that is configured to FILE (mode 0600), whether the service runs or not.

    FILE holds every password. It appears whole or not at all.
    """
    from egressd.app import config

    database = Database(config.load(path).api_data)
    asyncio.run(database.backup(file))
    click.echo(f"backed up to {file}")


@click.command()
@file_argument
@click.option(
    "--set-aside",
    is_flag=True,
    help="Rename a database that cannot be opened, and begin with a new one.",
)
@config_option
def restore(file: Path, set_aside: bool, path: Path | None) -> None:
    """Put the backup FILE back: what is configured becomes what it holds.

    A running service is asked to do it, and it is in force when this returns; else it will be
    when the service starts.
    """
    from egressd.app import accounts, config

    settings = config.load(path)
    owner = accounts.account(settings.api.user)
    door = _door(settings.api.listen)
    if door is None:
        click.echo(_restore_online(settings, file))
        return
    with closing(door):
        prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid))
        asyncio.run(_restore_offline(settings.api_data, file, set_aside))
    click.echo("backup restored; it will be in force when the service starts")


def _door(endpoint: str) -> socket.socket | None:
    """The api's listening socket, taken so that no service serves meanwhile; None when one does.

    The api binds it before it reads the database, and serves only once it listens there. It
    cannot while we do: it ends, and is started again by its supervisor.
    """
    host, port, family = _address(endpoint)
    door = socket.socket(family, socket.SOCK_STREAM)
    try:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((host, port))
        door.listen()
    except OSError as error:
        door.close()
        if error.errno == errno.EADDRINUSE:
            return None
        reason = error.strerror or str(error)
        raise Failed(f"see whether a service listens at {endpoint}", reason) from error
    return door


def _address(endpoint: str) -> tuple[str, int, socket.AddressFamily]:
    host, _, port = endpoint.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    return host.strip("[]"), int(port), family


async def _restore_offline(folder: Path, file: Path, set_aside: bool) -> None:
    database = Database(folder)
    try:
        await database.read_backup(file)  # before anything is set aside for it
        try:
            await database.open()
        except Failed:
            if not set_aside:
                raise
            await database.close()
            click.echo(f"the database is now {database.set_aside()}", err=True)
            database = Database(folder)
            await database.open()
        await database.restore(file)
    finally:
        await database.close()


def _restore_online(settings: Config, file: Path) -> str:
    """Have the running service put the file back; what it says. Raises Failed."""
    action = f"put {file} back"
    token = ApiToken(settings.api_data).token()
    host, port, _ = _address(settings.api.listen)
    # Whoever listens at all addresses does so at the loopback's, too.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    connection = HTTPConnection(host, port, timeout=_ANSWER_S)
    try:
        content = file.read_bytes()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/vnd.sqlite3"}
        connection.request("POST", "/ops/restore", content, headers)
        answer = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError) as error:
        raise Failed(action, str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if not isinstance(answer, dict) or "msg" not in answer:
        reason = answer.get("error") if isinstance(answer, dict) else None
        raise Failed(action, str(reason or "what listens there is no egressd"))
    return str(answer["msg"])
