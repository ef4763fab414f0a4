"""``egressd history``: traffic, delays of nodes, and the states of parts over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
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


def _span(most: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options of a span of time, which has `most` hours at most."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        for option in (
            click.option("--to", metavar="TIME", help="The end. Default: now."),
            click.option(
                "--from",
                metavar="TIME",
                help="The beginning, such as 2026-11-20T22:58:40Z, in place of --hours.",
            ),
            click.option(
                "--hours",
                type=click.IntRange(1, most),
                help="Hours before the end. Default: 24.",
            ),
        ):
            command = option(command)
        return command

    return with_options


def _given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, as fields of a query."""
    return {name: value for name, value in options.items() if value is not None}


@click.group()
def history() -> None:
    """Print what clients, targets and interfaces have sent and received, and how nodes, lines and
    groups were.
    """


@history.command()
@_by
@_span(TOP_DAYS_MAX * 24)
@click.option("--limit", type=click.IntRange(1, LARGEST_MAX), default=20, show_default=True)
@json_option
@over_api
def top(remote: Remote, *, by: str, limit: int, as_json: bool, **span: Any) -> None:
    """Print the clients, targets or interfaces with the most bytes."""
    found = remote.get("/ops/history/top", by=by, limit=limit, **_given(**span))
    if as_json:
        show_json(found)
    else:
        show_rows(found["data"], ("key", "upload_bytes", "download_bytes"), as_json=False)


@history.command()
@click.argument("key")
@_by
@_span(HistoryStep.DAY.kept * 24)
@_step
@json_option
@over_api
def traffic(
    remote: Remote, *, key: str, by: str, step: str | None, as_json: bool, **span: Any
) -> None:
    """Print the bytes of KEY (a rule's address, a target or an interface) over time."""
    found = remote.get("/ops/history/traffic", key=key, by=by, **_given(step=step, **span))
    if as_json:
        show_json(found)
    else:
        show_rows(found["data"], ("at", "upload_bytes", "download_bytes"), as_json=False)


@history.command()
@click.argument("node")
@_span(HistoryStep.DAY.kept * 24)
@_step
@json_option
@over_api
def delays(remote: Remote, *, node: str, step: str | None, as_json: bool, **span: Any) -> None:
    """Print the delay of NODE in milliseconds, and the seconds that it was up and down."""
    path = f"/ops/history/nodes/{quote(node, safe='')}"
    found = remote.get(path, **_given(step=step, **span))
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
@_span(HistoryStep.DAY.kept * 24)
@json_option
@over_api
def states(remote: Remote, *, kind: str, name: str, as_json: bool, **span: Any) -> None:
    """Print since when and until when NAME was up, down or off, and the node that a group had
    elected. A line that is gone is named with its type: l2tp/NAME.
    """
    if kind == "line" and "/" not in name:
        (line,) = remote.named("/vpn-lines", (name,), "line")
        name = f"{line['type']}/{name}"
    path = "/".join(
        quote(part, safe="") for part in (name.split("/") if kind == "line" else [name])
    )
    found = remote.get(f"/ops/history/{kind}s/{path}", **_given(**span))
    if as_json:
        show_json(found)
        return
    columns = ("from", "to", "state", *(["node"] if kind == "group" else []))
    show_rows(found["states"], columns, as_json=False)
