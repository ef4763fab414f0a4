"""Events of the device, by name: for the log and for all listeners."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from egressd.app.events import EventHub
from egressd.app.use_cases import UseCases
from egressd.model.messages import DeviceNews, Event, Status
from egressd.service.event_names import named
from egressd.service.judge import Notice

log = structlog.get_logger()


class News:
    """Takes netd's events, netd's status of the device, and the notices of its judgement."""

    def __init__(self, hub: EventHub, cases: Callable[[], UseCases]) -> None:
        self._hub = hub
        self._cases = cases
        self.healed = {"nftables": 0, "limits": 0}
        """Part of the kernel's state -> how often netd has put it back after another program
        changed it, since this process started."""
        self.lost = {"workers": 0, "instances": 0}
        """Engine workers that ended by themselves, and the instances that were lost with them."""
        self.pair_role = ""
        """The role of this box in its pair, as netd has reported it last; empty if it is in none.
        """

    def on_event(self, event: Event) -> None:
        """Log, count and publish an event of netd, with names in place of nodes' and groups'
        numbers.
        """
        self._count(event)
        told = named(event, self._cases().ledger.state)
        if told != event:  # else netd's own log has it
            beside = _for_programs(told)
            log.info(told.text, topic=told.topic, subject=told.subject, key=event.subject, **beside)
        self._hub.publish(told)
        self._alert(told)

    def _count(self, event: Event) -> None:
        if event.topic == "healed" and event.subject in self.healed:
            self.healed[event.subject] += 1
        elif event.topic == "engine" and event.code == "lost":
            self.lost["workers"] += 1
            self.lost["instances"] += event.values.get("instances", 0)

    def on_status(self, seen: Status) -> None:
        """Judge a changed status of the device."""
        self.pair_role = seen.pair_role or ""
        try:
            self._cases().judge.take(seen)
            self._cases().services.history.look(seen)
            self._cases().services.alerts.look(seen)
            self._cases().services.subscriptions.look(seen)
            self._cases().services.rotations.look(seen)
        except Exception:
            # A request reports the fault to its client; the connection to netd must go on.
            log.exception("cannot evaluate the status of the device")

    def on_devices(self, news: DeviceNews) -> None:
        """Note what netd has seen of devices in LANs."""
        try:
            self._cases().services.devices.take(news)
        except Exception:
            # No client's traffic depends on it; the connection to netd must go on.
            log.exception("cannot note what was seen of devices")

    def _alert(self, event: Event) -> None:
        try:
            self._cases().services.alerts.take(event)
        except Exception:
            log.exception("cannot alert of an event")

    def notify(self, notice: Notice) -> None:
        """Log and publish a change of the judgement."""
        event = notice.event
        beside = _for_programs(event) | ({"key": notice.key} if notice.key else {})
        write = log.warning if notice.is_bad else log.info
        write(event.text, topic=event.topic, subject=event.subject, **beside)
        self._hub.publish(event)
        self._alert(event)


def _for_programs(event: Event) -> dict[str, object]:
    """Return what the log has beside an event's text."""
    return {"code": event.code, "values": event.values} if event.code else {}
