"""``egressd events``: what has happened on the device, and what happens."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import click
import msgspec

from egressd.cli.output import json_option
from egressd.cli.remote import Remote, over_api
from egressd.model.errors import Failed
from egressd.model.times import utc_text

_AGAIN_S: Final = 2.0
"""Seconds until the device is asked again after its stream has ended."""
_LATEST: Final = "/ops/events/latest"


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Print what happens, until interrupted.")
@click.option(
    "--limit", type=click.IntRange(0, 500), default=50, show_default=True, help="Earlier ones."
)
@click.option("--topic", "topics", multiple=True, help="Only this topic, line for example.")
@json_option
@over_api
def events(
    remote: Remote, *, follow: bool, limit: int, topics: tuple[str, ...], as_json: bool
) -> None:
    """Print the latest events, the oldest first: changes of lines, WANs, nodes and groups, of the
    configuration, and what was repaired. The device keeps them until it starts anew.

    With --json each is an object in a line.
    """
    found = remote.get(_LATEST, limit=limit)["data"] if limit else []
    for event in reversed(found):
        _show(event, topics, as_json=as_json)
    with suppress(KeyboardInterrupt):
        while follow:
            try:
                for event in remote.stream("/ops/events?overview=0"):
                    _show({"at": utc_text(time.time()), **event}, topics, as_json=as_json)
            except Failed as error:
                click.echo(f"{error}: asking again", err=True)
            time.sleep(_AGAIN_S)


def _show(event: Mapping[str, Any], topics: Collection[str], *, as_json: bool) -> None:
    if topics and event["topic"] not in topics:
        return
    if as_json:
        click.echo(msgspec.json.encode(event))
    else:
        click.echo(f"{event['at']}  {event['topic']:<8}  {event['text']}")
