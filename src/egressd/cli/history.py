"""``egressd history``: the traffic of clients, targets and interfaces over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from egressd.cli.output import json_option, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.model.history import KEYS_MAX, LARGEST_MAX, STEPS, TOP_DAYS_MAX, HistoryStep

if TYPE_CHECKING:
    from collections.abc import Callable

_by = click.option("--by", type=click.Choice([*KEYS_MAX]), default="client", show_default=True)


def _hours(default: int, most: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--hours",
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        help="Hours to look back.",
    )


@click.group()
def history() -> None:
    """Print what clients, targets and interfaces have sent and received."""


@history.command()
@_by
@_hours(24, TOP_DAYS_MAX * 24)
@click.option("--limit", type=click.IntRange(1, LARGEST_MAX), default=20, show_default=True)
@json_option
@over_api
def top(remote: Remote, *, by: str, hours: int, limit: int, as_json: bool) -> None:
    """Print the clients, targets or interfaces with the most bytes."""
    found = remote.get("/ops/history/top", by=by, limit=limit, hours=hours)
    if as_json:
        show_json(found)
    else:
        show_rows(found["data"], ("key", "upload_bytes", "download_bytes"), as_json=False)


@history.command()
@click.argument("key")
@_by
@_hours(24, HistoryStep.DAY.kept * 24)
@click.option(
    "--step",
    type=click.Choice([*STEPS]),
    help="Length of slots. Default: the shortest that is kept for so long.",
)
@json_option
@over_api
def traffic(
    remote: Remote, *, key: str, by: str, hours: int, step: str | None, as_json: bool
) -> None:
    """Print the bytes of KEY (a rule's address, a target or an interface) over time."""
    asked = {"key": key, "by": by, "hours": hours, **({} if step is None else {"step": step})}
    found = remote.get("/ops/history/traffic", **asked)
    if as_json:
        show_json(found)
    else:
        show_rows(found["data"], ("at", "upload_bytes", "download_bytes"), as_json=False)
