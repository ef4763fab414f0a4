"""``script/chaos``: run it, report the result, keep the trace."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

import click
import msgspec

from egressd.model.errors import Failed
from egressd_lab.chaos.report import Report, Trace, line, told
from egressd_lab.chaos.story import Chaos
from egressd_lab.ownership import remove_abandoned

_DISK: Final = "32m"


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long things happen.")
@click.option("--seed", type=int, default=None, help="Of an earlier run, to have the same again.")
@click.option("--rate", default=6500.0, show_default=True, help="Packets a second in all.")
@click.option("--quiet", is_flag=True, help="Print the report only.")
def main(*, minutes: float, seed: int | None, rate: float, quiet: bool) -> None:
    """Let everything happen to egressd at once, and end with 1 if it broke a promise."""
    if os.geteuid() != 0:
        sys.exit("chaos needs root: it builds network namespaces")
    signal.signal(signal.SIGTERM, _end)
    remove_abandoned()
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    folder = Path(tempfile.mkdtemp(prefix=f"egressd-chaos-{seed}-"))
    disk = folder / "data"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "chaos", disk], check=True)
    folder.chmod(0o755)
    disk.chmod(0o755)
    trace = folder / "trace.jsonl"
    click.echo(f"seed {seed}, trace {trace}")

    def say(event: Trace) -> None:
        with trace.open("ab") as file:
            file.write(msgspec.json.encode(event) + b"\n")
        if not quiet or event.breaches:
            click.echo(line(event))

    try:
        report = _run(Chaos(minutes=minutes, seed=seed, rate=rate, disk=disk, say=say))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    click.echo(told(report))
    sys.exit(1 if report.breaches else 0)


def _run(chaos: Chaos) -> Report:
    try:
        return chaos.run()
    except Failed as error:
        click.echo(f"ended early: {error}", err=True)
        raise


def _end(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


main()
