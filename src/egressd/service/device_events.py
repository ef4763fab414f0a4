"""Events about the devices of LANs: new ones, those that turned up with another address, and those
that use an address of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from egressd.model.messages import Event
from egressd.model.wording import Sentence, Value, say
from egressd.service.bindings import Followed
from egressd.service.device_table import Moved
from egressd.service.judge import Notice

AT_ONCE: Final = 16
"""New devices, or moves, that are reported one by one; more new ones are reported together."""
_SUBJECTS_MAX: Final = 20
"""Hardware addresses that an event's values hold."""


class NewDevice(NamedTuple):
    """A new device, as events describe it."""

    mac: str
    label: str
    """Its best name."""
    ip: str
    hostname: str
    vendor: str


def new(devices: Sequence[NewDevice]) -> Iterator[Notice]:
    """Yield an event for each new device, or one for many."""
    if len(devices) > AT_ONCE:
        names = tuple(device.label for device in devices[:_SUBJECTS_MAX])
        text = say("devices-new", n=len(devices), names=names)
        yield _notice("new", text, [each.mac for each in devices], {"number": len(devices)})
        return
    for mac, label, ip, hostname, vendor in devices:
        code = "device-new" if ip else "device-new-without-address"
        text = say(code, name=label, mac=mac, ip=ip)
        yield _notice("new", text, [mac], {"ip": ip, "hostname": hostname, "vendor": vendor})


def moved(moves: Iterable[tuple[Moved, str]]) -> Iterator[Notice]:
    """Yield an event for each of the first moves; they come with the best name of the device."""
    for (mac, before, ip), label in [*moves][:AT_ONCE]:
        text = say("device-moved", name=label, mac=mac, ip=ip, before=before)
        yield _notice("moved", text, [mac], {"ip": ip, "before": before})


def unfollowed(move: Followed, label: str) -> Notice:
    """Return the event of a rule that cannot follow its device."""
    text = say("device-unfollowed", name=label, mac=move.mac, ip=move.ip, before=move.before)
    about = {"ip": move.ip, "before": move.before}
    return _notice("unfollowed", text, [move.mac], about, is_bad=True)


def impostor(ip: str, mac: str, label: str, owner_label: str, owner: str) -> Notice:
    """Return the event of a device that uses an address which belongs to another one."""
    text = say("device-impostor", ip=ip, mac=mac, name=label, owner=owner_label, other=owner)
    return _notice("impostor", text, [mac], {"ip": ip, "owner": owner}, is_bad=True)


def _notice(
    code: str,
    text: Sentence,
    macs: list[str],
    about: Mapping[str, Value],
    *,
    is_bad: bool = False,
) -> Notice:
    values = {"subjects": tuple(sorted(macs)[:_SUBJECTS_MAX]), **about}
    subject = macs[0] if len(macs) == 1 else ""
    event = Event(topic="device", subject=subject, text=str(text), code=code, values=values)
    return Notice(event, is_bad=is_bad)
