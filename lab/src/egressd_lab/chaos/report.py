"""The output of a run of chaos: each event as it happens, and the sums at the end."""

from __future__ import annotations

import msgspec

from egressd_lab.chaos.judge import Breach


class Trace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event, as a line of the trace."""

    second: float
    what: str
    answer: str = ""
    longest_block_s: float = 0.0
    api_back_s: float = 0.0
    breaches: tuple[str, ...] = ()


class Report(msgspec.Struct, kw_only=True):
    """The result of a run."""

    seed: int
    minutes: float
    happened: dict[str, int] = {}
    changes: int = 0
    sent: int = 0
    captured: int = 0
    wrong: int = 0
    """Packets on a wrong egress."""
    own: int = 0
    """ICMP errors of the machine's own, each by the WAN that has its address."""
    untold: int = 0
    """Number of times that a client was blocked for longer than 2 s with nothing in
    ``problems``.
    """
    longest_block_s: float = 0.0
    longest_block_after: str = ""
    longest_api_wait_s: float = 0.0
    exchanges: int = 0
    cuts: int = 0
    longest_pause_s: float = 0.0
    kills: int = 0
    memory: dict[str, tuple[int, int]] = {}
    """Part -> MiB at the beginning, at the end."""
    breaches: list[Breach] = []


def line(event: Trace) -> str:
    """Return an event as text: its time, the longest block after it, its name."""
    answer = f" [{event.answer}]" if event.answer else ""
    text = f"{event.second:7.1f}  {event.longest_block_s:5.2f} s  {event.what}{answer}"
    return "\n".join([text, *(f"         BREACH {breach}" for breach in event.breaches)])


def told(report: Report) -> str:
    """Return a report as text."""
    grown = ", ".join(f"{part} {a} -> {b} MiB" for part, (a, b) in report.memory.items())
    lines = [
        f"what happened              {sum(report.happened.values())} things, "
        f"{report.changes} changes and {report.kills} kills among them",
        f"packets sent               {report.sent:,}",
        f"packets on a wrong egress  {report.wrong}",
        f"the machine's own errors   {report.own:,}",
        f"blocked and untold         {report.untold}",
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
