"""Questions before a command that cannot be undone."""

from __future__ import annotations

import sys

import click

from egressd.model.errors import Invalid

yes_option = click.option("--yes", "is_sure", is_flag=True, help="Do not ask, also on a terminal.")


def is_terminal() -> bool:
    """Return whether an operator can be asked."""
    return sys.stdin.isatty()


def ask_on_terminal(question: str, *, is_sure: bool) -> None:
    """Ask on a terminal before what concerns every client, and abort unless the answer is yes. A
    script is not asked, nor is an operator who `is_sure`.
    """
    if is_terminal() and not is_sure:
        click.confirm(question, abort=True, err=True)


def confirm(question: str, *, err: bool = False) -> None:
    """Ask on the terminal, and abort unless the answer is yes. `err`: ask on standard error, since
    standard output is for a program. Raises Invalid where there is no terminal to ask on.
    """
    if not is_terminal():
        raise Invalid("--yes must be given where there is no terminal to ask on")
    click.confirm(question, abort=True, err=err)
