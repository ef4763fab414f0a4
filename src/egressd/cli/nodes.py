"""``egressd nodes``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

import click

from egressd.cli.completing import node_names
from egressd.cli.files import TEXT_FILE, read_rows, read_text, typed_or_read
from egressd.cli.output import done, json_option, progress, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.cli.rules import import_rows
from egressd.model.errors import Failed
from egressd.model.names import DNS_PROFILES

_COLUMNS = ("id", "name", "protocol", "group", "created_at")
FORMS = {
    "": "nothing",
    "links": "share links",
    "base64": "base64, as subscriptions send it",
    "clash": "a Clash configuration",
    "singbox": "a sing-box configuration",
    "json": "JSON",
    "wireguard": "WireGuard configurations",
    "entries": "Clash entries",
    "list": "rows of host:port:user:password",
}
"""Form of a text -> its words; rows have the name of their type."""
_AT_ONCE = 16
"""Delays that are measured at the same time."""
_LOOK_S = 1.0
"""Seconds between looks at a rotation."""

names_argument = click.argument("names", nargs=-1, required=True, shell_complete=node_names)
_change_ip_url = click.option(
    "--change-ip-url",
    metavar="URL",
    help="A page by which it leaves by another address; - reads it from standard input, an empty "
    "text removes it.",
)
_change_ip_via = click.option(
    "--change-ip-via", metavar="TARGET", help="The target it is asked by; else the node itself."
)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


@click.group()
def nodes() -> None:
    """Upstream proxies, alone or in groups."""


@nodes.command("list")
@json_option
@over_api
def list_nodes(remote: Remote, as_json: bool) -> None:
    """Print all nodes. The last column is the address that a node in use leaves by, as it was last
    seen.
    """
    rows = remote.rows("/nodes")
    if as_json:
        show_json(rows)
        return
    seen = remote.rows("/ops/exits")
    exits = {each["name"]: each["ip"] for each in seen if each["kind"] == "node"}
    shown = [{**row, "exit": exits.get(row["name"], "")} for row in rows]
    show_rows(shown, (*_COLUMNS, "exit"), as_json=False)


@nodes.command()
@click.argument("name")
@click.argument("protocol")
@click.argument("config", type=TEXT_FILE)
@click.option("--group", default="")
@_change_ip_url
@_change_ip_via
@json_option
@over_api
def add(
    remote: Remote,
    *,
    config: IO[str],
    change_ip_url: str | None,
    as_json: bool,
    **others: str | None,
) -> None:
    """Add the node NAME. CONFIG is a file (- for standard input) with its JSON."""
    url = None if change_ip_url is None else typed_or_read(change_ip_url)
    fields = {"config_json": read_text(config), "change_ip_url": url, **others}
    done(remote.send("POST", "/ops/nodes", _given(fields)), as_json)


@nodes.command()
@click.argument("name", shell_complete=node_names)
@click.option("--name", "new_name", help="A new name; what refers to the node follows.")
@click.option("--group")
@click.option("--config-json", type=TEXT_FILE)
@_change_ip_url
@_change_ip_via
@json_option
@over_api
def edit(
    remote: Remote,
    *,
    name: str,
    new_name: str | None,
    config_json: IO[str] | None,
    change_ip_url: str | None,
    as_json: bool,
    **others: str | None,
) -> None:
    """Change the given fields of the node NAME; the others stay."""
    (found,) = remote.named("/nodes", (name,), "node")
    url = None if change_ip_url is None else typed_or_read(change_ip_url)
    text = None if config_json is None else read_text(config_json)
    fields = {"name": new_name, "config_json": text, "change_ip_url": url, **others}
    done(remote.send("PATCH", f"/ops/nodes/{found['id']}", _given(fields)), as_json)


@nodes.command()
@click.argument("name", shell_complete=node_names)
@json_option
@over_api
def rotate(remote: Remote, *, name: str, as_json: bool) -> None:
    """Have the node NAME leave by another address, by its change_ip_url. The exit status is 1 if it
    does not.
    """
    (found,) = remote.named("/nodes", (name,), "node")
    begun = remote.send("POST", f"/ops/nodes/{found['id']}/rotate", {})
    path = f"/ops/nodes/{found['id']}/rotations/{begun['id']}"
    while (ended := remote.get(path))["state"] == "running":
        time.sleep(_LOOK_S)
    if as_json:
        show_json(ended)
    elif ended["state"] == "done":
        click.echo(ended["exit_after"])
    if ended["state"] != "done":
        raise Failed("change its address", ended["reason"])


@nodes.command("set")
@names_argument
@click.option("--group")
@click.option("--interface", "interface_name", help="The interface they are reached by.")
@click.option("--via", "dialer_proxy", help="The node they are dialled through.")
@click.option(
    "--dns",
    "node_dns_profile",
    type=click.Choice(DNS_PROFILES),
)
@click.option("--dns-servers", "node_dns_servers", help="Addresses, separated by commas.")
@json_option
@over_api
def set_nodes(remote: Remote, *, names: tuple[str, ...], as_json: bool, **fields: Any) -> None:
    """Change the group, egress or DNS of the nodes NAMES. An empty text clears a setting."""
    ids = [node["id"] for node in remote.named("/nodes", names, "node")]
    done(remote.send("PATCH", "/nodes/batch", {"ids": ids, **_given(fields)}), as_json)


@nodes.command()
@names_argument
@json_option
@over_api
def delete(remote: Remote, names: tuple[str, ...], as_json: bool) -> None:
    """Delete the nodes NAMES. Rules that name them block their clients."""
    ids = [node["id"] for node in remote.named("/nodes", names, "node")]
    done(remote.send("DELETE", "/nodes/batch", {"ids": ids}), as_json)


@nodes.command()
@click.argument("names", nargs=-1, shell_complete=node_names)
@click.option("--test-url", help="What to fetch. Default: the device's setting.")
@click.option("--timeout", default=5000, show_default=True, help="Milliseconds.")
@json_option
@over_api
def delay(
    remote: Remote, *, names: tuple[str, ...], test_url: str | None, timeout: int, as_json: bool
) -> None:
    """Measure the delay of the nodes NAMES, or of all. The exit status is 1 if one fails."""
    wanted = names or tuple(node["name"] for node in remote.rows("/nodes"))
    query = {"timeout": timeout} | ({"url": test_url} if test_url else {})

    def measure(name: str) -> dict[str, Any]:
        found = remote.get("/nodes/delay", name=name, **query)
        return {"name": name, "delay": found["delay"], "error": found.get("error") or ""}

    with ThreadPoolExecutor(_AT_ONCE) as pool, progress(len(wanted), "measuring") as step:
        found = []
        for row in pool.map(measure, wanted):
            found.append(row)
            step()
    show_rows(found, ("name", "delay", "error"), as_json)
    if any(row["delay"] < 0 for row in found):
        raise SystemExit(1)


@nodes.command()
@json_option
def keygen(as_json: bool) -> None:
    """Print a new key of WireGuard: the private one for a node's private-key, the public one for
    its server. It is kept nowhere.
    """
    from egressd.service.wireguard_keys import new_key_pair

    show_rows([new_key_pair()._asdict()], ("private", "public"), as_json)


@nodes.command("import")
@click.argument("file", type=TEXT_FILE)
@click.option(
    "--type",
    "kind",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "socks5", "ss", "vlessvmess", "others"]),
    help="The type of rows; auto: the one that reads most of them.",
)
@click.option("--group", default="")
@click.option("--number-from", type=int, help="Name them TYPE_1, TYPE_2, ... from here.")
@click.option(
    "--private-servers",
    is_flag=True,
    help="Accept servers in private networks and LANs. A list from outside can then make this"
    " device send requests there.",
)
@click.option("--replace", is_flag=True, help="Remove every other node.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@json_option
@over_api
def import_nodes(
    remote: Remote,
    *,
    file: IO[str],
    kind: str,
    group: str,
    number_from: int | None,
    private_servers: bool,
    replace: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add a node for each row or share link of FILE (- for standard input)."""
    text = read_rows(file, replace=replace)
    if kind == "auto":
        found = remote.send("POST", "/ops/recognise/nodes", {"text": text})
        kind = found["type"]
        click.echo(f"recognised: {FORMS.get(found['form'], kind)}", err=True)
    body = {
        "type": kind,
        "text": text,
        "group": group,
        "replace": replace,
        "autoNodeName": number_from is not None,
        "autoNodeNameStartIndex": 1 if number_from is None else number_from,
    }
    if private_servers:
        body["privateServers"] = True
        import_rows(remote, "nodes", body, dry_run, as_json, path="/ops/import/nodes")
    else:
        import_rows(remote, "nodes", body, dry_run, as_json)


@nodes.command()
@json_option
@over_api
def export(remote: Remote, as_json: bool) -> None:
    """Print a share link for each node; with --json, all fields of the nodes.

    Fields that a link cannot express are listed on standard error.
    """
    if as_json:
        show_json(remote.rows("/nodes"))
        return
    for node in remote.get("/ops/nodes/links")["data"]:
        click.echo(node["link"])
        if node["lost"]:
            click.echo(f"{node['name']}: not in the link: {', '.join(node['lost'])}", err=True)
