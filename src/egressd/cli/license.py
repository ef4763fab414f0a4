"""``egressd license``: the commands of `egressd.license`, given this device's configuration."""

from __future__ import annotations

from pathlib import Path

import click

from egressd.cli import config_option
from egressd.license.commands import license_group
from egressd.license.licensing import LicenseSettings


@click.group("license", cls=type(license_group), commands=license_group.commands)
@config_option
@click.pass_context
def license_(ctx: click.Context, path: Path | None) -> None:
    """Licenses: the permitted use of this device's management API."""
    from egressd.app import config

    settings = config.load(path)
    ctx.obj = LicenseSettings(
        mode=settings.license.mode,
        path=settings.license_file,
        public_keys=settings.license.public_keys,
    )
