"""Digests, quiet hours, retries and limits of alerts, with an explicit clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.model.alerts import SENT_MAX
from egressd.model.wording import NONE, Sentence, as_sentence, decoded, encoded
from egressd.service.alert_book import (
    GATHER_S,
    HOUR_S,
    KEPT_S,
    LINES_MAX,
    PER_HOUR,
    RETRY_S,
    WAITING_MAX,
    AlertBook,
    Digest,
    Kept,
    is_quiet,
)

START = 1_800_000_000.0
FAILS = {("node.failing", "node:1"): (as_sentence("tokyo fails: x"), as_sentence("tokyo answers"))}
WHY = as_sentence("refused")


def local(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def due(book: AlertBook, now: float, *, quiet: bool = False) -> list[Digest]:
    return book.due(now, quiet=quiet, host="gw1", local=local)


def see(book: AlertBook, now: float, *, failing: bool, for_s: float = 60) -> None:
    states = FAILS if failing else {}
    book.see(["node.failing"], states, now=now, for_s=for_s, channels=[1])


def attempt(book: AlertBook, digest: Digest, now: float, problem: Sentence = NONE) -> None:
    book.tried(digest.channel, now)
    book.ended(digest, problem, now)


def test_a_state_is_one_message_when_it_begins_and_one_when_it_ends() -> None:
    book = AlertBook()
    see(book, START, failing=True)
    see(book, START + 59, failing=True)
    assert due(book, START + 100) == []
    see(book, START + 60, failing=True)
    see(book, START + 70, failing=True)
    assert due(book, START + 60 + GATHER_S - 1) == []
    (digest,) = due(book, START + 60 + GATHER_S)
    assert digest.title == "gw1: tokyo fails: x"
    assert digest.body == f"{local(START + 60):%Y-%m-%d %H:%M} tokyo fails: x"
    attempt(book, digest, START + 80)
    see(book, START + 90, failing=False)
    see(book, START + 95, failing=False)
    (digest,) = due(book, START + 110)
    assert digest.title == "gw1: tokyo answers"
    attempt(book, digest, START + 110)
    assert due(book, START + HOUR_S) == []
    assert [each.outcome for each in book.kept.sent] == ["sent", "sent"]


def test_a_short_failure_is_not_alerted() -> None:
    book = AlertBook()
    see(book, START, failing=True)
    see(book, START + 59, failing=False)
    see(book, START + 61, failing=True)
    see(book, START + 120, failing=True)
    assert due(book, START + HOUR_S) == []


def test_the_end_of_a_state_that_is_not_asked_for_is_not_alerted() -> None:
    book = AlertBook()
    see(book, START, failing=True, for_s=0)
    (digest,) = due(book, START + GATHER_S)
    attempt(book, digest, START + GATHER_S)
    book.see([], {}, now=START + 20, for_s=0, channels=[1])
    assert due(book, START + HOUR_S) == []


def test_the_words_of_other_programs_are_one_line() -> None:
    book = AlertBook()
    book.tell("refused\r\nBcc: x\x1b[2J\ud800" + "y" * 1000, START, [1])
    (digest,) = due(book, START + GATHER_S)
    assert digest.title.isprintable()
    assert digest.body.isprintable()
    assert len(digest.body) < 250


def test_many_alerts_at_once_are_one_message() -> None:
    book = AlertBook()
    for number in range(LINES_MAX + 5):
        book.tell(f"alert {number}", START + number / 100, [1, 2])
    first, second = due(book, START + GATHER_S)
    assert (first.channel, second.channel) == (1, 2)
    assert first.title == f"gw1: {LINES_MAX + 5} alerts"
    lines = first.body.splitlines()
    assert len(lines) == LINES_MAX + 1
    assert lines[-1] == "and 5 more"
    attempt(book, first, START + GATHER_S)
    assert [each.channel for each in due(book, START + 60)] == [2]


def test_an_alert_that_comes_meanwhile_is_in_the_next_message() -> None:
    book = AlertBook()
    book.tell("one", START, [1])
    (digest,) = due(book, START + GATHER_S)
    book.tell("two", START + GATHER_S + 1, [1])
    attempt(book, digest, START + GATHER_S + 2)
    (after,) = due(book, START + 2 * GATHER_S + 1)
    assert [each.text for each in after.alerts] == ["two"]


def test_a_message_is_tried_again_ever_more_rarely_for_a_day() -> None:
    book = AlertBook()
    book.tell("one", START, [1])
    now, tries = START + GATHER_S, []
    while now < START + KEPT_S + 2 * HOUR_S:
        for digest in due(book, now):
            tries.append(now)
            attempt(book, digest, now, WHY)
        now += 1
    gaps = [after - before for before, after in pairwise(tries)]
    assert tuple(gaps[: len(RETRY_S)]) == RETRY_S
    assert set(gaps[len(RETRY_S) :]) == {RETRY_S[-1]}
    assert tries[-1] <= START + KEPT_S
    assert book.kept.sent[-1].outcome == "dropped"
    assert book.kept.queues[1].waiting == []


def test_after_a_success_there_is_no_pause() -> None:
    book = AlertBook()
    book.tell("one", START, [1])
    (digest,) = due(book, START + GATHER_S)
    attempt(book, digest, START + GATHER_S, WHY)
    assert due(book, START + GATHER_S + RETRY_S[0] - 1) == []
    (digest,) = due(book, START + GATHER_S + RETRY_S[0])
    attempt(book, digest, START + 50)
    book.tell("two", START + 51, [1])
    assert len(due(book, START + 51 + GATHER_S)) == 1


@pytest.mark.parametrize(
    ("quiet", "minute", "found"),
    [
        ("", 0, False),
        ("23:00-07:00", 23 * 60, True),
        ("23:00-07:00", 0, True),
        ("23:00-07:00", 7 * 60 - 1, True),
        ("23:00-07:00", 7 * 60, False),
        ("23:00-07:00", 23 * 60 - 1, False),
        ("12:00-13:30", 12 * 60, True),
        ("12:00-13:30", 13 * 60 + 30, False),
        ("12:00-12:00", 12 * 60, False),
    ],
)
def test_quiet_hours_may_pass_midnight(quiet: str, minute: int, found: bool) -> None:
    assert is_quiet(quiet, minute) is found


@given(st.integers(0, 1439), st.integers(0, 1439))
def test_quiet_hours_last_as_long_as_they_say(begin: int, end: int) -> None:
    text = f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
    assert sum(is_quiet(text, minute) for minute in range(1440)) == (end - begin) % 1440


def test_alerts_of_quiet_hours_are_one_message_afterwards() -> None:
    book = AlertBook()
    for hour in range(3):
        book.tell(f"alert {hour}", START + hour * HOUR_S, [1])
        assert due(book, START + hour * HOUR_S + GATHER_S, quiet=True) == []
    (digest,) = due(book, START + 3 * HOUR_S)
    assert len(digest.alerts) == 3


def test_too_many_alerts_drop_the_oldest_ones_and_say_so() -> None:
    book = AlertBook()
    for number in range(WAITING_MAX + 7):
        book.tell(f"alert {number}", START, [1])
    assert len(book.kept.queues[1].waiting) == WAITING_MAX
    assert book.kept.queues[1].waiting[0].text == "alert 7"
    (dropped,) = book.kept.sent
    assert (dropped.outcome, dropped.alerts) == ("dropped", 7)


def test_the_record_of_messages_is_bounded() -> None:
    book = AlertBook()
    for number in range(SENT_MAX + 5):
        book.record(1, f"{number}", 0, NONE, START)
    assert len(book.kept.sent) == SENT_MAX
    assert book.kept.sent[-1].title == f"{SENT_MAX + 4}"


def test_nothing_is_lost_or_sent_twice_by_a_restart() -> None:
    book = AlertBook()
    see(book, START, failing=True, for_s=0)
    content = msgspec.json.encode(book.kept, enc_hook=encoded)
    again = AlertBook(msgspec.json.decode(content, type=Kept, dec_hook=decoded))
    see(again, START + 5, failing=True, for_s=0)
    (digest,) = due(again, START + GATHER_S)
    assert len(digest.alerts) == 1
    attempt(again, digest, START + GATHER_S, WHY)
    content = msgspec.json.encode(again.kept, enc_hook=encoded)
    last = AlertBook(msgspec.json.decode(content, type=Kept, dec_hook=decoded))
    see(last, START + 20, failing=False, for_s=0)
    (digest,) = due(last, START + GATHER_S + RETRY_S[0])
    assert [each.text for each in digest.alerts] == ["tokyo fails: x", "tokyo answers"]
    assert last.kept.sent[0].reason == "refused"


def test_alerts_for_a_channel_that_gets_none_are_forgotten() -> None:
    book = AlertBook()
    book.tell("one", START, [1, 2])
    book.keep_channels([2])
    assert [each.channel for each in due(book, START + GATHER_S)] == [2]


Step = Callable[[AlertBook, float], None]


def _told(number: int) -> Step:
    return lambda book, now: book.tell(f"alert {number}", now, [1, 2])


def _passed(_: AlertBook, __: float) -> None:
    return


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0.5, 900),
            st.one_of(st.integers(0, 10**6).map(_told), st.just(_passed)),
            st.booleans(),
            st.booleans(),
        ),
        max_size=120,
    )
)
def test_no_channel_ever_sends_more_than_its_limit_and_nothing_vanishes(
    steps: list[tuple[float, Step, bool, bool]],
) -> None:
    """There are at most 30 attempts within any hour, and each alert is sent, waits, or is reported
    as dropped.
    """
    book, now = AlertBook(), START
    tries: dict[int, list[float]] = {1: [], 2: []}
    told, delivered = 0, {1: 0, 2: 0}
    for seconds, step, is_quiet_now, works in steps:
        now += seconds
        before = sum(len(q.waiting) for q in book.kept.queues.values())
        step(book, now)
        if step is not _passed:
            told += 1
            assert sum(len(q.waiting) for q in book.kept.queues.values()) == before + 2
        for digest in due(book, now, quiet=is_quiet_now):
            assert not is_quiet_now
            assert now - digest.alerts[0].at >= GATHER_S
            tries[digest.channel].append(now)
            attempt(book, digest, now, NONE if works else WHY)
            delivered[digest.channel] += len(digest.alerts) if works else 0
    for channel, times in tries.items():
        for first in times:
            assert sum(first <= at < first + HOUR_S for at in times) <= PER_HOUR
        queue = book.kept.queues.get(channel)
        waiting = 0 if queue is None else len(queue.waiting)
        dropped = sum(
            each.alerts
            for each in book.kept.sent
            if each.channel == channel and each.outcome == "dropped"
        )
        assert delivered[channel] + waiting + dropped == told


def test_a_flood_of_alerts_keeps_to_the_limit() -> None:
    book, times = AlertBook(), []
    for second in range(2 * int(HOUR_S)):
        book.tell(f"alert {second}", START + second, [1])
        for digest in due(book, START + second):
            times.append(START + second)
            attempt(book, digest, START + second)
    assert len(times) <= 2 * PER_HOUR + 1
    assert all(sum(t <= at < t + HOUR_S for at in times) <= PER_HOUR for t in times)
