"""Refusals of the device in the words of the command that is refused."""

from __future__ import annotations

import re
from typing import Final

import click

_OF_ALL: Final = frozenset({"config_file", "url", "token", "cacert"})
"""The options that select a device: no field of a request is theirs."""


def with_options(text: str) -> str:
    """Return the device's refusal, sentences with semicolons between them, with the options of the
    present command in place of the fields that they set.
    """
    context = click.get_current_context(silent=True)
    for option in [] if context is None else context.command.params:
        if not isinstance(option, click.Option) or option.name is None or option.name in _OF_ALL:
            continue
        for field in {option.name.rstrip("_"), option.opts[0].removeprefix("--").replace("-", "_")}:
            # A field begins its sentence; within one, a name with an underscore is no other word.
            place = r"(?<![\w.-])" if "_" in field else r"(?:(?<=^)|(?<=; ))"
            text = re.sub(rf"{place}{re.escape(field)}(?![\w.])", option.opts[0], text)
    return text
