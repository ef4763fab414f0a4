"""``egressd rules``."""

from __future__ import annotations

from typing import IO, Any

import click

from egressd.cli.completing import rule_addresses, targets
from egressd.cli.confirmation import ask_on_terminal, yes_option
from egressd.cli.files import TEXT_FILE, read_rows
from egressd.cli.output import done, json_option, show_json, show_rows, write_rows
from egressd.cli.remote import DeviceRefusal, Remote, over_api

_COLUMNS = (
    "id",
    "ip",
    "target_node",
    "is_enabled",
    "upload_limit_kbps",
    "download_limit_kbps",
    "comment",
)

ips_argument = click.argument("ips", nargs=-1, required=True, shell_complete=rule_addresses)


@click.group()
def rules() -> None:
    """The target and the speed limits of each client."""


@rules.command("list")
@json_option
@over_api
def list_rules(remote: Remote, as_json: bool) -> None:
    """Print all rules."""
    show_rows(remote.rows("/rules"), _COLUMNS, as_json)


@rules.command()
@click.argument("ip")
@click.argument("target", shell_complete=targets)
@click.option("--comment", default="")
@click.option("--mac", default="")
@click.option("--upload", "upload_limit_kbps", default=0, help="Kbps; 0 is unlimited.")
@click.option("--download", "download_limit_kbps", default=0, help="Kbps; 0 is unlimited.")
@click.option("--disabled", is_flag=True)
@json_option
@over_api
def add(
    remote: Remote,
    *,
    ip: str,
    target: str,
    comment: str,
    mac: str,
    disabled: bool,
    as_json: bool,
    **limits: int,
) -> None:
    """Send the clients of IP (an address or a CIDR) to TARGET.

    TARGET is a node's name, Group_NAME, Interface:NAME, DIRECT or REJECT.
    """
    body = {
        "ip": ip,
        "target_node": target,
        "comment": comment,
        "mac": mac,
        "is_enabled": not disabled,
        **limits,
    }
    done(remote.send("POST", "/rules", body), as_json)


@rules.command()
@click.argument("ip", shell_complete=rule_addresses)
@click.option("--new-ip", "ip_")
@click.option("--target", "target_node", shell_complete=targets)
@click.option("--comment")
@click.option("--mac")
@click.option("--upload", "upload_limit_kbps", type=int, help="Kbps; 0 is unlimited.")
@click.option("--download", "download_limit_kbps", type=int, help="Kbps; 0 is unlimited.")
@json_option
@over_api
def edit(remote: Remote, *, ip: str, ip_: str | None, as_json: bool, **fields: Any) -> None:
    """Change the given fields of the rule of IP; the others stay."""
    wanted = ip.removesuffix("/32")
    found = next((rule for rule in remote.rows("/rules") if rule["ip"] == wanted), None)
    if found is None:
        raise DeviceRefusal(f"there is no rule for {ip}")
    given = {name: value for name, value in {**fields, "ip": ip_}.items() if value is not None}
    done(remote.send("PATCH", f"/ops/rules/{found['id']}", given), as_json)


@rules.command()
@ips_argument
@json_option
@over_api
def enable(remote: Remote, ips: tuple[str, ...], as_json: bool) -> None:
    """Switch the rules of IPS on."""
    _switch(remote, ips, True, as_json)


@rules.command()
@ips_argument
@json_option
@over_api
def disable(remote: Remote, ips: tuple[str, ...], as_json: bool) -> None:
    """Switch the rules of IPS off: their clients are treated as clients without a rule."""
    _switch(remote, ips, False, as_json)


@rules.command()
@ips_argument
@json_option
@over_api
def delete(remote: Remote, ips: tuple[str, ...], as_json: bool) -> None:
    """Delete the rules of IPS."""
    done(remote.send("DELETE", "/rules/batch", {"ips": ips}), as_json)


@rules.command("import")
@click.argument("file", type=TEXT_FILE)
@click.option("--replace", is_flag=True, help="Remove every other rule.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@yes_option
@json_option
@over_api
def import_rules(
    remote: Remote, *, file: IO[str], replace: bool, dry_run: bool, is_sure: bool, as_json: bool
) -> None:
    """Add a rule for each row of FILE (- for standard input): IP,target,comment. With --replace it
    asks first on a terminal.
    """
    if replace and not dry_run:
        ask_on_terminal("Every other rule will be removed. Continue?", is_sure=is_sure)
    import_rows(
        remote,
        "rules",
        {"text": read_rows(file, replace=replace), "replace": replace},
        dry_run,
        as_json,
    )


@rules.command()
@json_option
@over_api
def export(remote: Remote, as_json: bool) -> None:
    """Print all rules as rows that `import` reads; with --json, all their fields."""
    found = remote.rows("/rules")
    if as_json:
        show_json(found)
        return
    click.echo(write_rows([(r["ip"], r["target_node"], r["comment"]) for r in found]), nl=False)
    limited = sum(r["upload_limit_kbps"] + r["download_limit_kbps"] > 0 for r in found)
    disabled = sum(not r["is_enabled"] for r in found)
    for number, what in ((limited, "limits of"), (disabled, "disabled state of")):
        if number:
            click.echo(f"rows have no place for the {what} {number} rules", err=True)


def import_rows(
    remote: Remote, what: str, body: dict[str, Any], dry_run: bool, as_json: bool, *, path: str = ""
) -> None:
    """Import, or with `dry_run` only print the result of it. `path` replaces the API's own path."""
    if not dry_run:
        answer = remote.send("POST", path or f"/{what}/import", body)
        done(answer, as_json)
        if not as_json:
            # An import of nodes may have more reasons than the message has room for.
            for problem in answer.get("error_rows", ()):
                click.echo(problem)
        return
    told = remote.send("POST", f"/ops/preview/{what}", body)
    if as_json:
        show_json(told)
        return
    for fate in told["fates"]:
        click.echo(f"line {fate['line']}: {_fate(fate)}")
    for text in (*told["errors"], *told["notes"]):
        click.echo(text)
    if told["removed"]:
        names = ", ".join(told["removed_names"])
        more = ", …" if told["removed"] > len(told["removed_names"]) else ""
        click.echo(f"{told['removed']} would be removed: {names}{more}")
    click.echo(f"{told['imported']} would be imported, {told['skipped']} skipped")


def _fate(fate: dict[str, Any]) -> str:
    """Return the fate of a row that would be imported, or skipped, in words."""
    match fate["fate"]:
        case "added":
            words = "added"
        case "changed":
            words = f"changed: {', '.join(fate['changed'])}"
        case "same":
            words = "the same as there is"
        case "clash":
            words = "skipped: there is another one of that name"
        case _:
            words = "skipped: an earlier row has that name"
    return f"{fate['name']} {words}"


def _switch(remote: Remote, ips: tuple[str, ...], is_enabled: bool, as_json: bool) -> None:
    body = {"ips": ips, "is_enabled": is_enabled}
    done(remote.send("PATCH", "/rules/batch/status", body), as_json)
