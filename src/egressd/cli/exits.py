"""``egressd exits``."""

from __future__ import annotations

import click

from egressd.cli.output import json_option, show_json, show_rows
from egressd.cli.remote import Remote, over_api

_COLUMNS = {
    "name": "name",
    "ip": "address",
    "country": "country",
    "changed_at": "since",
    "shared_with": "shared with",
    "error": "error",
}
"""Field of the API -> column."""


@click.command()
@json_option
@over_api
def exits(remote: Remote, as_json: bool) -> None:
    """Print the address that each node, line and WAN in use leaves by, and since when.

    The service asks for them regularly; this command asks for nothing. An address with an error
    beside it is the last that was seen.
    """
    found = remote.get("/ops/exits")
    if as_json:
        show_json(found)
        return
    rows = [{_COLUMNS[f]: row[f] for f in _COLUMNS} for row in found["data"]]
    show_rows(rows, tuple(_COLUMNS.values()), as_json=False)
    if not found["check_interval_s"]:
        click.echo("exits are not asked for: check_interval_s of [exits] is 0", err=True)
