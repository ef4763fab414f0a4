"""``egressd proxies``."""

from __future__ import annotations

from typing import IO, Any

import click

from egressd.cli.completing import proxy_names
from egressd.cli.files import TEXT_FILE, read_rows
from egressd.cli.output import done, json_option, show_fields, show_json, show_rows, write_rows
from egressd.cli.remote import Remote, over_api
from egressd.cli.rules import import_rows

_COLUMNS = ("id", "name", "outbound_interface", "port", "username", "is_enabled")

names_argument = click.argument("names", nargs=-1, required=True, shell_complete=proxy_names)
password_option = click.option("--password", envvar="EGRESSD_PROXY_PASSWORD")


@click.group()
def proxies() -> None:
    """Local proxy services that leave by one interface."""


@proxies.command("list")
@json_option
@over_api
def list_proxies(remote: Remote, as_json: bool) -> None:
    """Print all proxy services."""
    show_rows(remote.rows("/proxy-services"), _COLUMNS, as_json)


@proxies.command()
@json_option
@over_api
def quota(remote: Remote, as_json: bool) -> None:
    """Print the number of proxy services that are allowed, and of those that exist."""
    show_fields(remote.get("/proxy-services/quota"), as_json)


@proxies.command()
@click.argument("name")
@click.argument("interface")
@click.argument("port", type=int)
@click.option("--username", default="")
@password_option
@click.option("--disabled", is_flag=True)
@json_option
@over_api
def add(
    remote: Remote,
    *,
    name: str,
    interface: str,
    port: int,
    username: str,
    password: str | None,
    disabled: bool,
    as_json: bool,
) -> None:
    """Add a proxy service that listens on PORT and leaves by INTERFACE (its bare name).

    With --username and no password, a prompt asks for the password.
    """
    if username and password is None:
        password = click.prompt("Password", hide_input=True, err=True)
    body = {
        "name": name,
        "outbound_interface": interface,
        "port": port,
        "username": username,
        "password": password or "",
        "is_enabled": not disabled,
    }
    done(remote.send("POST", "/proxy-services", body), as_json)


@proxies.command()
@click.argument("name", shell_complete=proxy_names)
@click.option("--name", "new_name")
@click.option("--interface", "outbound_interface")
@click.option("--port", type=int)
@click.option("--username")
@password_option
@json_option
@over_api
def edit(remote: Remote, *, name: str, new_name: str | None, as_json: bool, **fields: Any) -> None:
    """Change the given fields of the proxy service NAME; the others stay."""
    (found,) = remote.named("/proxy-services", (name,), "proxy service")
    changed = {**fields, "name": new_name}
    given = {field: value for field, value in changed.items() if value is not None}
    done(remote.send("PATCH", f"/ops/proxy-services/{found['id']}", given), as_json)


@proxies.command()
@names_argument
@json_option
@over_api
def enable(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Switch the proxy services NAMES on."""
    body = {"ids": _ids(remote, names), "is_enabled": True}
    done(remote.send("PATCH", "/proxy-services/batch/status", body), as_json)


@proxies.command()
@names_argument
@json_option
@over_api
def disable(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Switch the proxy services NAMES off."""
    body = {"ids": _ids(remote, names), "is_enabled": False}
    done(remote.send("PATCH", "/proxy-services/batch/status", body), as_json)


@proxies.command()
@names_argument
@json_option
@over_api
def delete(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Delete the proxy services NAMES."""
    done(remote.send("DELETE", "/proxy-services/batch", {"ids": _ids(remote, names)}), as_json)


@proxies.command("import")
@click.argument("file", type=TEXT_FILE)
@click.option("--replace", is_flag=True, help="Remove every other proxy service.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@json_option
@over_api
def import_proxies(
    remote: Remote, *, file: IO[str], replace: bool, dry_run: bool, as_json: bool
) -> None:
    """Add a proxy service for each row of FILE (- for standard input).

    Rows are name,interface,port,user,password.
    """
    body = {"text": read_rows(file, replace=replace), "replace": replace}
    import_rows(remote, "proxy-services", body, dry_run, as_json)


@proxies.command()
@json_option
@over_api
def export(remote: Remote, as_json: bool) -> None:
    """Print all proxy services as rows that `import` reads; with --json, all their fields."""
    found = remote.rows("/proxy-services")
    if as_json:
        show_json(found)
        return
    fields = ("name", "outbound_interface", "port", "username", "password")
    click.echo(write_rows([[service[field] for field in fields] for service in found]), nl=False)


def _ids(remote: Remote, names: tuple[str, ...]) -> list[int]:
    return [service["id"] for service in remote.named("/proxy-services", names, "proxy service")]
