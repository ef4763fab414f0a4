"""The command line: ``egressd serve``, ``egressd token`` and the rest.

Sub-commands are imported when they are called, since a shell prompt should not wait for a database
library to load. Other distributions add commands by entry points of the group `GROUP`: egressd-lab
adds ``egressd lab``. Called by the console script; may import every room.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import click

from egressd import __version__
from egressd.model.errors import EgressdError

COMMANDS: Final = {
    "serve": "egressd.cli.serve:serve",
    "status": "egressd.cli.device:status",
    "history": "egressd.cli.history:history",
    "explain": "egressd.cli.device:explain",
    "rules": "egressd.cli.rules:rules",
    "nodes": "egressd.cli.nodes:nodes",
    "lines": "egressd.cli.lines:lines",
    "exits": "egressd.cli.exits:exits",
    "groups": "egressd.cli.groups:groups",
    "subscriptions": "egressd.cli.subscriptions:subscriptions",
    "alerts": "egressd.cli.alerts:alerts",
    "devices": "egressd.cli.devices:devices",
    "connections": "egressd.cli.connections:connections",
    "whitelist": "egressd.cli.whitelist:whitelist",
    "proxies": "egressd.cli.proxies:proxies",
    "settings": "egressd.cli.settings:settings",
    "events": "egressd.cli.events:events",
    "changes": "egressd.cli.changes:changes",
    "undo": "egressd.cli.changes:undo",
    "trial": "egressd.cli.trial:trial",
    "stop": "egressd.cli.device:stop",
    "start": "egressd.cli.device:start",
    "open": "egressd.cli.device:open_",
    "token": "egressd.cli.token:token",
    "tokens": "egressd.cli.tokens:tokens",
    "console": "egressd.cli.console:console",
    "backup": "egressd.cli.backup:backup",
    "restore": "egressd.cli.backup:restore",
    "check": "egressd.cli.check:check",
    "update": "egressd.cli.update:update",
    "uninstall": "egressd.cli.uninstall:uninstall",
    "config": "egressd.cli.configuration:config_",
    "cluster": "egressd.cli.cluster:cluster",
    "license": "egressd.cli.license:license_",
    "completion": "egressd.cli.completion:completion",
}
"""Command of egressd itself -> its object, as ``module:name``."""

GROUP: Final = "egressd.commands"

_NO_LAB: Final = (
    "No such command 'lab': the lab is a distribution of its own, which comes with a checkout of"
    " egressd and is installed by the checkout's script/setup."
)


@cache
def _added() -> dict[str, str]:
    """Return the commands of other distributions, as `COMMANDS` has egressd's own."""
    from importlib.metadata import entry_points  # egressd's own commands do not wait for it

    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which help lists them."""
        return [*COMMANDS, *sorted(_added().keys() - COMMANDS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, or None."""
        place = COMMANDS.get(cmd_name) or _added().get(cmd_name)
        if place is None:
            return None
        module, _, name = place.partition(":")
        command = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with. Raises click.UsageError if there is none."""
        if args[0] == "lab" and "lab" not in _added() and not ctx.resilient_parsing:
            ctx.fail(_NO_LAB)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
