"""``egressd groups``."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from egressd.cli.completing import group_names, member_targets
from egressd.cli.output import done, json_option, show_fields, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.model.errors import Invalid
from egressd.model.nouns import GROUP_STRATEGIES, ON_SWITCH

_COLUMNS = ("name", "strategy", "members", "current", "alive", "rules")
_DEVICE = "device"
"""The word for the device's strategy, which the API has as an empty text."""
_name = click.argument("name", shell_complete=group_names)


@click.group()
def groups() -> None:
    """Groups of nodes, interfaces and other groups, and their settings."""


@groups.command("list")
@json_option
@over_api
def list_groups(remote: Remote, *, as_json: bool) -> None:
    """Print the groups: the strategy in force, how many members, the one that new connections go
    to, how many of them work, and how many rules name the group.
    """
    found = remote.get("/ops/groups")["data"]
    show_rows(found if as_json else [_row(each) for each in found], _COLUMNS, as_json=as_json)


@groups.command()
@_name
@json_option
@over_api
def show(remote: Remote, *, name: str, as_json: bool) -> None:
    """Print a group's settings, and its members in order with their health."""
    found = remote.get(_path(name))
    if as_json:
        show_json(found)
        return
    shown = {**found, "weights": [f"{key}={part}" for key, part in found["weights"].items()]}
    shown["resolved"] = [_member(each) for each in found["resolved"]]
    show_fields(shown, as_json)


@groups.command("set")
@_name
@click.option("--strategy", type=click.Choice((_DEVICE, *GROUP_STRATEGIES)))
@click.option(
    "--member",
    "members",
    multiple=True,
    shell_complete=member_targets,
    help="A target; give each in order. They replace those that were listed.",
)
@click.option("--no-members", is_flag=True, help="List no members.")
@click.option(
    "--weight",
    "weights",
    multiple=True,
    metavar="MEMBER=N",
    help="The part of a member with spread. They replace those that there were.",
)
@click.option("--filter", "pattern", help="A pattern of RE2's over nodes' names; empty for none.")
@click.option("--check-url", help="Fetched through each member; empty for the device's.")
@click.option("--check-interval", "check_interval_s", type=int, help="Seconds between checks.")
@click.option("--tolerance", "tolerance_ms", type=int, help="Milliseconds, with urltest.")
@click.option("--failback", help="at_once, never, or minutes.")
@click.option("--on-switch", type=click.Choice(ON_SWITCH))
@click.option(
    "--rotate-every", "rotate_every_s", type=int, help="Seconds, with sticky; 0 for never."
)
@json_option
@over_api
def set_group(
    remote: Remote,
    *,
    name: str,
    members: tuple[str, ...],
    no_members: bool,
    weights: tuple[str, ...],
    pattern: str | None,
    failback: str | None,
    strategy: str | None,
    as_json: bool,
    **others: Any,
) -> None:
    """Change the settings of the group NAME; those that are not given stay. The group may be a new
    one.
    """
    body = {key: value for key, value in others.items() if value is not None}
    if strategy is not None:
        body["strategy"] = "" if strategy == _DEVICE else strategy
    if members or no_members:
        body["members"] = list(members)
    if weights:
        body["weights"] = dict(map(_weight, weights))
    if pattern is not None:
        body["filter"] = pattern
    if failback is not None:
        body["failback"] = int(failback) if failback.isdecimal() else failback
    if any(each["name"] == name for each in remote.get("/ops/groups", resolved="false")["data"]):
        answer = remote.send("PATCH", _path(name), body)
    else:
        answer = remote.send("POST", "/ops/groups", {"name": name, **body})
    done(answer, as_json)


@groups.command()
@_name
@click.argument("client", required=False)
@json_option
@over_api
def rotate(remote: Remote, *, name: str, client: str | None, as_json: bool) -> None:
    """Give a CLIENT of a sticky group another member, or all of its clients."""
    done(remote.send("POST", f"{_path(name)}/rotate", {"client": client}), as_json)


@groups.command()
@_name
@json_option
@over_api
def delete(remote: Remote, *, name: str, as_json: bool) -> None:
    """Remove a group's settings, and the members that it lists. The nodes that bear its name stay
    its members.
    """
    done(remote.send("DELETE", _path(name)), as_json)


def _path(name: str) -> str:
    return f"/ops/groups/{quote(name, safe='', errors='replace')}"


def _weight(text: str) -> tuple[str, int]:
    member, _, part = text.rpartition("=")
    if not member or not part.isdecimal():
        raise Invalid(f"--weight must be MEMBER=N, with a whole number: {text}")
    return member, int(part)


def _row(group: dict[str, Any]) -> dict[str, Any]:
    resolved = group["resolved"]
    return {
        "name": group["name"],
        "strategy": group["strategy_in_force"],
        "members": len(resolved),
        "current": ", ".join(each["target"] for each in resolved if each["is_current"]),
        "alive": sum(each["is_alive"] is True for each in resolved),
        "rules": group["rules"],
    }


def _member(member: dict[str, Any]) -> str:
    delay = member["delay_ms"]
    state = member["reason"] or (f"{delay} ms" if delay is not None else "not checked")
    return f"{member['target']} ({state}{', current' if member['is_current'] else ''})"
