"""What becomes of lines: for those who ask, and as events for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from egressd.model.messages import Event, LineNews, LineStatus

_UNDER_WAY = ("waiting", "dialing")
"""States that lead to one worth telling."""


class Reporter:
    """Publishes how lines are doing whenever that is news."""

    def __init__(self, publish: Callable[[Event | LineNews], None]) -> None:
        self.latest = LineNews({})
        """How each line was doing at the last report."""
        self._publish = publish
        self._told: dict[str, LineStatus] = {}
        """How each was doing when it was told last; nothing of one that was up and is dialled."""

    def report(self, lines: dict[str, LineStatus]) -> None:
        """Tell everyone what has changed since the last report."""
        before, self.latest = self.latest, LineNews(lines)
        if self.latest != before:
            self._publish(self.latest)
        for event in events(self._told, lines):
            self._publish(event)
        settled = {n: each for n, each in lines.items() if each.state not in _UNDER_WAY}
        down = {n: each for n, each in self._told.items() if n in lines and not each.is_online}
        self._told = down | settled


def events(before: Mapping[str, LineStatus], now: Mapping[str, LineStatus]) -> Iterator[Event]:
    """An event for each line that came up, went down, or is down for another reason."""
    for name, status in now.items():
        was = before.get(name)
        if status.is_online and not (was is not None and was.is_online):
            by = f", encrypted by {status.encryption}" if status.encryption else ""
            yield Event(topic="line", subject=name, text=f"{name} is online with {status.ip}{by}")
        elif status.state not in (*_UNDER_WAY, "online") and _is_news(was, status):
            text = f"{name} is down: {status.reason}"
            values = {"state": status.state, "reason": status.reason}
            yield Event(topic="line", subject=name, text=text, code="down", values=values)


def _is_news(was: LineStatus | None, status: LineStatus) -> bool:
    return was is None or (was.state, was.reason) != (status.state, status.reason)
