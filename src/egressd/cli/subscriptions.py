"""``egressd subscriptions``."""

from __future__ import annotations

from typing import Any

import click

from egressd.cli.files import typed_or_read
from egressd.cli.output import done, json_option, show_fields, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.model.errors import Failed, Invalid

_COLUMNS = ("id", "name", "host", "via", "nodes", "gone", "refreshed", "next", "used", "problem")
_id = click.argument("subscription_id", metavar="ID", type=int)


@click.group()
def subscriptions() -> None:
    """Lists of nodes at URLs, which are fetched again and again."""


@subscriptions.command("list")
@json_option
@over_api
def list_subscriptions(remote: Remote, *, as_json: bool) -> None:
    """Print the subscriptions, their nodes, and the last fetch of each."""
    found = remote.get("/ops/subscriptions")["data"]
    show_rows(found if as_json else [_row(each) for each in found], _COLUMNS, as_json=as_json)


@subscriptions.command()
@_id
@json_option
@over_api
def show(remote: Remote, *, subscription_id: int, as_json: bool) -> None:
    """Print a subscription, without its URL and header fields, which are secrets."""
    show_fields(remote.get(_path(subscription_id)), as_json)


def _fields(command: Any) -> Any:
    """Add the options of a subscription's fields."""
    options = (
        click.option("--via", help="The target that the request leaves by."),
        click.option("--group", help="The group of new nodes; empty for none."),
        click.option("--user-agent", help="Empty for egressd's own."),
        click.option(
            "--header",
            "headers",
            multiple=True,
            metavar="NAME:VALUE",
            help="A field of the request's head. They replace those that there were.",
        ),
        click.option(
            "--interval", "interval_s", type=int, help="Seconds; 0 for what the answer names."
        ),
        click.option("--include", help="A pattern of RE2's over names in the list."),
        click.option("--exclude", help="A pattern of RE2's over names in the list."),
        click.option(
            "--rename",
            multiple=True,
            nargs=2,
            metavar="PATTERN TEXT",
            help="What replaces a pattern in names. They replace those that there were.",
        ),
        click.option("--gone", type=click.Choice(("keep", "delete"))),
    )
    for option in reversed(options):
        command = option(command)
    return command


@subscriptions.command()
@click.argument("name")
@click.argument("list_url", metavar="URL")
@_fields
@json_option
@over_api
def add(remote: Remote, *, name: str, list_url: str, as_json: bool, **fields: Any) -> None:
    """Add a subscription. The URL is read from standard input if it is -, so that no list of
    processes shows it.
    """
    body = {"name": name, "url": typed_or_read(list_url), **_body(fields)}
    done(remote.send("POST", "/ops/subscriptions", body), as_json)


@subscriptions.command()
@_id
@click.option("--name")
@click.option("--list", "list_url", help="The URL; read from standard input if it is -.")
@_fields
@click.option("--enable/--disable", "is_enabled", default=None)
@json_option
@over_api
def edit(
    remote: Remote,
    *,
    subscription_id: int,
    name: str | None,
    list_url: str | None,
    is_enabled: bool | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Change a subscription; what is not given stays."""
    url = None if list_url is None else typed_or_read(list_url)
    given = {"name": name, "url": url, "is_enabled": is_enabled}
    body = {key: value for key, value in given.items() if value is not None} | _body(fields)
    done(remote.send("PATCH", _path(subscription_id), body), as_json)


@subscriptions.command()
@_id
@click.option("--dry-run", is_flag=True, help="Print what would change.")
@json_option
@over_api
def refresh(remote: Remote, *, subscription_id: int, dry_run: bool, as_json: bool) -> None:
    """Fetch a list now, and make the nodes here those of the list. The exit status is 1 if it
    cannot be fetched or read.
    """
    answer = remote.send("POST", f"{_path(subscription_id)}/refresh", {"dry_run": dry_run})
    if as_json:
        show_json(answer)
    elif answer["is_refreshed"]:
        rows = [each for each in answer["nodes"] if each["fate"] != "same"]
        shown = [{**each, "changed": ", ".join(each["changed"])} for each in rows]
        show_rows(shown, ("fate", "name", "changed", "reason"), as_json=False)
        counts = "{added} to add, {changed} to change, {renamed} to rename, {gone} gone".format(
            **answer["refreshed"]
        )
        click.echo(f"nothing is changed yet: {counts}" if dry_run else answer["msg"])
    if not answer["is_refreshed"]:
        raise Failed("refresh the subscription", answer["reason"])


@subscriptions.command()
@_id
@click.option("--nodes", is_flag=True, help="Remove its nodes, too.")
@json_option
@over_api
def delete(remote: Remote, *, subscription_id: int, nodes: bool, as_json: bool) -> None:
    """Remove a subscription. Its nodes stay as your own."""
    path = _path(subscription_id) + ("?nodes=true" if nodes else "")
    done(remote.send("DELETE", path), as_json)


def _path(subscription_id: int) -> str:
    return f"/ops/subscriptions/{subscription_id}"


def _body(fields: dict[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in fields.items() if value not in (None, ())}
    if "headers" in body:
        body["headers"] = dict(map(_header, body["headers"]))
    if "rename" in body:
        body["rename"] = dict(body["rename"])
    return body


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise Invalid("--header must be NAME:VALUE")
    return name.strip(), value.strip()


def _row(found: dict[str, Any]) -> dict[str, Any]:
    last, quota = found["last"], found["quota"]
    used = quota["used"] is not None and quota["total"]
    return {
        "id": found["id"],
        "name": found["name"],
        "host": found["host"],
        "via": found["via"],
        "nodes": found["nodes"],
        "gone": found["nodes_gone"],
        "refreshed": last["succeeded_at"],
        "next": found["next_at"] or "",
        "used": f"{quota['used'] * 100 // quota['total']} %" if used else "",
        "problem": last["error"],
    }
