"""``egressd changes`` and ``egressd undo``."""

from __future__ import annotations

from typing import Any

import click

from egressd.cli.confirmation import confirm
from egressd.cli.output import json_option, show_fields, show_json, show_rows
from egressd.cli.remote import Remote, over_api

_COLUMNS = ("revision", "at", "who", "text", "undo")
_MARKS = {"created": "+", "changed": "~", "deleted": "-"}
_revision = click.argument("revision", type=click.IntRange(min=1))


@click.group()
def changes() -> None:
    """The changes that were made, and their authors."""


@changes.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_option
@over_api
def list_changes(remote: Remote, *, limit: int, as_json: bool) -> None:
    """Print the latest changes, the last one first."""
    found = remote.get("/ops/changes", limit=limit)
    if as_json:
        show_json(found)
    else:
        show_rows([_row(change) for change in found["data"]], _COLUMNS, as_json=False)


@changes.command()
@_revision
@json_option
@over_api
def show(remote: Remote, *, revision: int, as_json: bool) -> None:
    """Print a change of the configuration, field by field. Secrets are shown as ***."""
    found = remote.get(f"/ops/changes/{revision}")
    if as_json:
        show_json(found)
        return
    show_fields({name: found[name] for name in ("at", "who", "source", "what", "text")}, False)
    _show_objects(found)


@click.command()
@_revision
@click.option("--dry-run", is_flag=True, help="Say what it would do, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@over_api
def undo(remote: Remote, *, revision: int, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Undo the change that led to REVISION, as egressd changes list has it.

    That is a change of its own, which can be undone. Objects get back their ids.
    """
    path = f"/ops/changes/{revision}/undo"
    if dry_run or not yes:
        would = remote.send("POST", path, {"dry_run": True})
        if dry_run:
            _show_outcome(would, as_json)
            return
        if not as_json:
            _show_outcome(would, as_json)
        confirm(f"Undo change {revision}?", err=as_json)
    done = remote.send("POST", path, {})
    if as_json:
        show_json(done)
    else:
        click.echo(done["msg"])


def _show_outcome(would: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(would)
        return
    _show_objects(would)
    if would["notes"]:
        click.echo(would["notes"])


def _show_objects(found: dict[str, Any]) -> None:
    for each in found["objects"]:
        show_rows([{"text": _object(each)}], ("text",), as_json=False)
    more = found["total"] - len(found["objects"])
    if found["objects"] and more > 0:
        click.echo(f"and {more} more")


def _object(each: dict[str, Any]) -> str:
    kind = each["kind"].replace("_", " ")
    fields = ", ".join(
        f"{field['name']}: {_value(field['before'])} -> {_value(field['after'])}"
        for field in each["fields"]
    )
    head = f"{_MARKS[each['action']]} {kind} {each['name']}".rstrip()
    return f"{head} ({fields})" if each["action"] == "changed" else head


def _value(value: Any) -> str:
    return "none" if value is None else ", ".join(value) if isinstance(value, list) else str(value)


def _row(change: dict[str, Any]) -> dict[str, Any]:
    if change["undone_by"] is not None:
        undo_text = f"undone by {change['undone_by']}"
    else:
        undo_text = "yes" if change["can_undo"] else ""
    return {**change, "revision": change["revision"] or "", "undo": undo_text}
