"""``egressd check``."""

from __future__ import annotations

import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from egressd.cli import config_option
from egressd.cli.output import json_option, show_json
from egressd.model.errors import EgressdError, Failed

if TYPE_CHECKING:
    from egressd.app.config import Config
    from egressd.app.preflight import MachineFinding


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
        show_json([asdict(finding) for finding in findings])
    else:
        _show(findings)
    if any(finding.weight == "blocking" for finding in findings):
        raise SystemExit(1)


def _show(findings: list[MachineFinding]) -> None:
    for finding in findings:
        click.echo(f"{finding.weight}: {finding.subject}: {finding.text}")
        click.echo(f"  cost: {finding.cost}")
        click.echo(f"  cure: {finding.cure}")
    if not findings:
        click.echo("this machine lacks nothing")


def _findings(settings: Config) -> list[MachineFinding]:
    """Return all findings, the heaviest first. Raises Failed."""
    from egressd.app import network, preflight
    from egressd.planner.topology import discover

    try:
        facts = network.facts()
        topology = discover(facts, settings.roles)
    except OSError as error:
        raise Failed("see this machine's interfaces", str(error)) from error
    named = (*settings.lan.interfaces, *settings.wan.interfaces)
    missing = [name for name in named if not Path("/sys/class/net", name).exists()]
    is_running = _is_running(settings)
    folder = next(p for p in (settings.data.dir, *settings.data.dir.parents) if p.exists())
    look = preflight.Look()
    found = [
        *preflight.kernel(look),
        *preflight.roles(topology.lans, topology.wans, missing),
        *preflight.ports(network.listening_ports(), settings.own_ports, is_running),
        *preflight.system(look, is_running),
        *preflight.clock(time.time()),
        *preflight.disk(shutil.disk_usage(folder).free, settings.data.dir),
    ]
    weights = ("blocking", "limiting", "note")
    return sorted(found, key=lambda finding: weights.index(finding.weight))


def _is_running(settings: Config) -> bool:
    """True if this device's own service answers."""
    from egressd.app import local_socket

    try:
        with local_socket.connect(settings.api_data, 2.0):
            return True
    except EgressdError:
        return False
