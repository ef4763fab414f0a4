"""The recorder of states and delays: gaps, restarts, flapping, renames, and what counts as up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.history import KEYS_MAX, HistoryStep
from egressd.model.messages import LineStatus, RuleCount, Status
from egressd.model.node_delays import MILLISECONDS, code_of_delay
from egressd.model.nouns import Line, Node, Rule, Settings
from egressd.model.wording import say
from egressd.service.history import History
from egressd.service.parts import PartStates
from egressd.service.timelines import BURST, GAP_S, REFILL_S
from egressd.store.history import HistoryStore

pytestmark = pytest.mark.anyio

NOON = 1_700_049_600
SILENT = say("silent")


def node(number: int, name: str, group: str = "") -> Edit:
    config = '{"server": "198.51.100.1", "port": 1080}'
    made = Node(
        id=number, name=name, protocol="socks5", config_json=config, group=group, created_at=""
    )
    return Edit("nodes", number, made)


def rule(number: int, target: str) -> Edit:
    return Edit("rules", number, Rule(id=number, ip=f"10.0.0.{number}/32", target_node=target))


LINE = Line(
    id=1, type="l2tp", name="l2tp_office", server="a.example", port=1701, username="u", password="p"
)


class Reporting:
    """netd's status, which tests set."""

    def __init__(self) -> None:
        self.seen = Status(
            state="running", revision=1, lines={"l2tp_office": LineStatus(is_online=True)}
        )
        self.is_away = False

    async def counters(self) -> dict[int, RuleCount]:
        if self.is_away:
            raise Failed("ask netd", "it is away")
        return {}

    async def status(self) -> Status:
        return self.seen

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a recorder does not ask for {name}")


class Rig:
    """A recorder with a file, whose clock, configuration and status tests set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now: float = NOON
        self.netd = Reporting()
        self.asked: dict[str, int] = {}
        self.state = DesiredState().with_edits(
            [
                node(1, "a", "g"),
                node(2, "b", "g"),
                node(3, "single"),
                node(4, "unused"),
                rule(1, "Group_g"),
                rule(2, "single"),
                Edit("numbers", "Group_g", 5),
                Edit("lines", 1, LINE),
            ],
            1,
        )
        self.start()

    def start(self) -> None:
        self.store = HistoryStore(self.folder)
        self.history = History(
            self.netd,
            self.store,
            rules=dict,
            parts=PartStates(lambda: self.state, lambda: self.asked),
            now=lambda: self.now,
        )

    async def restart(self) -> None:
        await self.history.close()
        self.start()

    async def crash(self) -> None:
        await self.store.close()
        self.start()

    async def read(self, seconds: float = 60, **changed: Any) -> None:
        """Let time pass, and have the recorder read a status with these fields."""
        self.now += seconds
        self.report(**changed)
        await self.history.read()

    def report(self, **changed: Any) -> None:
        fields = {field: getattr(self.netd.seen, field) for field in Status.__struct_fields__}
        self.netd.seen = Status(**{**fields, **changed})

    def edit(self, *edits: Edit) -> None:
        self.state = self.state.with_edits(edits, self.state.revision + 1)

    async def of(self, part: Any, name: str) -> list[tuple[int, int, str]]:
        """The states of a part, with seconds since noon."""
        found = await self.history.questions.states(part, name, 0, 1 << 40)
        return [(span.start - NOON, span.end - NOON, span.name) for span in found]


@pytest.fixture
async def rig(tmp_path: Path) -> Any:
    rig = Rig(tmp_path)
    await rig.history.read()
    yield rig
    await rig.history.close()


def kept(ms: int) -> int:
    """Return a delay as the history keeps it."""
    return MILLISECONDS[code_of_delay(ms)]


DOWN = {"l2tp_office": LineStatus(is_online=False, state="dialing")}


async def test_a_part_that_comes_while_the_history_is_written_is_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: its key was not stored: after a restart it had no history, and its number was
    given to another one, which had its history then.
    """
    write = rig.store.write

    async def write_slowly(*args: Any) -> None:
        monkeypatch.undo()
        await write(*args)
        rig.edit(Edit("lines", 2, replace(LINE, id=2, name="l2tp_home")))
        rig.report(lines={**rig.netd.seen.lines, "l2tp_home": LineStatus(is_online=True)})
        rig.history.look(rig.netd.seen)

    monkeypatch.setattr(rig.store, "write", write_slowly)
    await rig.history.write()
    await rig.read()
    await rig.restart()
    rig.edit(Edit("lines", 2, None), Edit("lines", 3, replace(LINE, id=3, name="l2tp_shop")))
    await rig.read(lines={"l2tp_shop": LineStatus(is_online=True)})
    await rig.read()
    assert await rig.of("line", "l2tp/l2tp_home") == [(0, 60, "up"), (120, 180, "off")]
    assert await rig.of("line", "l2tp/l2tp_shop") == [(120, 180, "up")]


async def test_nodes_lines_and_groups_have_their_states(rig: Rig) -> None:
    await rig.read(failing={"node:1": SILENT}, elected={"group:5": "node:2"})
    await rig.read(failing={"node:1": SILENT, "node:2": SILENT, "node:3": SILENT}, lines=DOWN)
    await rig.read()
    assert await rig.of("node", "a") == [(0, 60, "up"), (60, 180, "down")]
    assert await rig.of("node", "single") == [(0, 120, "up"), (120, 180, "down")]
    assert await rig.of("line", "l2tp/l2tp_office") == [(0, 120, "up"), (120, 180, "down")]
    assert await rig.of("node", "unused") == []
    spans = await rig.history.questions.states("group", "g", 0, 1 << 40)
    timelines = rig.history.timelines
    assert [(span.start - NOON, span.name, timelines.member(span)) for span in spans] == [
        (0, "up", ""),
        (60, "up", "b"),
        (120, "down", "b"),
    ]
    everything = await rig.history.questions.states_of_all("node", NOON, NOON + 181)
    assert sorted(everything) == ["a", "b", "single"]
    assert [span.name for span in everything["single"]] == ["up", "down"]


async def test_parts_that_are_switched_off_or_gone_are_off(rig: Rig) -> None:
    rig.edit(Edit("lines", 1, None), Edit("rules", 2, None))
    await rig.read()
    rig.edit(Edit("settings", "", Settings(stopped=True)))
    await rig.read()
    await rig.read()
    assert await rig.of("line", "l2tp/l2tp_office") == [(0, 60, "up"), (60, 180, "off")]
    assert await rig.of("node", "single") == [(0, 60, "up"), (60, 180, "off")]
    assert await rig.of("group", "g") == [(0, 120, "up"), (120, 180, "off")]


async def test_a_pushed_status_has_the_time_of_its_arrival(rig: Rig) -> None:
    rig.now += 7
    rig.report(lines=DOWN)
    rig.history.look(rig.netd.seen)
    rig.now += 9
    rig.report(lines={"l2tp_office": LineStatus(is_online=True)})
    rig.history.look(rig.netd.seen)
    await rig.read(10)
    assert await rig.of("line", "l2tp/l2tp_office") == [
        (0, 7, "up"),
        (7, 16, "down"),
        (16, 26, "up"),
    ]


async def test_a_state_holds_until_now(rig: Rig) -> None:
    rig.now += GAP_S
    assert await rig.of("line", "l2tp/l2tp_office") == [(0, GAP_S, "up")]
    rig.now += 1
    assert await rig.of("line", "l2tp/l2tp_office") == []
    await rig.read(-1)


async def test_little_is_known_while_netd_restores(rig: Rig) -> None:
    await rig.read(state="restoring", lines={})
    await rig.read(state="running", lines={"l2tp_office": LineStatus(is_online=True)})
    assert await rig.of("line", "l2tp/l2tp_office") == [(0, 120, "up")]


async def test_nothing_is_known_while_netd_is_away_for_long(rig: Rig) -> None:
    await rig.read()
    rig.netd.is_away = True
    with pytest.raises(Failed):
        await rig.read(600)
    rig.netd.is_away = False
    await rig.read(60, lines=DOWN)
    await rig.read(GAP_S)
    known = [(0, 60, "up"), (720, 720 + GAP_S, "down")]
    assert await rig.of("line", "l2tp/l2tp_office") == known


@pytest.mark.parametrize("jump", [3600, -3600, -30])
async def test_a_jump_of_the_clock_is_a_gap(rig: Rig, jump: int) -> None:
    await rig.read(3600 * 2 if jump < 0 else 60)
    before = rig.now
    await rig.read(jump)
    await rig.read(60)
    found = await rig.of("line", "l2tp/l2tp_office")
    assert found[-1][1:] == (rig.now - NOON, "up")
    ends = [end for _, end, _ in found]
    assert ends == sorted(ends)
    if jump > 0:
        assert (before - NOON) in ends
    assert all(end <= max(before, rig.now) - NOON for end in ends)


@pytest.mark.parametrize("is_crash", [False, True])
async def test_a_restart_goes_on_where_it_was(rig: Rig, is_crash: bool) -> None:
    await rig.read(lines=DOWN)
    await rig.history.write()
    await (rig.crash() if is_crash else rig.restart())
    await rig.read(300)
    await rig.read(60, lines={"l2tp_office": LineStatus(is_online=True)})
    await rig.read()
    line = [(0, 60, "up"), (360, 420, "down"), (420, 480, "up")]
    assert await rig.of("line", "l2tp/l2tp_office") == line
    assert await rig.of("node", "a") == [(0, 60, "up"), (360, 480, "up")]
    await rig.restart()
    await rig.read(GAP_S + 1)
    assert (await rig.of("line", "l2tp/l2tp_office"))[:3] == line


async def test_states_are_in_the_file_after_the_next_write(rig: Rig) -> None:
    """Another recorder shows what the file has."""
    await rig.read(lines=DOWN)
    other = Rig(rig.folder)
    await other.history.read()
    assert await other.of("line", "l2tp/l2tp_office") == []
    await rig.history.write()
    await other.crash()
    await other.history.read()
    assert [name for *_, name in await other.of("line", "l2tp/l2tp_office")] == ["up"]
    await other.history.close()


async def test_one_that_flaps_is_recorded_now_and_then(rig: Rig) -> None:
    for turn in range(200):
        is_online = bool(turn % 2)
        await rig.read(lines={"l2tp_office": LineStatus(is_online=is_online)})
    found = await rig.of("line", "l2tp/l2tp_office")
    assert BURST < len(found) <= BURST + 1 + 200 * 60 // REFILL_S
    await rig.read(2 * REFILL_S, lines={"l2tp_office": LineStatus(is_online=False)})
    assert (await rig.of("line", "l2tp/l2tp_office"))[-1][2] == "up"  # a gap of the recording
    await rig.read()
    assert (await rig.of("line", "l2tp/l2tp_office"))[-1][2] == "down"


async def test_changes_that_wait_for_a_disk_are_bounded(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.service.timelines.PENDING_MAX", 5)
    await rig.read(lines=DOWN)
    assert [name for *_, name in await rig.of("line", "l2tp/l2tp_office")] == ["up"]
    await rig.history.write()
    await rig.read()
    await rig.read()
    assert [name for *_, name in await rig.of("line", "l2tp/l2tp_office")] == ["up", "down"]


async def test_a_write_has_some_of_the_changes_and_a_stop_all(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.service.timelines.WRITE_MAX", 2)
    assert len((await rig.store.states())[0]) == 0
    for count in (2, 4):
        await rig.history.write()
        assert len((await rig.store.states())[0]) == count
    await rig.restart()
    assert len((await rig.store.states())[0]) == 5
    await rig.read()


async def test_a_new_file_has_the_states_of_now(rig: Rig) -> None:
    await rig.read(lines=DOWN)
    await rig.history.write()
    (rig.folder / "history.db").write_bytes(b"no database at all" * 999)
    (rig.folder / "history.db-wal").unlink(missing_ok=True)
    rig.store._file.close()
    await rig.read()
    await rig.history.write()
    await rig.restart()
    await rig.read()
    assert [name for *_, name in await rig.of("line", "l2tp/l2tp_office")][-1] == "down"
    assert [name for *_, name in await rig.of("node", "a")][-1] == "up"


async def test_delays_are_means_of_the_checks_of_groups(rig: Rig) -> None:
    for ms in (100, 120):
        await rig.read(delays={"node:1": ms, "node:9": 5})
    for step in (HistoryStep.MINUTE, HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY):
        _, found = await rig.history.questions.delays("a", NOON, NOON + 3600, step)
        known = [ms for ms in found.values() if ms is not None]
        assert known == [*map(kept, (100, 120) if step is HistoryStep.MINUTE else (110,))]
        _, found = await rig.history.questions.delays("b", NOON, NOON + 3600, step)
        assert {*found.values()} == {None}
    _, starts, everything = await rig.history.questions.delays_of_all(NOON - 3600, NOON + 3600)
    assert [*starts] == [NOON - 3600, NOON]
    assert everything["a"] == [None, kept(110)]


async def test_the_delay_of_a_node_in_no_group_is_that_of_its_exit(rig: Rig) -> None:
    rig.asked = {"node:3": 250, "node:1": 900, "DIRECT": 7}
    await rig.read(delays={"node:1": 29})
    _, starts, everything = await rig.history.questions.delays_of_all(NOON, NOON + 60)
    assert len(starts) == 1
    assert (everything["a"], everything["single"]) == ([29], [kept(250)])


async def test_delays_outlive_a_restart_and_a_crash(rig: Rig) -> None:
    for _ in range(4):
        await rig.read(delays={"node:1": 20})
    await rig.restart()
    for _ in range(4):
        await rig.read(delays={"node:1": 10})
    _, found = await rig.history.questions.delays("a", NOON, NOON + 900, HistoryStep.QUARTER)
    assert found[NOON] in (15, 16)  # the part before the restart is weighed by its minutes
    for _ in range(15):
        await rig.read(300, delays={"node:1": 15})
        await rig.history.write()
    await rig.crash()
    await rig.history.read()
    _, found = await rig.history.questions.delays("a", NOON, NOON + 7200, HistoryStep.HOUR)
    assert found[NOON] in (15, 16)
    assert found[NOON + 3600] == 15


async def test_a_node_with_the_number_of_another_has_none_of_its_past(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KEYS_MAX, "line", 1)
    rig.edit(Edit("lines", 1, None))
    await rig.read()
    await rig.history.write()
    other = Line(
        id=2,
        type="pptp",
        name="pptp_new",
        server="a.example",
        port=1723,
        username="u",
        password="p",
    )
    rig.edit(Edit("lines", 2, other))
    await rig.read(60 * 86_400)
    await rig.read()
    assert rig.history.questions.state().unrecorded["line"] == 0
    assert [name for *_, name in await rig.of("line", "pptp/pptp_new")] == ["down"]
    assert await rig.of("line", "l2tp/l2tp_office") == []
