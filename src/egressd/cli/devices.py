"""``egressd devices``."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from egressd.cli.completing import device_macs
from egressd.cli.output import done, json_option, show_fields, show_json, show_rows
from egressd.cli.remote import Remote, over_api
from egressd.model.devices import DEVICES_MAX

_COLUMNS = ("mac", "ip", "name", "vendor", "rule", "online", "last_seen")
_mac = click.argument("mac", shell_complete=device_macs)


@click.group()
def devices() -> None:
    """The devices that were seen in the LANs."""


@devices.command("list")
@click.option("--limit", type=click.IntRange(1, DEVICES_MAX), default=1000, show_default=True)
@click.option("--search", default="", help="Words in name, host name, vendor, MAC or address.")
@click.option("--without-rule", is_flag=True, help="Only those that no rule covers.")
@json_option
@over_api
def list_devices(
    remote: Remote, *, limit: int, search: str, without_rule: bool, as_json: bool
) -> None:
    """Print the devices: those without a rule first, and the latest ones first among both."""
    searched = {"search": search} if search else {}
    found = remote.get("/ops/devices", limit=limit, **searched)
    if without_rule:
        found["data"] = [row for row in found["data"] if not _rule(row)]
    if as_json:
        show_json(found)
        return
    show_rows([_row(device) for device in found["data"]], _COLUMNS, as_json=False)
    if found["total"] > limit:
        click.echo(f"{found['total']} devices are known: use --limit for more", err=True)


@devices.command()
@_mac
@json_option
@over_api
def show(remote: Remote, *, mac: str, as_json: bool) -> None:
    """Print a device and its addresses. MAC is six bytes with colons."""
    found = remote.get(_path(mac))
    if not as_json:
        addresses = [
            f"{each['ip']} {each['interface']} {each['last_seen']}".strip()
            for each in found["addresses"]
        ]
        tried = [
            f"{each['protocol']} {each['ip']}:{each['port']} ({each['packets']})"
            for each in found["tried"]
        ]
        found = {**found, "addresses": addresses, "rule_id": found["rule_id"] or "", "tried": tried}
    show_fields(found, as_json)


@devices.command()
@_mac
@click.argument("new_name", metavar="NAME")
@click.option("--comment")
@json_option
@over_api
def name(remote: Remote, *, mac: str, new_name: str, comment: str | None, as_json: bool) -> None:
    """Call a device NAME; an empty one removes its name. A device with a name is never forgotten by
    itself.
    """
    body = {"name": new_name} | ({} if comment is None else {"comment": comment})
    done(remote.send("PATCH", _path(mac), body), as_json)


@devices.command()
@_mac
@json_option
@over_api
def bind(remote: Remote, *, mac: str, as_json: bool) -> None:
    """Let the rule of a device's address belong to the device: it follows the device to another
    address, and nothing passes that another device sends from the address.
    """
    done(remote.send("PATCH", _path(mac), {"is_bound": True}), as_json)


@devices.command()
@_mac
@json_option
@over_api
def unbind(remote: Remote, *, mac: str, as_json: bool) -> None:
    """Let the rule of a device be its address's alone again."""
    done(remote.send("PATCH", _path(mac), {"is_bound": False}), as_json)


@devices.command()
@_mac
@json_option
@over_api
def forget(remote: Remote, *, mac: str, as_json: bool) -> None:
    """Remove a device from the list until it is seen again. Its rules stay."""
    done(remote.send("DELETE", _path(mac)), as_json)


def _path(mac: str) -> str:
    return f"/ops/devices/{quote(mac, safe=':', errors='replace')}"


def _rule(device: dict[str, Any]) -> str:
    return str(device["rule_id"] or device["covered_by"])


def _row(device: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(device["addresses"]), {"ip": ""})
    return {
        "mac": device["mac"],
        "ip": first["ip"],
        "name": device["name"] or device["hostname"],
        "vendor": device["vendor"],
        "rule": _rule(device),
        "online": device["is_online"],
        "last_seen": device["last_seen"],
    }
