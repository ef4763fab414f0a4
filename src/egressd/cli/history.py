"""``egressd history``: traffic, delays of nodes, and the states of parts over time."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from egressd.cli.output import json_option, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.model.history import BLOCKS, LARGEST_MAX, STEPS, TOP_DAYS_MAX, HistoryStep

if TYPE_CHECKING:
    from collections.abc import Callable

_step = click.option(
    "--step",
    type=click.Choice([*STEPS]),
    help="Length of slots. Default: the shortest that is kept for so long.",
)
_by = click.option("--by", type=click.Choice([*BLOCKS]), default="client", show_default=True)


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
    """Print what clients, targets and interfaces have sent and received, and how nodes, lines and
    groups were.
    """


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
@_step
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


@history.command()
@click.argument("node")
@_hours(24, HistoryStep.DAY.kept * 24)
@_step
@json_option
@over_api
def delays(remote: Remote, *, node: str, hours: int, step: str | None, as_json: bool) -> None:
    """Print the delay of NODE in milliseconds, and the seconds that it was up and down."""
    asked = {"hours": hours, **({} if step is None else {"step": step})}
    found = remote.get(f"/ops/history/nodes/{quote(node, safe='')}", **asked)
    if as_json:
        show_json(found)
        return
    rows = [
        {**row, "delay_ms": "" if row["delay_ms"] is None else row["delay_ms"]}
        for row in found["data"]
    ]
    show_rows(rows, ("at", "delay_ms", "up_s", "down_s"), as_json=False)


@history.command()
@click.argument("kind", type=click.Choice(["node", "line", "group"]))
@click.argument("name")
@_hours(24, HistoryStep.DAY.kept * 24)
@json_option
@over_api
def states(remote: Remote, *, kind: str, name: str, hours: int, as_json: bool) -> None:
    """Print since when and until when NAME was up, down or off, and the node that a group had
    elected. A line that is gone is named with its type: l2tp/NAME.
    """
    if kind == "line" and "/" not in name:
        (line,) = remote.named("/vpn-lines", (name,), "line")
        name = f"{line['type']}/{name}"
    path = "/".join(
        quote(part, safe="") for part in (name.split("/") if kind == "line" else [name])
    )
    found = remote.get(f"/ops/history/{kind}s/{path}", hours=hours)
    if as_json:
        show_json(found)
        return
    columns = ("from", "to", "state", *(["node"] if kind == "group" else []))
    show_rows(found["states"], columns, as_json=False)
