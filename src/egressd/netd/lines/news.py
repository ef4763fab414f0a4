"""The states of the lines, for queries and as events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from egressd.model.messages import Event, LineNews, LineStatus

_UNDER_WAY = ("waiting", "dialing")
"""States without an event: another one follows."""
_SILENT = (*_UNDER_WAY, "online", "standby")
"""States that are no news of a line that is down. That the other box dials it is an event of the
pair."""


class Reporter:
    """Publishes the states of the lines when they change."""

    def __init__(self, publish: Callable[[Event | LineNews], None]) -> None:
        self.latest = LineNews({})
        """The state of each line at the last report."""
        self._publish = publish
        self._told: dict[str, LineStatus] = {}
        """The last state of each line that an event was about. A line that was up and is being
        dialled has none.
        """

    def report(self, lines: dict[str, LineStatus]) -> None:
        """Publish the changes since the last report."""
        before, self.latest = self.latest, LineNews(lines)
        if self.latest != before:
            self._publish(self.latest)
        for event in events(self._told, lines):
            self._publish(event)
        settled = {n: each for n, each in lines.items() if each.state not in _UNDER_WAY}
        down = {n: each for n, each in self._told.items() if n in lines and not each.is_online}
        self._told = down | settled


def events(before: Mapping[str, LineStatus], now: Mapping[str, LineStatus]) -> Iterator[Event]:
    """Yield an event for each line that came up, went down, or is down for another reason."""
    for name, status in now.items():
        was = before.get(name)
        if status.is_online and not (was is not None and was.is_online):
            by = f", encrypted by {status.encryption}" if status.encryption else ""
            text = f"{name} is online with {status.ip}{by}"
            values = {"ip": status.ip, "encryption": status.encryption}
            yield Event(topic="line", subject=name, text=text, code="online", values=values)
        elif status.state not in _SILENT and _is_news(was, status):
            text = f"{name} is down: {status.reason}"
            values = {"state": status.state, "reason": status.reason}
            yield Event(topic="line", subject=name, text=text, code="down", values=values)


def _is_news(was: LineStatus | None, status: LineStatus) -> bool:
    return was is None or (was.state, was.reason) != (status.state, status.reason)
