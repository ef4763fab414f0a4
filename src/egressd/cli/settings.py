"""``egressd settings``: the settings that concern every client."""

from __future__ import annotations

from typing import Any

import click

from egressd.cli.completing import targets
from egressd.cli.confirmation import ask_on_terminal, yes_option
from egressd.cli.output import done, json_option, show_fields
from egressd.cli.remote import Remote, over_api
from egressd.model.errors import Invalid
from egressd.model.nouns import DEFAULT_STRATEGIES

_PATH = "/ops/settings"


@click.group()
def settings() -> None:
    """Settings that concern every client."""


@settings.command()
@json_option
@over_api
def show(remote: Remote, *, as_json: bool) -> None:
    """Print the settings."""
    show_fields(remote.get(_PATH), as_json)


@settings.command("set")
@click.option(
    "--unmanaged",
    shell_complete=targets,
    help="The target of clients without a rule: REJECT, DIRECT, a node's name or another target.",
)
@click.option("--delay-url", help="The URL that is fetched to check nodes.")
@click.option("--check-interval-s", type=int, help="Seconds between two checks of a node.")
@click.option("--group-strategy", type=click.Choice(DEFAULT_STRATEGIES))
@click.option(
    "--sniff-domains/--no-sniff-domains",
    default=None,
    help="Whether the domains of the whitelist are looked for in clients' connections.",
)
@yes_option
@json_option
@over_api
def set_settings(remote: Remote, *, is_sure: bool, as_json: bool, **fields: Any) -> None:
    """Change the given settings; the others stay. On a terminal it asks before it changes where
    clients without a rule go.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if not given:
        raise Invalid("at least one setting must be given")
    now = remote.get(_PATH)
    target = given.get("unmanaged", now["unmanaged"])
    if target != now["unmanaged"]:
        question = f"All clients without a rule will be sent to {target}. Continue?"
        ask_on_terminal(question, is_sure=is_sure)
    done(remote.amend(_PATH, lambda found: {**found, **given}), as_json)
