"""``egressd lines``."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import click

from egressd.cli import config_option
from egressd.cli.completing import line_names
from egressd.cli.files import TEXT_FILE, read_text
from egressd.cli.output import done, json_option, show_json, show_rows, write_rows
from egressd.cli.remote import Remote, over_api
from egressd.cli.rules import import_rows
from egressd.model.names import DNS_PROFILES, LINE_TYPES

_COLUMNS = ("name", "server", "port", "username", "interface", "is_enabled", "is_online", "comment")
_PROFILES = click.Choice(DNS_PROFILES)

names_argument = click.argument("names", nargs=-1, required=True, shell_complete=line_names)


def _secret_options(command: Any) -> Any:
    """Add the options for secrets. These should come from the environment or from a prompt, since a
    list of processes shows arguments.
    """
    command = click.option("--secret", envvar="EGRESSD_LINE_SECRET", help="IPsec, for L2TP.")(
        command
    )
    return click.option("--password", envvar="EGRESSD_LINE_PASSWORD")(command)


@click.group(invoke_without_command=True)
@config_option
@click.pass_context
def lines(ctx: click.Context, path: Path | None) -> None:
    """L2TP and PPTP lines that traffic can leave by.

    Without a command, show each enabled line: its state and address, or the reason why it is down
    and the time of its next attempt.
    """
    if ctx.invoked_subcommand is not None:
        if path is not None:
            raise click.UsageError(f"give --config after {ctx.invoked_subcommand}")
    else:
        from egressd.cli.line_status import show_status

        show_status(path)


@lines.command("list")
@json_option
@over_api
def list_lines(remote: Remote, as_json: bool) -> None:
    """Print all lines."""
    show_rows(remote.rows("/vpn-lines"), _COLUMNS, as_json)


@lines.command()
@click.argument("name")
@click.argument("server")
@click.argument("username")
@_secret_options
@click.option("--port", type=int)
@click.option("--interface", help="The WAN that carries it. Default: auto.")
@click.option("--comment")
@click.option("--dns", "dns_profile", type=_PROFILES)
@click.option("--dns-server", "dns_servers", multiple=True)
@json_option
@over_api
def add(
    remote: Remote,
    *,
    name: str,
    server: str,
    username: str,
    password: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Add the line NAME (l2tp_... or pptp_...). If no password is given, a prompt asks for it."""
    if password is None:
        password = click.prompt("Password", hide_input=True, err=True)
    body = {
        "type": _type_of(name),
        "name": name,
        "server": server,
        "username": username,
        "password": password,
        **{field: value for field, value in fields.items() if value not in (None, ())},
    }
    done(remote.send("POST", "/vpn-lines", body), as_json)


@lines.command()
@click.argument("name", shell_complete=line_names)
@click.option("--name", "new_name", help="A new name; what refers to the line follows.")
@click.option("--server")
@click.option("--port", type=int)
@click.option("--username")
@_secret_options
@click.option("--interface", help="The WAN that carries it, or auto.")
@click.option("--comment")
@click.option("--dns", "dns_profile", type=_PROFILES)
@click.option("--dns-server", "dns_servers", multiple=True)
@json_option
@over_api
def edit(remote: Remote, *, name: str, new_name: str | None, as_json: bool, **fields: Any) -> None:
    """Change the given fields of the line NAME; the others stay."""
    (found,) = remote.named("/vpn-lines", (name,), "line")
    changed = {**fields, "name": new_name}
    given = {field: value for field, value in changed.items() if value not in (None, ())}
    done(remote.send("PATCH", f"/ops/lines/{found['id']}", given), as_json)


@lines.command()
@names_argument
@json_option
@over_api
def enable(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Enable the lines NAMES: they are dialled."""
    body = {"items": _keys(remote, names), "is_enabled": True}
    done(remote.send("PATCH", "/vpn-lines/status", body), as_json)


@lines.command()
@names_argument
@json_option
@over_api
def disable(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Disable the lines NAMES: they are disconnected. Rules that name them block their clients."""
    body = {"items": _keys(remote, names), "is_enabled": False}
    done(remote.send("PATCH", "/vpn-lines/status", body), as_json)


@lines.command()
@names_argument
@json_option
@over_api
def delete(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Delete the lines NAMES."""
    done(remote.send("DELETE", "/vpn-lines", {"items": _keys(remote, names)}), as_json)


@lines.command("import")
@click.argument("kind", metavar="TYPE", type=click.Choice(LINE_TYPES))
@click.argument("file", type=TEXT_FILE)
@click.option("--number-from", type=int, help="Name them TYPE_1, TYPE_2, ... from here.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@json_option
@over_api
def import_lines(
    remote: Remote,
    *,
    kind: str,
    file: IO[str],
    number_from: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add or update a line for each row of FILE (- for standard input).

    l2tp: server,port,user,pass,secret,name,comment; pptp: server,port,user,pass,name,comment.
    The port may be missing.
    """
    body = {
        "type": kind,
        "text": read_text(file),
        "autoLineName": number_from is not None,
        "autoLineNameStartIndex": 1 if number_from is None else number_from,
    }
    import_rows(remote, "vpn-lines", body, dry_run, as_json)


@lines.command()
@click.argument("kind", metavar="TYPE", type=click.Choice(LINE_TYPES))
@json_option
@over_api
def export(remote: Remote, kind: str, as_json: bool) -> None:
    """Print the lines of TYPE as rows that `import` reads; with --json, all their fields."""
    found = [line for line in remote.rows("/vpn-lines") if line["type"] == kind]
    if as_json:
        show_json(found)
        return
    fields = ["server", "port", "username", "password", "secret", "name", "comment"]
    if kind == "pptp":
        fields.remove("secret")
    click.echo(write_rows([[line[field] for field in fields] for line in found]), nl=False)


def _type_of(name: str) -> str:
    return name.partition("_")[0]


def _keys(remote: Remote, names: tuple[str, ...]) -> list[dict[str, str]]:
    return [
        {"type": line["type"], "name": line["name"]}
        for line in remote.named("/vpn-lines", names, "line")
    ]
