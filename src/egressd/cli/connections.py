"""``egressd connections``."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click

from egressd.cli.completing import rule_addresses
from egressd.cli.output import done, json_option, show_json, show_rows
from egressd.cli.remote import Remote, over_api

_PATH: Final = "/ops/connections"
_COLUMNS: Final = (
    "id",
    "protocol",
    "far_end",
    "exit",
    "via",
    "state",
    "sent",
    "received",
    "age_s",
)


@click.command()
@click.argument("client", metavar="IP", shell_complete=rule_addresses)
@click.option("--close", "wanted", type=click.IntRange(0), multiple=True, help="Close this id.")
@click.option("--close-all", "is_all", is_flag=True, help="Close all that it has.")
@json_option
@over_api
def connections(
    remote: Remote, *, client: str, wanted: tuple[int, ...], is_all: bool, as_json: bool
) -> None:
    """Print the live connections of the client IP, those of the most bytes first; or close some.

    Nothing keeps a client from opening new ones.
    """
    query = f"client={quote(client, safe='', errors='replace')}"
    if is_all:
        done(remote.send("DELETE", f"{_PATH}?{query}"), as_json)
        return
    for connection in wanted:
        done(remote.send("DELETE", f"{_PATH}/{connection}?{query}"), as_json)
    if wanted:
        return
    found = remote.get(_PATH, client=client)
    if as_json:
        show_json(found)
        return
    show_rows([_row(each) for each in found["data"]], _COLUMNS, as_json=False)
    shown = len(found["data"])
    if found["total"] > shown:
        click.echo(f"{found['total']} in all; these are the first {shown}", err=True)


def _row(each: dict[str, Any]) -> dict[str, Any]:
    port = f":{each['port']}" if each["port"] else ""
    arrow = "from " if each["is_inbound"] else ""
    unknown = {key: "" for key in ("sent", "received", "age_s") if each[key] is None}
    return {**each, **unknown, "far_end": f"{arrow}{each['ip']}{port}"}
