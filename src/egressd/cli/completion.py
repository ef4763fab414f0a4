"""``egressd completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes this program's commands and options.

    For bash: egressd completion bash > /etc/bash_completion.d/egressd
    """
    kind = get_completion_class(shell)
    assert kind is not None
    program = ctx.find_root()
    click.echo(kind(program.command, {}, "egressd", "_EGRESSD_COMPLETE").source())
