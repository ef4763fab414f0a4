"""The command line: ``egressd serve``, ``egressd token``, ``egressd lab`` and the rest.

Sub-commands are imported when they are called, since a shell prompt should not wait for a database
library to load. Called by the console script; may import every room.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import click

from egressd import __version__
from egressd.model.errors import EgressdError

_LAZY = {
    "serve": "egressd.cli.serve:serve",
    "status": "egressd.cli.device:status",
    "explain": "egressd.cli.device:explain",
    "rules": "egressd.cli.rules:rules",
    "nodes": "egressd.cli.nodes:nodes",
    "lines": "egressd.cli.lines:lines",
    "whitelist": "egressd.cli.whitelist:whitelist",
    "proxies": "egressd.cli.proxies:proxies",
    "stop": "egressd.cli.device:stop",
    "start": "egressd.cli.device:start",
    "open": "egressd.cli.device:open_",
    "token": "egressd.cli.token:token",
    "console": "egressd.cli.console:console",
    "backup": "egressd.cli.backup:backup",
    "restore": "egressd.cli.backup:restore",
    "license": "egressd.cli.license:license_",
    "completion": "egressd.cli.completion:completion",
    "lab": "egressd_lab.commands:lab",
}
"""Command -> its object, as ``module:name``."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which help lists them."""
        return list(_LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, or None."""
        if cmd_name not in _LAZY:
            return None
        module, _, name = _LAZY[cmd_name].partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup)
@click.version_option(__version__, prog_name="egressd")
def cli() -> None:
    """Send each LAN client's traffic out by the egress that its rule names, or not at all."""


config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Configuration file. Default: /etc/egressd/egressd.toml if there is one.",
)


def main() -> None:
    """Run the command line. An EgressdError is printed as one line; the exit status is then 1."""
    try:
        cli()
    except EgressdError as error:
        click.echo(f"egressd: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
