"""``script/attack``: run the attack, print a report, keep the seed."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from egressd_lab.attack.story import Attack, Report
from egressd_lab.ownership import remove_abandoned


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long they try.")
@click.option("--seed", type=int, default=None, help="Of an earlier run, to have the same again.")
def main(*, minutes: float, seed: int | None) -> None:
    """Attack egressd on every way in, and end with 1 at the first breach."""
    if os.geteuid() != 0:
        sys.exit("attacks need root: they build network namespaces")
    signal.signal(signal.SIGTERM, _end)
    remove_abandoned()
    seed = secrets.randbelow(1 << 31) if seed is None else seed
    click.echo(f"seed {seed}")
    report = Attack(minutes=minutes, seed=seed, say=click.echo).run()
    click.echo(told(report))
    sys.exit(1 if report.breaches else 0)


def told(report: Report) -> str:
    """Return a report as text."""
    lines = [f"{report.seconds:.0f} s, seed {report.seed}"]
    for hand, words in report.tried.items():
        lines.append(f"tried: {hand:<14} {sum(words.values()):,} ({', '.join(words)})")
    for name, number in report.served.items():
        lines.append(f"served: {name:<22} {number:,}, longest {report.longest_s[name]:.2f} s")
    for part, (early, late) in report.peaks.items():
        lines.append(f"memory: {part:<18} {early >> 20} -> {late >> 20} MiB at most")
    lines.append(f"breaches: {len(report.breaches)}")
    return "\n".join([*lines, *(f"  {breach}" for breach in report.breaches)])


def _end(_: int, __: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


main()
