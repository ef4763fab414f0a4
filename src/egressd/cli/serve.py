"""``egressd serve``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from egressd.cli import config_option


@click.command()
@config_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="The least important lines of the log. Default: info.",
)
@click.option("-v", "is_verbose", is_flag=True, help="The same as --log-level debug.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="Default: text on a terminal and in the journal, otherwise JSON.",
)
def serve(
    path: Path | None, log_level: str | None, is_verbose: bool, log_format: str | None
) -> None:
    """Run the service in the foreground: netd and the api. SIGTERM ends both.

    SIGHUP restarts both without interrupting traffic, for instance after an upgrade.
    """
    from egressd.app import config, hourly, log_lines, supervise

    # The environment is also that of both processes.
    level = "debug" if is_verbose else log_level
    for name, value in ((log_lines.LEVEL, level), (log_lines.FORMAT, log_format)):
        if value is not None:
            os.environ[name] = value

    if os.geteuid() != 0:
        raise click.ClickException("it must be started by root: netd owns the kernel's tables")
    # So that a bad file is reported here, once, and not by each child.
    settings = config.load(path)
    options = [] if path is None else ["--config", str(path)]
    endpoints = [str(settings.api.listen), str(settings.api.tls_listen)]
    file = str(path or config.DEFAULT_PATH)
    argv = supervise.command(file, options, endpoints, settings.data.dir / hourly.RECORD)
    sys.stdout.flush()
    # In this process's place, without the modules that were loaded for the command line.
    os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted
