"""The recorder of traffic: counters that begin anew, clocks that jump, crashes, and bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed, Invalid
from egressd.model.history import KEYS_MAX, By, HistoryStep
from egressd.model.messages import InterfaceStatus, RuleCount, Status
from egressd.model.nouns import Rule
from egressd.service.history import History
from egressd.service.parts import PartStates
from egressd.store.history import HistoryStore

pytestmark = pytest.mark.anyio

NOON = 1_700_049_600


class Counting:
    """netd's counters, which tests set."""

    def __init__(self) -> None:
        self.counted: dict[int, RuleCount] = {}
        self.carried: dict[str, tuple[int, int]] = {}
        self.is_away = False

    async def counters(self) -> dict[int, RuleCount]:
        if self.is_away:
            raise Failed("ask netd", "it is away")
        return dict(self.counted)

    async def status(self) -> Status:
        return Status(
            state="running",
            revision=1,
            interfaces=tuple(
                InterfaceStatus(
                    name=name,
                    ip="",
                    is_up=True,
                    role="" if name.startswith("veth") else "wan",
                    sent=up,
                    received=down,
                )
                for name, (up, down) in self.carried.items()
            ),
        )

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a recorder does not ask for {name}")


class Rig:
    """A recorder with a file, whose clock and counters tests set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now: float = NOON
        self.netd = Counting()
        self.rules = {
            1: Rule(id=1, ip="10.0.0.1", target_node="hk"),
            2: Rule(id=2, ip="10.0.0.2", target_node="hk"),
        }
        self.start()

    def start(self) -> None:
        self.store = HistoryStore(self.folder)
        self.history = History(
            self.netd,
            self.store,
            rules=lambda: self.rules,
            parts=PartStates(DesiredState, dict),
            now=lambda: self.now,
        )

    async def crash(self) -> None:
        """Begin anew without a last write."""
        await self.store.close()
        self.start()

    async def restart(self) -> None:
        await self.history.close()
        self.start()

    def count(self, rule: int, up: int, down: int = 0) -> None:
        self.netd.counted[rule] = RuleCount(up, 1, down, 1)

    async def uploads(self, name: str, step: HistoryStep, by: By = "client") -> dict[int, int]:
        _, points = await self.history.questions.traffic(by, name, 0, 1 << 40, step)
        return {point.start: point.exchanged.upload for point in points}

    async def total(self, name: str, step: HistoryStep, by: By = "client") -> int:
        return sum((await self.uploads(name, step, by)).values())


@pytest.fixture
async def rig(tmp_path: Path) -> Any:
    rig = Rig(tmp_path)
    yield rig
    await rig.history.close()


async def test_traffic_is_counted_by_client_target_and_interface(rig: Rig) -> None:
    rig.count(1, 100)
    rig.netd.carried["wan1"] = (1000, 0)
    await rig.history.read()
    rig.count(1, 150)
    rig.count(2, 7)  # a rule that was enabled since
    rig.netd.carried["wan1"] = (1400, 0)
    await rig.history.read()
    for step in HistoryStep:
        assert await rig.total("10.0.0.1", step) == 50
        assert await rig.total("10.0.0.2", step) == 7
        assert await rig.total("hk", step, "target") == 57
        assert await rig.total("wan1", step, "interface") == 400
        assert await rig.uploads("10.9.9.9", step) == {step.start(NOON): 0}
    top = await rig.history.questions.top("client", NOON - 3600, NOON + 1, 5)
    assert [(each.name, each.exchanged.upload) for each in top] == [
        ("10.0.0.1", 50),
        ("10.0.0.2", 7),
    ]


async def test_a_counter_that_begins_anew_is_never_negative_nor_twice(rig: Rig) -> None:
    for up in (500, 900, 40, 0, 60):
        rig.count(1, up)
        await rig.history.read()
    assert await rig.total("10.0.0.1", HistoryStep.DAY) == 400 + 60


async def test_one_direction_that_begins_anew_does_not_repeat_the_other(rig: Rig) -> None:
    """Past fault: a flushed ruleset keeps the counters of speed limits, which counted again."""
    for up, down in ((500, 7000), (900, 7100), (40, 7150)):
        rig.count(1, up, down)
        await rig.history.read()
    _, points = await rig.history.questions.traffic(
        "client", "10.0.0.1", 0, 1 << 40, HistoryStep.DAY
    )
    assert [tuple(point.exchanged) for point in points] == [(400, 150)]


async def test_traffic_while_netd_is_away_is_not_lost(rig: Rig) -> None:
    rig.count(1, 0)
    await rig.history.read()
    rig.netd.is_away = True
    with pytest.raises(Failed):
        await rig.history.read()
    rig.netd.is_away = False
    rig.count(1, 70)
    await rig.history.read()
    assert await rig.total("10.0.0.1", HistoryStep.MINUTE) == 70


async def test_a_restart_goes_on_where_it_was(rig: Rig) -> None:
    rig.count(1, 0)
    await rig.history.read()
    rig.count(1, 30)
    await rig.history.read()
    await rig.restart()
    await rig.history.read()
    rig.count(1, 35)
    await rig.history.read()
    for step in (HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY):
        assert await rig.uploads("10.0.0.1", step) == {step.start(NOON): 35}


async def grows_to_300_and_crashes(rig: Rig) -> None:
    """Check that a crash after two writes costs nothing at any step."""
    for up in (150, 300):
        rig.now += 1200
        rig.count(1, up)
        await rig.history.read()
        await rig.history.write()
    await rig.crash()
    await rig.history.read()
    for step in (HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY):
        assert await rig.total("10.0.0.1", step) == 300, step


async def test_a_crash_after_a_stop_of_the_same_day_costs_no_more(rig: Rig) -> None:
    """Past fault: the stop's unfinished hour and day were taken for whole ones."""
    rig.count(1, 0)
    await rig.history.read()
    rig.count(1, 100)
    await rig.history.read()
    await rig.restart()
    await rig.history.read()
    await grows_to_300_and_crashes(rig)


@pytest.mark.parametrize("ahead_s", [5 * 3600, 400 * 86_400])
async def test_a_crash_after_the_clock_was_ahead_costs_no_more(rig: Rig, ahead_s: int) -> None:
    """Past fault: the slot with the latest time was taken for the one that a stop wrote last."""
    rig.count(1, 0)
    await rig.history.read()
    rig.count(1, 100)
    await rig.history.read()
    await rig.restart()  # writes the hour and the day as they are so far
    rig.now += ahead_s
    await rig.history.read()
    rig.count(1, 110)
    await rig.history.read()
    await rig.restart()  # the latest slots are those of a time to come
    rig.now -= ahead_s
    await rig.history.read()
    await grows_to_300_and_crashes(rig)


async def test_the_history_of_a_bound_client_goes_with_its_device(rig: Rig) -> None:
    """And the next owner of the address begins with none."""
    mac, step = "02:00:5e:00:53:01", HistoryStep.DAY

    async def sends(up: int, **fields: Any) -> None:
        rig.rules = {**rig.rules, 1: replace(rig.rules[1], **fields)}
        rig.count(1, up)
        await rig.history.read()

    await sends(0)
    await sends(100)
    await sends(300, bound_mac=mac)
    assert await rig.total("10.0.0.1", step) == 300
    await sends(600, ip="10.0.0.7/32")
    rig.rules = {**rig.rules, 3: Rule(id=3, ip="10.0.0.1/32", target_node="hk")}
    rig.count(3, 0)
    await rig.history.read()
    rig.count(3, 5)
    await rig.history.read()
    assert [await rig.total(f"10.0.0.{n}", step) for n in (1, 7)] == [5, 600]
    largest = await rig.history.questions.top("client", NOON - 86_400, NOON + 1, 10)
    assert {each.name: each.exchanged.upload for each in largest} == {
        "10.0.0.7": 600,
        "10.0.0.1": 5,
    }
    await rig.restart()
    await sends(600)
    await sends(700)
    assert [await rig.total(f"10.0.0.{n}", step) for n in (1, 7)] == [5, 700]
    await sends(800, bound_mac="")
    assert await rig.total("10.0.0.7", step) == 800


async def test_interfaces_without_a_role_have_no_history(rig: Rig) -> None:
    """Past fault: those of containers, each under a new name, took the numbers of all others."""
    for sent in (0, 50):
        rig.netd.carried = {"wan0": (sent, 0), "veth1a2b": (sent, 0)}
        await rig.history.read()
    assert rig.history.questions.state().keys["interface"] == 1


async def test_minutes_are_the_step_only_if_memory_goes_back_so_far(rig: Rig) -> None:
    asks = rig.history.questions
    rig.count(1, 0)
    await rig.history.read()
    asked = int(rig.now) - 3600, int(rig.now) + 60
    assert (await asks.traffic("client", "10.0.0.1", *asked, None))[0] is HistoryStep.QUARTER
    for _ in range(62):
        rig.now += 60
        await rig.history.read()
    asked = int(rig.now) - 3600, int(rig.now) + 60
    assert (await asks.traffic("client", "10.0.0.1", *asked, None))[0] is HistoryStep.MINUTE


async def test_a_window_has_the_shortest_step_that_goes_back_so_far(rig: Rig) -> None:
    """Also one that is as long as a step is kept, with the slot that still grows."""
    rig.now = NOON - 3 * 3600 - 60
    for minute in range(3 * 60 + 2):
        rig.count(1, minute)
        await rig.history.read()
        rig.now += 60
    rig.now -= 60
    assert rig.now == NOON
    steps = {}
    for hours in (3, 4, 72, 73, 744, 746):
        start = NOON - hours * 3600
        steps[hours], _ = await rig.history.questions.traffic(
            "client", "10.0.0.1", start, NOON + 1, None
        )
    quarter, hour, day = HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY
    assert [*steps.values()] == [HistoryStep.MINUTE, quarter, quarter, hour, hour, day]


async def test_slots_that_are_written_during_an_answer_count_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for up in (0, 30):
        rig.count(1, up)
        await rig.history.read()
    rig.now += HistoryStep.QUARTER.seconds
    rig.count(1, 70)
    await rig.history.read()
    series, sums = rig.store.series, rig.store.sums

    async def series_before_a_write(*asked: Any) -> Any:
        found = await series(*asked)
        await rig.history.write()
        return found

    async def sums_after_a_write(*asked: Any) -> Any:
        await rig.history.write()
        return await sums(*asked)

    monkeypatch.setattr(rig.store, "series", series_before_a_write)
    assert await rig.total("10.0.0.1", HistoryStep.QUARTER) == 70
    monkeypatch.undo()
    rig.now += HistoryStep.QUARTER.seconds
    rig.count(1, 75)
    await rig.history.read()
    monkeypatch.setattr(rig.store, "sums", sums_after_a_write)
    (largest,) = await rig.history.questions.top("client", NOON, int(rig.now) + 1, 5)
    assert largest.exchanged.upload == 75


async def test_a_crash_costs_no_more_than_since_the_last_write(rig: Rig) -> None:
    rig.count(1, 0)
    await rig.history.read()
    up = 0
    for _ in range(30):  # over the ends of hours
        rig.now += 600
        up += 10
        rig.count(1, up)
        await rig.history.read()
        await rig.history.write()
    rig.count(1, up + 1)
    await rig.history.read()
    await rig.crash()
    await rig.history.read()
    for step in (HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY):
        assert await rig.total("10.0.0.1", step) == 300


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([60, 600, 3600, 86_400, -60, -900, -86_400, 10 * 365 * 86_400]),
            st.integers(0, 9),
            st.booleans(),
        ),
        max_size=15,
    )
)
async def test_jumps_of_the_clock_neither_lose_nor_double_traffic(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, int, bool]]
) -> None:
    rig = Rig(tmp_path_factory.mktemp("clock"))
    rig.count(1, 0)
    await rig.history.read()
    up = 0
    for seconds, more, is_restart in moves:
        rig.now += seconds
        up += more
        rig.count(1, up)
        await rig.history.read()
        await rig.history.write()
        if is_restart:
            await rig.restart()
            await rig.history.read()
    for step in (HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY):
        assert await rig.total("10.0.0.1", step) == up
    await rig.history.close()


async def test_a_damaged_file_costs_only_what_it_had(rig: Rig) -> None:
    rig.count(1, 0)
    await rig.history.read()
    rig.count(1, 5)
    await rig.history.read()
    await rig.history.write()
    (rig.folder / "history.db").write_bytes(b"no database at all" * 999)
    (rig.folder / "history.db-wal").unlink(missing_ok=True)
    await rig.restart()
    await rig.history.read()
    rig.count(1, 9)
    await rig.history.read()
    await rig.restart()
    await rig.history.read()
    assert await rig.total("10.0.0.1", HistoryStep.DAY) == 4
    assert (rig.folder / "history.db.damaged").exists()


async def test_a_disk_that_fails_is_a_problem_until_it_works(rig: Rig) -> None:
    (rig.folder / "history.db").mkdir()
    rig.count(1, 0)
    with pytest.raises(Failed):
        await rig.history.read()
    (problem,) = rig.history.problems()
    assert problem.code == "history-unwritten"
    (rig.folder / "history.db").rmdir()
    await rig.history.read()
    assert [*rig.history.problems()] == []


async def test_clients_beyond_the_bound_are_counted_as_unrecorded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEYS_MAX, "client", 1)
    for up in (0, 5):
        rig.count(1, up)
        rig.count(2, up)
        await rig.history.read()
    assert rig.history.questions.state().unrecorded["client"] == 1
    assert [problem.code for problem in rig.history.problems()] == ["history-full"]
    # After long silence the first client's number is another's, who has nothing of its past.
    rig.now += 60 * 86_400
    rig.count(2, 12)
    await rig.history.read()
    assert [*rig.history.problems()] == []
    assert await rig.total("10.0.0.2", HistoryStep.DAY) == 7
    assert await rig.total("10.0.0.1", HistoryStep.DAY) == 0
    top = await rig.history.questions.top("client", int(rig.now) - 86_400, int(rig.now) + 1, 5)
    assert [(each.name, each.exchanged.upload) for each in top] == [("10.0.0.2", 7)]


@pytest.mark.parametrize("days", [0, 32])
async def test_a_time_that_cannot_be_asked_for_is_refused(rig: Rig, days: int) -> None:
    with pytest.raises(Invalid):
        await rig.history.questions.top("client", NOON - days * 86_400, NOON, 5)
