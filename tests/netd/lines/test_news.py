"""News of lines to the api: at once when it connects, and then as they change."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from egressd.model.messages import Event, LineNews, LineStatus, Status, StatusNews
from egressd.model.wording import as_sentence
from egressd.netd.ipc.client import NetdClient
from egressd.netd.ipc.server import Server
from egressd.netd.lines import news
from tests.support.netns import eventually
from tests.support.stand_ins import UnexpectedReconciler

ONLINE = LineStatus(is_online=True, ip="10.9.0.2", state="online")
DIALING = LineStatus(is_online=False, state="dialing", reason=as_sentence("s is being dialled"))
REFUSED = LineStatus(
    is_online=False, state="wrong_password", reason=as_sentence("the password is wrong")
)


STANDBY = LineStatus(is_online=False, state="standby", reason=as_sentence("by the active box"))


def told(before: LineStatus | None, now: LineStatus) -> list[str]:
    known = {} if before is None else {"l2tp_1": before}
    return [event.text for event in news.events(known, {"l2tp_1": now})]


def test_a_line_that_comes_up_is_reported_once() -> None:
    assert told(DIALING, ONLINE) == ["l2tp_1 is online with 10.9.0.2"]
    assert told(None, ONLINE) == ["l2tp_1 is online with 10.9.0.2"]
    assert told(ONLINE, ONLINE) == []


def test_a_line_of_the_other_box_is_no_news() -> None:
    assert told(ONLINE, STANDBY) == []
    assert told(None, STANDBY) == []
    assert told(STANDBY, ONLINE) == ["l2tp_1 is online with 10.9.0.2"]


def test_events_have_a_code_and_values_beside_the_text() -> None:
    (up,) = news.events({}, {"l2tp_1": ONLINE})
    assert (up.code, up.values) == ("online", {"ip": "10.9.0.2", "encryption": ""})
    (down,) = news.events({"l2tp_1": ONLINE}, {"l2tp_1": REFUSED})
    assert (down.code, down.values) == (
        "down",
        {"state": REFUSED.state, "reason": "the password is wrong"},
    )


def test_a_line_that_is_down_is_reported_once_for_each_reason() -> None:
    assert told(ONLINE, REFUSED) == ["l2tp_1 is down: the password is wrong"]
    later = LineStatus(
        is_online=False, state="wrong_password", reason=REFUSED.reason, next_attempt="later"
    )
    assert told(REFUSED, later) == []


def test_an_attempt_is_not_reported() -> None:
    assert told(REFUSED, DIALING) == []
    assert told(None, LineStatus(is_online=False, state="waiting")) == []


def test_repeated_failures_of_a_line_are_reported_once_for_each_reason() -> None:
    told: list[str] = []

    def note(published: Event | LineNews) -> None:
        if isinstance(published, Event):
            told.append(published.text)

    reporter = news.Reporter(note)
    away = LineStatus(is_online=False, state="unreachable", reason=as_sentence("no answer"))
    history = (away, away, REFUSED, ONLINE, ONLINE, away)
    for status in history:
        reporter.report({"l2tp_1": DIALING})
        reporter.report({"l2tp_1": status})
    assert told == [
        "l2tp_1 is down: no answer",
        "l2tp_1 is down: the password is wrong",
        "l2tp_1 is online with 10.9.0.2",
        "l2tp_1 is online with 10.9.0.2",
        "l2tp_1 is down: no answer",
    ]
    reporter.report({})
    reporter.report({"l2tp_1": away})
    assert told[5:] == ["l2tp_1 is down: no answer"], "it is another line of that name"


class _Machine(UnexpectedReconciler):
    """The part of netd that the socket uses for news."""

    line_news = LineNews({"l2tp_1": DIALING})
    status_news = StatusNews(Status(state="running", revision=0))


async def test_the_api_receives_line_states_without_a_request(tmp_path: Path) -> None:
    path = tmp_path / "netd.sock"
    server = Server(path, os.getuid(), _Machine())
    await server.open()
    connected = asyncio.Event()
    events: list[Event] = []

    async def on_connect() -> None:
        connected.set()

    client = NetdClient(path, on_connect=on_connect, on_event=events.append)
    assert client.lines() == {}
    running = asyncio.create_task(client.run())
    await asyncio.wait_for(connected.wait(), 10)
    assert client.lines() == {"l2tp_1": DIALING}
    server.publish(LineNews({"l2tp_1": ONLINE}))
    await eventually(lambda: client.lines() == {"l2tp_1": ONLINE})
    await server.close()
    await eventually(lambda: client.lines() == {})
    running.cancel()
    await asyncio.wait({running})
    assert events == []
