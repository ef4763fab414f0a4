"""``egressd console``: the way in to the web console, from the device's own shell."""

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

    Without a code one is made: with it a password that was forgotten can be replaced, and
    whoever is logged in is logged out then.
    """
    from egressd.app import accounts, config

    settings = config.load(path)
    owner = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid))
    codes = SetupCode(settings.api_data)
    click.echo(codes.code() or codes.renew())
