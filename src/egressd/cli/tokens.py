"""``egressd tokens``: tokens for programs that may do less than the device's own token."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import click

from egressd.cli.output import done, json_option, show_json, show_rows
from egressd.cli.remote import DeviceRefusal, Remote, over_api
from egressd.model.times import utc_text

_COLUMNS: Final = ("id", "name", "scopes", "expires_at", "last_used_at", "created_by")
_LENGTH: Final = re.compile(r"([1-9][0-9]{0,4})([hd])")
_SECONDS: Final = {"h": 3600, "d": 86_400}


@click.group()
def tokens() -> None:
    """Tokens for programs that may do less than the API token."""


@tokens.command("list")
@json_option
@over_api
def list_tokens(remote: Remote, *, as_json: bool) -> None:
    """Print the tokens, without their secrets, which the device does not keep."""
    rows = remote.rows("/ops/tokens")
    if not as_json:
        rows = [
            {
                **row,
                "scopes": " ".join(row["scopes"]),
                "expires_at": f"{row['expires_at'] or 'never'}{' (expired)' * row['is_expired']}",
                "last_used_at": row["last_used_at"] or "never",
            }
            for row in rows
        ]
    show_rows(rows, _COLUMNS, as_json)


@tokens.command()
@click.argument("name")
@click.argument("scopes", nargs=-1, required=True, metavar="SCOPE...")
@click.option(
    "--expires",
    metavar="WHEN",
    help="After 90d or 12h, or at a time in UTC such as 2027-01-31T00:00:00Z. Else never.",
)
@json_option
@over_api
def create(
    remote: Remote, *, name: str, scopes: tuple[str, ...], expires: str | None, as_json: bool
) -> None:
    """Make a token, and print it: this is the only time that it is shown.

    SCOPE is read (all but secrets), write (the configuration), admin (everything), metrics, events,
    or alone rotate:Group_NAME. That makes a link, which is printed in place of the token: put the
    address of this device before it. It gives a phone that opens it another member of its group.
    """
    body = {"name": name, "scopes": list(scopes), "expires_at": _time(expires)}
    answer = remote.send("POST", "/ops/tokens", body)
    if as_json:
        show_json(answer)
        return
    click.echo(answer["msg"], err=True)
    click.echo(answer["link"] or answer["token"])


@tokens.command()
@click.argument("wanted", metavar="TOKEN")
@json_option
@over_api
def delete(remote: Remote, *, wanted: str, as_json: bool) -> None:
    """Delete a token by its name or id. It does not count from now on."""
    found = [row["id"] for row in remote.rows("/ops/tokens") if _is_called(row, wanted)]
    if not found:
        raise DeviceRefusal(f"there is no token {wanted}")
    done(remote.send("DELETE", f"/ops/tokens/{found[0]}"), as_json)


def _is_called(row: dict[str, Any], wanted: str) -> bool:
    return wanted in (row["id"], row["name"])


def _time(expires: str | None) -> str | None:
    """Return the time that `expires` means. What is none is for the device to refuse."""
    length = None if expires is None else _LENGTH.fullmatch(expires)
    if length is None:
        return expires
    return utc_text(time.time() + int(length[1]) * _SECONDS[length[2]])
