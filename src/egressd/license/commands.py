"""``egressd license``: make keys and licenses (the vendor), show and install one (the device)."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from egressd.license.device import this_device
from egressd.license.document import CAPABILITIES, LICENSE_VERSION, License, sign
from egressd.license.grants import Finding, at, examine, grants_of
from egressd.license.keys import (
    key_id,
    key_ring,
    public_key_text,
    read_private_key,
    write_private_key,
)
from egressd.license.licensing import LicenseSettings, install, read_file, utc_now
from egressd.model.errors import EgressdError
from egressd.model.times import UTC_FORMAT

_FILE = click.Path(dir_okay=False, path_type=Path)
_pass_settings = click.make_pass_decorator(LicenseSettings)


class _Told(click.Group):
    """A group whose commands print egressd's errors in one line, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except EgressdError as error:
            raise click.ClickException(str(error)) from error


@click.group("license", cls=_Told)
def license_group() -> None:
    """Licenses: the use of this device's management API."""


@license_group.command()
@click.argument("file", type=_FILE)
def keygen(file: Path) -> None:
    """Make a vendor's key pair. The private key goes to the new FILE.

    The public key is printed; a device trusts it once it stands in `public_keys` of its
    configuration's [license] table.
    """
    public = write_private_key(file).public_key()
    click.echo(f"key {key_id(public)}; the private key is in {file}", err=True)
    click.echo(public_key_text(public))


@license_group.command()
@click.option("--key", required=True, type=_FILE, help="The vendor's private key.")
@click.option("--device", required=True, help="The device's id, as its `license show` prints it.")
@click.option("--capability", "capabilities", multiple=True, type=click.Choice(CAPABILITIES))
@click.option("--proxy-services", default=0, show_default=True, type=click.IntRange(0, 100_000))
@click.option("--trial-calls", default=0, show_default=True, type=click.IntRange(0, 2**31))
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    help="The last day (UTC) it holds. Without it, the license does not expire.",
)
def issue(
    *,
    key: Path,
    device: str,
    capabilities: tuple[str, ...],
    proxy_services: int,
    trial_calls: int,
    expires: datetime | None,
) -> None:
    """Sign a license for one device and print it."""
    try:
        end = expires.replace(tzinfo=UTC) + timedelta(days=1) if expires else None
    except OverflowError:
        raise click.BadParameter("there is no day after it", param_hint="--expires") from None
    license_ = License(
        version=LICENSE_VERSION,
        serial=secrets.token_hex(8),
        device=device,
        capabilities=tuple(sorted(set(capabilities))),
        proxy_service_quota=proxy_services,
        api_trial_calls=trial_calls,
        issued_at=utc_now().strftime(UTC_FORMAT),
        expires_at=end.strftime(UTC_FORMAT) if end else "",
    )
    click.echo(sign(license_, read_private_key(key)), nl=False)


@license_group.command()
@click.argument("file", type=_FILE, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@_pass_settings
def show(settings: LicenseSettings, file: Path | None, as_json: bool) -> None:
    """Show the installed license, or FILE, and what this device may do with it."""
    device = this_device()
    data = read_file(file or settings.path)
    finding = at(examine(data, key_ring(settings.public_keys), device), utc_now())
    if as_json:
        document = {
            "device": device,
            "mode": settings.mode,
            "holds": finding.holds,
            "reason": finding.reason,
            "license": finding.license,
            "grants": grants_of(settings.mode, finding),
        }
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2))
        return
    for name, value in _description(settings, device, finding):
        click.echo(f"{name + ':':<16} {value}")


@license_group.command("install")
@click.argument("file", type=_FILE)
@_pass_settings
def install_command(settings: LicenseSettings, file: Path) -> None:
    """Install the license FILE, if it holds on this device. Takes effect at once."""
    data = read_file(file)
    if data is None:
        raise click.ClickException(f"there is no file {file}")
    finding = install(data, settings.path, key_ring(settings.public_keys), this_device(), utc_now())
    serial = finding.license.serial if finding.license else ""
    click.echo(f"license {serial} is installed in {settings.path}")


def _description(
    settings: LicenseSettings, device: str, finding: Finding
) -> list[tuple[str, object]]:
    """Return the lines of ``license show``: name and value."""
    lines: list[tuple[str, object]] = [("device", device), ("mode", settings.mode)]
    lines.append(("license", "holds" if finding.holds else f"does not hold: {finding.reason}"))
    if finding.license is not None:
        sold = finding.license
        lines += [
            ("serial", sold.serial),
            ("issued", sold.issued_at),
            ("expires", sold.expires_at or "never"),
            ("capabilities", ", ".join(sold.capabilities) or "none"),
            ("proxy services", sold.proxy_service_quota),
            ("trial calls", sold.api_trial_calls),
        ]
    grants = grants_of(settings.mode, finding)
    lines += [
        ("API", "open" if grants.api else "on trial" if grants.api_trial_calls else "shut"),
        ("line DNS", "open" if grants.line_dns else "shut"),
        ("quota", f"{grants.proxy_service_quota} proxy services"),
    ]
    return lines
