"""Questions before a command that cannot be undone."""

from __future__ import annotations

import sys

import click

from egressd.model.errors import Invalid


def confirm(question: str, *, err: bool = False) -> None:
    """Ask on the terminal, and abort unless the answer is yes. `err`: ask on standard error, since
    standard output is for a program. Raises Invalid where there is no terminal to ask on.
    """
    if not sys.stdin.isatty():
        raise Invalid("--yes must be given where there is no terminal to ask on")
    click.confirm(question, abort=True, err=err)
