"""``egressd check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from egressd.cli import config_option
from egressd.cli.output import json_option, show_json
from egressd.model.errors import EgressdError

if TYPE_CHECKING:
    from egressd.app.config import Config
    from egressd.model.findings import MachineFinding


@click.command()
@config_option
@json_option
def check(path: Path | None, as_json: bool) -> None:
    """Print what this machine lacks for egressd, with its cost and its cure. Changes nothing.

    It needs no running service. The exit status is 1 if the service could not start, or if every
    client would stay blocked.
    """
    from egressd.app import config

    findings = _findings(config.load(path))
    if as_json:
        show_json([_as_texts(finding) for finding in findings])
    else:
        _show(findings)
    if any(finding.weight == "blocking" for finding in findings):
        raise SystemExit(1)


def _as_texts(finding: MachineFinding) -> dict[str, str]:
    return {name: str(value) for name, value in msgspec.structs.asdict(finding).items()}


def _show(findings: tuple[MachineFinding, ...]) -> None:
    for finding in findings:
        click.echo(f"{finding.weight}: {finding.subject}: {finding.text}")
        click.echo(f"  cost: {finding.cost}")
        click.echo(f"  cure: {finding.cure}")
    if not findings:
        click.echo("this machine lacks nothing")


def _findings(settings: Config) -> tuple[MachineFinding, ...]:
    """Return all findings, the heaviest first. Raises Failed."""
    from egressd.app import machine_check
    from egressd.model.findings import heaviest_first

    is_running = _is_running(settings)
    return heaviest_first(
        (
            *machine_check.of_system(settings, is_running=is_running),
            *machine_check.of_configuration(settings, is_running=is_running),
        )
    )


def _is_running(settings: Config) -> bool:
    """True if this device's own service answers."""
    from egressd.app import local_socket

    try:
        with local_socket.connect(settings.api_data, 2.0):
            return True
    except EgressdError:
        return False
