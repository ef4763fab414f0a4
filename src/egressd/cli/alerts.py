"""``egressd alerts``."""

from __future__ import annotations

from typing import Any

import click

from egressd.cli.files import typed_or_read
from egressd.cli.output import done, json_option, show_fields, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.model.errors import Failed

_CHANNELS = "/ops/alerts/channels"
_POLICY = "/ops/alerts/policy"
_COLUMNS = ("id", "name", "service", "via", "is_enabled", "waiting")
_SENT = ("at", "channel", "outcome", "alerts", "title", "reason")
_channel = click.argument("channel_id", metavar="ID", type=int)


@click.group()
def alerts() -> None:
    """Messages about failures, by Telegram, mail, ntfy and others."""


@alerts.command("list")
@json_option
@over_api
def list_channels(remote: Remote, *, as_json: bool) -> None:
    """Print the channels."""
    show_rows(remote.get(_CHANNELS)["data"], _COLUMNS, as_json=as_json)


@alerts.command()
@click.argument("name")
@click.argument("service", metavar="URL")
@click.option("--via", required=True, help="The target it leaves by.")
@json_option
@over_api
def add(remote: Remote, *, name: str, service: str, via: str, as_json: bool) -> None:
    """Add a channel. URL is one of Apprise's, such as ntfys://HOST/TOPIC. With - it is read from
    standard input, so that the shell keeps no record of it.
    """
    body = {"name": name, "url": typed_or_read(service), "via": via}
    done(remote.send("POST", _CHANNELS, body), as_json)


@alerts.command("set")
@_channel
@click.option("--name")
@click.option("--service", metavar="URL", help="A new URL; - reads it from standard input.")
@click.option("--via", help="The target it leaves by.")
@click.option("--enable/--disable", "is_enabled", default=None)
@json_option
@over_api
def set_channel(
    remote: Remote,
    *,
    channel_id: int,
    name: str | None,
    service: str | None,
    via: str | None,
    is_enabled: bool | None,
    as_json: bool,
) -> None:
    """Change a channel."""
    url = None if service is None else typed_or_read(service)
    body = {"name": name, "url": url, "via": via, "is_enabled": is_enabled}
    given = {field: value for field, value in body.items() if value is not None}
    done(remote.send("PATCH", f"{_CHANNELS}/{channel_id}", given), as_json)


@alerts.command()
@_channel
@json_option
@over_api
def remove(remote: Remote, *, channel_id: int, as_json: bool) -> None:
    """Remove a channel."""
    done(remote.send("DELETE", f"{_CHANNELS}/{channel_id}"), as_json)


@alerts.command()
@_channel
@json_option
@over_api
def test(remote: Remote, *, channel_id: int, as_json: bool) -> None:
    """Send a message by a channel now. The exit status is 1 if it is not sent."""
    found = remote.send("POST", f"{_CHANNELS}/{channel_id}/test", {})
    if as_json:
        show_json(found)
    elif found["is_sent"]:
        click.echo("sent")
    if not found["is_sent"]:
        raise Failed("send the message", found["reason"])


@alerts.command()
@click.option("--on", help="Names of what is alerted, separated by commas.")
@click.option("--for", "for_s", type=int, help="Seconds that a state lasts before it is told.")
@click.option("--quiet", help="Hours of local time, 23:00-07:00; an empty text for none.")
@click.option("--channels", help="Ids, separated by commas; an empty text for all.")
@json_option
@over_api
def policy(
    remote: Remote,
    *,
    on: str | None,
    for_s: int | None,
    quiet: str | None,
    channels: str | None,
    as_json: bool,
) -> None:
    """Print what is alerted; with options, change that."""
    given: dict[str, Any] = {}
    if on is not None:
        given["on"] = _listed(on)
    if for_s is not None:
        given["for_s"] = for_s
    if quiet is not None:
        given["quiet"] = quiet
    if channels is not None:
        given["channels"] = [int(each) if each.isdecimal() else each for each in _listed(channels)]
    if not given:
        show_fields(remote.get(_POLICY), as_json)
        return

    def amended(now: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in now.items() if name != "names"} | given

    done(remote.amend(_POLICY, amended), as_json)


@alerts.command()
@json_option
@over_api
def sent(remote: Remote, *, as_json: bool) -> None:
    """Print the last messages, and what became of them."""
    show_rows(remote.get("/ops/alerts/sent")["data"], _SENT, as_json=as_json)


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
