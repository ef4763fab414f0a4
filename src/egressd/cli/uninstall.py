"""``egressd uninstall``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from egressd.app.versions import InstalledVersions
from egressd.cli import config_option
from egressd.cli.confirmation import confirm

if TYPE_CHECKING:
    from egressd.app.config import Config

_KERNEL = "its nftables tables, policy rules, routes, queues and BPF programs, and its processes"


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--keep-data",
    is_flag=True,
    help="Keep configuration, database, certificates, backups, and the users that own them.",
)
@config_option
def uninstall(yes: bool, keep_data: bool, path: Path | None) -> None:
    """Remove egressd from this machine, and put kernel parameters back as they were.

    It prints what will be removed, and which clients will be blocked or open, and asks. A package
    is removed by `apt-get purge`. A checkout of the source stays. If it is interrupted, it can be
    called again.
    """
    from egressd.app import config, removal

    if os.geteuid() != 0:
        raise click.ClickException("it must be started by root: it removes what root installed")
    file = path or config.DEFAULT_PATH
    if path is not None and not file.exists():
        click.echo(f"there is no {file}: the egressd that it describes is removed already")
        return
    settings = config.load(path)
    is_installed = removal.is_installed(settings)
    is_package = is_installed and InstalledVersions().in_force() is not None
    _announce(settings, file, is_package=is_package, keep_data=keep_data)
    if not yes:
        confirm("Remove egressd?")
    if is_package:
        _purge(keep_data=keep_data)
    if is_installed:
        removal.stop_units()
    for problem in removal.clean_kernel(settings):
        click.echo(problem, err=True)
    if is_installed:
        removal.remove_units()
    removal.remove_run(settings)
    if not keep_data:
        if is_installed:
            removal.remove_users()
        removal.remove_data(settings, file)
    click.echo("egressd is removed")
    if (checkout := Path(sys.prefix).parent).joinpath("script", "install").exists():
        click.echo(f"the checkout stays: rm -rf {checkout} removes it")


def _announce(settings: Config, file: Path, *, is_package: bool, keep_data: bool) -> None:
    from egressd.app import removal

    click.echo(f"from the kernel: {_KERNEL}")
    data = [settings.data.dir, file]
    kept = data if keep_data else []
    found = [it for it in removal.present(settings) if it not in kept]
    if not keep_data and file.exists():
        found.append(file)
    click.echo(f"from the disk: {', '.join(map(str, found)) or 'nothing'}")
    if is_package:
        click.echo("by apt-get: the package egressd")
    if keep_data:
        click.echo(f"it keeps {' and '.join(map(str, data))}, and the users")
    elif removal.is_installed(settings):
        click.echo(f"and the users {' and '.join(removal.USERS)}")
    if not keep_data:
        click.echo("all rules, nodes, passwords, certificates and backups in there are lost")
    if removal.forwards_afterwards(settings):
        click.echo(
            "every client whose gateway this machine is will be OPEN, without rules: the machine"
            " forwards (net.ipv4.ip_forward = 1), as before, unless another firewall forbids it"
        )
    else:
        click.echo(
            "every client whose gateway this machine is will be BLOCKED: the machine does not"
            " forward (net.ipv4.ip_forward = 0), as before"
        )


def _purge(*, keep_data: bool) -> None:
    """Become apt-get, which removes this program's files. Does not return."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if keep_data:
        environment["EGRESSD_KEEP_DATA"] = "1"
    sys.stdout.flush()
    arguments = ("apt-get", "--yes", "--quiet", "purge", "egressd")
    os.execvpe("apt-get", arguments, environment)  # noqa: S606 - no shell, apt's usual name
