"""``egressd whitelist``."""

from __future__ import annotations

from typing import IO

import click

from egressd.cli.completing import targets
from egressd.cli.confirmation import ask_on_terminal, yes_option
from egressd.cli.files import TEXT_FILE, read_text
from egressd.cli.output import done, json_option, show_json
from egressd.cli.remote import Remote, over_api
from egressd.formats.whitelist import split_entries

entries_argument = click.argument("entries", nargs=-1, required=True)


@click.group()
def whitelist() -> None:
    """Destinations that have their own egress for every client with a rule."""


@whitelist.command()
@json_option
@over_api
def show(remote: Remote, as_json: bool) -> None:
    """Print the target of the listed destinations, then one entry per line."""
    listed = remote.get("/whitelist")
    if as_json:
        show_json(listed)
        return
    click.echo(f"node: {listed['node']}")
    for entry in (*split_entries(listed["domains"]), *split_entries(listed["ips"])):
        click.echo(entry)


@whitelist.command("set")
@click.option("--node", shell_complete=targets, help="DIRECT, a node's name or Group_NAME.")
@click.option("--domains", type=TEXT_FILE, help="A file of entries.")
@click.option("--ips", type=TEXT_FILE, help="A file of entries.")
@yes_option
@json_option
@over_api
def set_whitelist(
    remote: Remote,
    *,
    is_sure: bool,
    node: str | None,
    domains: IO[str] | None,
    ips: IO[str] | None,
    as_json: bool,
) -> None:
    """Replace the given parts; the others stay. Present connections are closed: on a terminal it
    asks first.
    """
    question = "The present connections of all clients with a rule will be closed. Continue?"
    ask_on_terminal(question, is_sure=is_sure)
    given = {} if node is None else {"node": node}
    for name, file in (("domains", domains), ("ips", ips)):
        if file is not None:
            given[name] = read_text(file)
    done(remote.amend("/ops/whitelist", lambda now: {**now, **given}), as_json)


@whitelist.command()
@entries_argument
@json_option
@over_api
def add(remote: Remote, entries: tuple[str, ...], as_json: bool) -> None:
    """Add ENTRIES: domains, https://DOMAIN:PORT, addresses or CIDRs."""
    done(remote.send("PATCH", "/ops/whitelist", {"add": entries}), as_json)


@whitelist.command()
@entries_argument
@json_option
@over_api
def delete(remote: Remote, entries: tuple[str, ...], as_json: bool) -> None:
    """Remove ENTRIES from the list."""
    done(remote.send("PATCH", "/ops/whitelist", {"remove": entries}), as_json)
