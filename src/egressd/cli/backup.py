"""``egressd backup`` and ``egressd restore``."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from egressd.cli import config_option
from egressd.cli.remote import Refused, Remote
from egressd.model.errors import Failed, Invalid
from egressd.store.api_token import ApiToken
from egressd.store.database import Database
from egressd.store.files import prepare_directory

if TYPE_CHECKING:
    from egressd.app.config import Config, Endpoint

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


def _door(endpoint: Endpoint) -> socket.socket | None:
    """The api's listening socket, taken so that no service serves meanwhile; None when one does.

    The api binds it before it reads the database, and serves only once it listens there. It
    cannot while we do: it ends, and is started again by its supervisor.
    """
    door = None
    try:
        door = endpoint.bind()
        door.listen()
    except OSError as error:
        if door is not None:
            door.close()
        if error.errno == errno.EADDRINUSE:
            return None
        reason = error.strerror or str(error)
        raise Failed(f"see whether a service listens at {endpoint}", reason) from error
    return door


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
    try:
        content = file.read_bytes()
    except OSError as error:
        raise Failed(action, str(error)) from error
    device = Remote(f"http://{settings.api.listen.here}", ApiToken(settings.api_data).token())
    try:
        return str(device.upload("/ops/restore", content, "application/vnd.sqlite3")["msg"])
    except (Invalid, Refused) as error:
        raise Failed(action, str(error)) from error
    except (KeyError, TypeError):
        raise Failed(action, "what listens there is no egressd") from None
