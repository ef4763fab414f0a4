"""``egressd token``: the token that callers of the API send."""

from __future__ import annotations

from pathlib import Path

import click

from egressd.cli import config_option
from egressd.cli.output import json_option, show_json
from egressd.store.api_token import ApiToken
from egressd.store.files import prepare_directory


@click.group()
def token() -> None:
    """Show or reset the API token."""


@token.command()
@json_option
@config_option
def show(path: Path | None, *, as_json: bool) -> None:
    """Print the token. If there is none yet, one is made."""
    tokens = _tokens(path)
    tokens.ensure()
    _show(tokens.token(), as_json=as_json)


@token.command()
@json_option
@config_option
def reset(path: Path | None, *, as_json: bool) -> None:
    """Make a new token and print it. The old one is invalid at once."""
    _show(_tokens(path).reset(), as_json=as_json)


def _show(text: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"token": text})
    else:
        click.echo(text)


def _tokens(path: Path | None) -> ApiToken:
    from egressd.app import accounts, config

    settings = config.load(path)
    owner = accounts.account(settings.api.user)
    prepare_directory(settings.api_data, (owner.pw_uid, owner.pw_gid))
    return ApiToken(settings.api_data)
