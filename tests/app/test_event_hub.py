"""Each listener gets every event, or a notice that it missed some."""

from __future__ import annotations

import asyncio

from egressd.app.events import BEHIND_MAX, MISSED, EventHub
from egressd.model.messages import Event


def event(number: int) -> Event:
    return Event(topic="line", subject=f"l2tp_{number}")


async def test_every_listener_receives_every_event_until_the_end() -> None:
    hub = EventHub()

    async def hear() -> list[Event]:
        return [each async for each in hub.stream()]

    listening = [asyncio.ensure_future(hear()) for _ in range(2)]
    await asyncio.sleep(0)
    for number in range(BEHIND_MAX):
        hub.publish(event(number))
    hub.close()
    whole = [event(number) for number in range(1, BEHIND_MAX)]
    for heard in await asyncio.gather(*listening):
        assert heard == whole, "the end takes the place of the first where there is no room"


async def test_a_slow_listener_receives_a_notice_of_missed_events() -> None:
    hub = EventHub()
    stream = hub.stream()
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    for number in range(BEHIND_MAX + 10):
        hub.publish(event(number))
    hub.close()
    heard = [await first, *[each async for each in stream]]
    missed = heard.index(MISSED)
    assert heard[missed + 1 :] == [event(n) for n in range(BEHIND_MAX, BEHIND_MAX + 10)]
    assert heard[:missed] in ([], [event(0)])
