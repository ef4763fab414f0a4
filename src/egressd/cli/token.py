"""``egressd token``: the token that callers of the API send."""

from __future__ import annotations

from pathlib import Path

import click

from egressd.cli import config_option
from egressd.store.api_token import ApiToken
from egressd.store.files import prepare_directory


@click.group()
def token() -> None:
    """Show or reset the API token."""


@token.command()
@config_option
def show(path: Path | None) -> None:
    """Print the token. If there is none yet, one is made."""
    tokens = _tokens(path)
    tokens.ensure()
    click.echo(tokens.token())


@token.command()
@config_option
def reset(path: Path | None) -> None:
    """Make a new token and print it. The old one is invalid at once."""
    click.echo(_tokens(path).reset())


def _tokens(path: Path | None) -> ApiToken:
    from egressd.app import accounts, config

    settings = config.load(path)
    owner = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid))
    return ApiToken(settings.api_data)
