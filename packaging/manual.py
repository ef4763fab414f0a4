"""Write egressd's manual pages and completions: ``python manual.py FOLDER``.

A page for the program and one for each command, in man(7), from what ``--help`` says. FOLDER gets
``man1/*.1`` and the completions ``bash``, ``zsh`` and ``fish``.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from egressd import __version__
from egressd.cli import COMMANDS, cli


def escaped(text: str) -> str:
    """Return text that man(7) prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in text.splitlines())


def paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a docstring's paragraphs; those after ``\\b`` keep their line ends."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f".PP\n.nf\n{escaped(paragraph[2:])}\n.fi"
        else:
            yield f".PP\n{escaped(' '.join(paragraph.split()))}"


def page(context: click.Context) -> str:
    """Return the manual page of a command."""
    command = context.command
    name = context.command_path
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    short = command.get_short_help_str(limit=200).rstrip(".")
    lines = [
        f'.TH "{name.replace(" ", "-").upper()}" 1 "" "egressd {__version__}" "egressd"',
        ".SH NAME",
        escaped(f"{name.replace(' ', '-')} - {short}"),
        ".SH SYNOPSIS",
        escaped(usage),
        ".SH DESCRIPTION",
        *paragraphs(command.help or ""),
    ]
    params = [p for p in command.get_params(context) if isinstance(p, click.Option)]
    records = [param.get_help_record(context) for param in params]
    if options := [record for record in records if record is not None]:
        lines.append(".SH OPTIONS")
        for option, text in options:
            lines += [".TP", f"\\fB{escaped(option)}\\fR", escaped(text)]
    if subcommands := [*commands(context)]:
        lines.append(".SH COMMANDS")
        for each in subcommands:
            shown = each.command_path.replace(" ", "-")
            text = each.command.get_short_help_str(limit=200)
            lines += [".TP", f"\\fB{escaped(shown)}\\fR(1)", escaped(text)]
    lines += [".SH SEE ALSO", "/usr/share/doc/egressd/docs/operations.md"]
    return "\n".join(lines) + "\n"


def commands(context: click.Context) -> Iterator[click.Context]:
    """Yield a context for each command of a group, less those of other distributions."""
    if isinstance(context.command, click.Group):
        is_top = context.parent is None
        for name in COMMANDS if is_top else context.command.list_commands(context):
            command = context.command.get_command(context, name)
            if command is not None and not command.hidden:
                yield click.Context(command, info_name=name, parent=context)


def pages(context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield file name and text of the pages of a command and of all below it."""
    yield f"{context.command_path.replace(' ', '-')}.1", page(context)
    for each in commands(context):
        yield from pages(each)


def main(folder: Path) -> None:
    (folder / "man1").mkdir(parents=True)
    for name, text in pages(click.Context(cli, info_name="egressd")):
        (folder / "man1" / name).write_text(text)
    for shell in ("bash", "zsh", "fish"):
        kind = get_completion_class(shell)
        assert kind is not None
        (folder / shell).write_text(kind(cli, {}, "egressd", "_EGRESSD_COMPLETE").source())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
