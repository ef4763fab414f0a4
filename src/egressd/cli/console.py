"""``egressd console``: access to the web console from the device's own shell."""

from __future__ import annotations

from pathlib import Path

import click

from egressd.cli import config_option
from egressd.store.files import prepare_directory
from egressd.store.setup_code import SetupCode


@click.group()
def console() -> None:
    """The web console."""


@console.command()
@config_option
def code(path: Path | None) -> None:
    """Print the code that lets one person choose the console's password, once.

    If there is no code, one is made. With it a forgotten password can be replaced; all users are
    logged out then.
    """
    from egressd.app import accounts, config

    settings = config.load(path)
    owner = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid))
    codes = SetupCode(settings.api_data)
    click.echo(codes.code() or codes.renew())
