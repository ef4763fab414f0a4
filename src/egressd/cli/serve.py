"""``egressd serve``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from egressd.cli import config_option


@click.command()
@config_option
def serve(path: Path | None) -> None:
    """Run the service in the foreground: netd and the api. SIGTERM ends both.

    SIGHUP restarts both without interrupting traffic, for instance after an upgrade.
    """
    from egressd.app import config, logs, supervise

    if os.geteuid() != 0:
        raise click.ClickException("it must be started by root: netd owns the kernel's tables")
    logs.configure("serve")
    config.load(path)  # so that a bad file is reported here, once, and not by each child
    supervise.run(path)
