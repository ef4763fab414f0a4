"""``script/chaos``: run it, tell what happened, keep the trace."""

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

from egressd.lab import netns
from egressd.lab.chaos.story import Chaos, Report, Trace
from egressd.lab.ownership import abandoned
from egressd.model.errors import Failed

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
    for name in abandoned():
        netns.remove_lab(name)
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
            click.echo(_line(event))

    try:
        report = _run(Chaos(minutes=minutes, seed=seed, rate=rate, disk=disk, say=say))
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    click.echo(_told(report))
    sys.exit(1 if report.breaches else 0)


def _run(chaos: Chaos) -> Report:
    try:
        return chaos.run()
    except Failed as error:
        click.echo(f"ended early: {error}", err=True)
        raise


def _end(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _line(event: Trace) -> str:
    answer = f" [{event.answer}]" if event.answer else ""
    line = f"{event.second:7.1f}  {event.longest_block_s:5.2f} s  {event.what}{answer}"
    return "\n".join([line, *(f"         BREACH {breach}" for breach in event.breaches)])


def _told(report: Report) -> str:
    grown = ", ".join(f"{part} {a} -> {b} MiB" for part, (a, b) in report.memory.items())
    lines = [
        f"what happened              {sum(report.happened.values())} things, "
        f"{report.changes} changes and {report.kills} kills among them",
        f"packets sent               {report.sent:,}",
        f"packets on a wrong egress  {report.wrong}",
        f"longest block              {report.longest_block_s:.2f} s, after: "
        f"{report.longest_block_after}",
        f"bystanders                 {report.exchanges:,} exchanges, {report.cuts} flows cut, "
        f"longest pause {report.longest_pause_s:.2f} s",
        f"longest wait for the API   {report.longest_api_wait_s:.2f} s",
        f"memory                     {grown}",
        f"breaches                   {len(report.breaches)}",
        *(f"  {breach.promise}: {breach.what}" for breach in report.breaches),
    ]
    return "\n".join(lines)


main()
