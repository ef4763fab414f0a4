"""What became of lines, as events for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from egressd.model.messages import Event, LineStatus

_UNDER_WAY = ("waiting", "dialing")
"""States that lead to one worth telling."""


def events(before: Mapping[str, LineStatus], now: Mapping[str, LineStatus]) -> Iterator[Event]:
    """An event for each line that came up, went down, or is down for another reason."""
    for name, status in now.items():
        was = before.get(name)
        if status.is_online and not (was is not None and was.is_online):
            yield Event(topic="line", subject=name, text=f"{name} is online with {status.ip}")
        elif status.state not in (*_UNDER_WAY, "online") and _is_news(was, status):
            yield Event(topic="line", subject=name, text=f"{name} is down: {status.reason}")


def _is_news(was: LineStatus | None, status: LineStatus) -> bool:
    return was is None or (was.state, was.reason) != (status.state, status.reason)
