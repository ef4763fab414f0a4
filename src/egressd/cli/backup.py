"""``egressd backup`` and ``egressd restore``."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from egressd.app import local_socket
from egressd.cli import config_option
from egressd.cli.confirmation import ask_on_terminal, yes_option
from egressd.cli.output import done, json_option
from egressd.cli.remote import DeviceRefusal, Remote
from egressd.model.desired import DesiredState
from egressd.model.errors import Failed, Invalid
from egressd.store.connection import BadDatabase
from egressd.store.database import Database
from egressd.store.files import prepare_directory
from egressd.store.occupancy import occupied

if TYPE_CHECKING:
    from egressd.app.config import Config

_START_S: Final = 10.0
"""Seconds that a service has from its start until it listens."""
_CONNECT_S: Final = 2.0

file_argument = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--every", help="Make a backup at this interval, 1h to 31d: 24h or 7d say.")
@click.option("--keep", type=int, help="The number of timed backups to keep. Default: 14.")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="The folder for them.")
@click.option("--off", "--never", "is_off", is_flag=True, help="End timed backups. Files stay.")
@json_option
@config_option
def backup(
    *,
    file: Path | None,
    every: str | None,
    keep: int | None,
    folder: Path | None,
    is_off: bool,
    path: Path | None,
    as_json: bool,
) -> None:
    """Write the whole configuration to FILE (mode 0600). The service may run or not.

    FILE contains every password. It is written whole or not at all.

    With --every, --keep and --to no FILE is given: a first backup is made in the folder at once,
    and one at each interval from then on. The oldest are removed. `status` has the last success and
    the next run.
    """
    from egressd.app import config

    settings = config.load(path)
    if every is not None or keep is not None or folder is not None or is_off:
        _timed(settings, file, every, keep, folder, is_off=is_off)
        return
    if file is None:
        raise Invalid("FILE must be given, or --every and --to for timed backups")
    database = Database(settings.api_data)
    asyncio.run(database.backup(file))
    done({"msg": f"backed up to {file}", "file": str(file)}, as_json)


def _timed(
    settings: Config,
    file: Path | None,
    every: str | None,
    keep: int | None,
    folder: Path | None,
    *,
    is_off: bool,
) -> None:
    from egressd.cli import timed_backup

    if file is not None:
        raise Invalid("FILE must not be given for timed backups: --to names their folder")
    if is_off:
        if every is not None or keep is not None or folder is not None:
            raise Invalid("--off must be given alone")
        action = timed_backup.switch_off
    else:
        if every is None:
            raise Invalid("--every must be given with --keep and --to: 24h say")
        wanted = timed_backup.schedule_of(every, keep, folder, settings.data.dir)

        def action(settings: Config) -> None:
            timed_backup.set_up(settings, wanted)

    if os.geteuid() != 0:
        raise click.ClickException("timed backups must be set up by root, who makes them")
    action(settings)


@click.command()
@file_argument
@click.option(
    "--set-aside",
    is_flag=True,
    help="Rename a database that is damaged, or a newer egressd's, and begin with a new one.",
)
@click.option(
    "--older",
    is_flag=True,
    help="Take names, and nodes, that an older egressd took and this one does not. Such nodes"
    " block their clients.",
)
@yes_option
@json_option
@config_option
def restore(
    *, file: Path, set_aside: bool, older: bool, is_sure: bool, as_json: bool, path: Path | None
) -> None:
    """Restore the backup FILE: it replaces the whole configuration. On a terminal it asks first.

    If the service runs, it restores the backup, which is in force when this command returns;
    otherwise the backup is in force once the service starts.
    """
    from egressd.app import accounts, config

    settings = config.load(path)
    ask_on_terminal("The whole configuration will be replaced. Continue?", is_sure=is_sure)
    owner = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid))
    said = asyncio.run(_restore(settings, file, set_aside=set_aside, older=older))
    done({"msg": said}, as_json)


async def _restore(settings: Config, file: Path, *, set_aside: bool, older: bool) -> str:
    def is_served() -> bool:
        return _is_there(settings.api_data)

    # An api that is starting holds the directory for some time before it listens.
    async with occupied(settings.api_data, _START_S, is_served) as is_held:
        if is_held:
            await _restore_offline(settings, file, set_aside=set_aside, older=older)
            return "backup restored; it will be in force when the service starts"
    if not is_served():
        raise Failed(
            f"put {file} back",
            f"a service works on {settings.api_data} and does not answer: restart it, or stop it",
        )
    return _restore_online(settings, file, older=older)


def _is_there(folder: Path) -> bool:
    """True if the api can be called."""
    with suppress(Failed), local_socket.connect(folder, _CONNECT_S):
        return True
    return False


async def _restore_offline(settings: Config, file: Path, *, set_aside: bool, older: bool) -> None:
    if settings.cluster.database:
        raise Failed(
            f"put {file} back",
            "the configuration is the site's: start the service, and restore then",
        )
    from egressd.app.surroundings import look_around
    from egressd.service.restored import RestoreChecks

    # A present listener may be the engine, for a state that is about to be replaced.
    checks = RestoreChecks(
        settings.own_ports,
        listening=lambda: (),
        around=lambda: look_around(settings.roles, settings.dns.local),
    )
    database = Database(settings.api_data)
    try:
        wanted = await database.read_backup(file)
        try:
            await database.open()
        except BadDatabase:
            if not set_aside:
                raise
            checks.refuse(wanted, DesiredState(), older=older)  # before anything is set aside
            await database.close()
            click.echo(f"the database is now {database.set_aside()}", err=True)
            database = Database(settings.api_data)
            await database.open()
        checks.refuse(wanted, await database.load(), older=older)
        await database.restore(wanted)
    finally:
        await database.close()


def _restore_online(settings: Config, file: Path, *, older: bool) -> str:
    """Have the running service restore the file, and return its message. Raises Failed."""
    action = f"put {file} back"
    try:
        content = file.read_bytes()
    except OSError as error:
        raise Failed(action, str(error)) from error
    device = Remote.here(settings)
    try:
        path = "/ops/restore?older=true" if older else "/ops/restore"
        return str(device.upload(path, content, "application/vnd.sqlite3")["msg"])
    except (Invalid, DeviceRefusal) as error:
        raise Failed(action, str(error)) from error
    except (KeyError, TypeError):
        raise Failed(action, "what listens there is no egressd") from None
