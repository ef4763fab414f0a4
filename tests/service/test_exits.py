"""Exits of targets in use: what is asked, what is kept, and what is reported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from egressd.model.delays import Delay
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import Event, Probe
from egressd.model.wording import as_sentence
from egressd.planner.registry import MARK_DIRECT, MARK_REJECT
from egressd.planner.targets import mark_of
from egressd.service.exits import ASKED_AT_ONCE, EXIT_TIMEOUT_MS, RETRY_S, Exit, ExitPolicy, Exits
from egressd.service.judge import Notice
from tests.support.drafts import line, node, rule, service
from tests.support.use_cases import RESOLVERS, Bench, MemoryExits

URL = "https://exits.test/"
INTERVAL_S = 900


class Internet:
    """Pages by the names of probes, in place of what netd fetches."""

    def __init__(self) -> None:
        self.pages: dict[str, Delay] = {}
        self.asked: list[list[str]] = []
        self.paths: dict[str, NodePath | KernelPath] = {}

    def sees(self, key: str, ip: str, country: str = "") -> None:
        self.pages[key] = Delay(delay=1, page=f"ip={ip}\nloc={country}\n".encode())


class Watched:
    """A device's exits, with an internet and a clock that a test sets."""

    def __init__(self, bench: Bench, record: MemoryExits, interval_s: int = INTERVAL_S) -> None:
        self.bench = bench
        self.internet = Internet()
        self.seconds = 0.0
        self.notices: list[Notice] = []
        self.exits = Exits(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            clock=bench.clock,
            policy=ExitPolicy(url=URL, interval_s=interval_s),
            record=record,
            notify=self.notices.append,
        )
        bench.netd.delays = self._fetch  # type: ignore[method-assign]

    async def _fetch(self, probes: Sequence[Probe], url: str, timeout_ms: int) -> dict[str, Delay]:
        self.bench.netd.reach()
        assert (url, timeout_ms) == (URL, EXIT_TIMEOUT_MS)
        self.internet.asked.append([probe.name for probe in probes])
        self.internet.paths |= {probe.name: probe.path for probe in probes}
        dead = Delay(delay=-1, error=as_sentence("timed out"))
        return {probe.name: self.internet.pages.get(probe.name, dead) for probe in probes}

    async def turn(self, after: float = 0.0) -> list[str]:
        """Ask what is due `after` seconds more, and return the keys that were asked."""
        self.seconds += after
        self.bench.clock.tick()
        before = len(self.internet.asked)
        await self.exits.ask_due(lambda: self.seconds)
        return [key for asked in self.internet.asked[before:] for key in asked]

    def shown(self, name: str) -> Exit:
        (found,) = [each for each in self.exits.now() if each.name == name]
        return found

    def events(self) -> list[tuple[str, Any]]:
        found = [(n.event.code, n.event.values["subjects"]) for n in self.notices]
        self.notices.clear()
        return found


@pytest.fixture
def record() -> MemoryExits:
    return MemoryExits()


@pytest.fixture
def watched(bench: Bench, record: MemoryExits) -> Watched:
    return Watched(bench, record)


async def test_nodes_lines_and_wans_in_use_are_asked_through_themselves(
    bench: Bench, watched: Watched
) -> None:
    await bench.lines.create(line("l2tp_1"))
    await bench.add_node("tokyo")
    await bench.add_node("osaka", **{"interface-name": "wan2"})
    await bench.add_node("idle")
    await bench.add_node("member", group="hk")
    await bench.rules.create(rule("10.0.0.5", "tokyo"))
    await bench.rules.create(rule("10.0.0.6", "osaka"))
    await bench.rules.create(rule("10.0.0.7", "Group_hk"))
    await bench.rules.create(rule("10.0.0.8", "Interface:l2tp_1"))
    await bench.rules.create(rule("10.0.0.9", "REJECT"))
    await bench.services.create(service(outbound_interface="wan3"))
    assert [(each.name, each.kind) for each in watched.exits.now()] == [
        ("DIRECT", "direct"),
        ("Interface:wan2", "wan"),
        ("Interface:wan3", "wan"),
        ("Interface:l2tp_1", "line"),
        ("member", "node"),
        ("osaka", "node"),
        ("tokyo", "node"),
    ]
    await watched.turn()
    paths, state = watched.internet.paths, bench.state
    assert len(paths) == 7
    tokyo, osaka = (paths[f"node:{state.node_by_name[name]}"] for name in ("tokyo", "osaka"))
    wan2, direct = paths["Interface:wan2"], paths["DIRECT"]
    assert (tokyo.mark, direct.mark) == (MARK_DIRECT, MARK_DIRECT)
    assert isinstance(tokyo, NodePath)
    assert isinstance(wan2, KernelPath)
    assert osaka.mark == wan2.mark == mark_of(state, "Interface:wan2") != MARK_REJECT


async def test_an_address_has_the_time_since_which_it_is_the_same(
    bench: Bench, watched: Watched
) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    assert (watched.shown("DIRECT").ip, watched.shown("DIRECT").seen_at) == ("", "")
    watched.internet.sees("DIRECT", "203.0.113.7", "JP")
    await watched.turn()
    first = watched.shown("DIRECT")
    assert (first.ip, first.country) == ("203.0.113.7", "JP")
    assert first.seen_at == first.changed_at == bench.clock()
    await watched.turn(INTERVAL_S)
    second = watched.shown("DIRECT")
    assert (second.seen_at, second.changed_at) == (bench.clock(), first.changed_at)
    assert watched.events() == []
    watched.internet.sees("DIRECT", "203.0.113.8", "HK")
    await watched.turn(INTERVAL_S)
    third = watched.shown("DIRECT")
    assert (third.ip, third.country, third.changed_at) == ("203.0.113.8", "HK", bench.clock())
    (notice,) = watched.notices
    assert notice.event == Event(
        topic="exit",
        subject="DIRECT",
        text="DIRECT leaves by 203.0.113.8, and left by 203.0.113.7 before",
        code="changed",
        values={
            "subjects": ("DIRECT",),
            "before": "203.0.113.7",
            "ip": "203.0.113.8",
            "country": "HK",
        },
    )


async def test_nodes_that_leave_by_one_address_are_reported_once(
    bench: Bench, watched: Watched
) -> None:
    keys = []
    for number, name in enumerate(("tokyo", "osaka")):
        keys.append(f"node:{(await bench.add_node(name)).id}")
        await bench.rules.create(rule(f"10.0.0.{5 + number}", name))
        watched.internet.sees(keys[-1], "203.0.113.7")
    await watched.turn()
    assert watched.shown("tokyo").shared_with == ("osaka",)
    assert watched.shown("osaka").shared_with == ("tokyo",)
    (notice,) = watched.notices
    assert (notice.event.topic, notice.event.code, notice.is_bad) == ("exit", "shared", True)
    assert notice.event.text == "2 leave by the same address 203.0.113.7: osaka, tokyo"
    assert notice.event.values == {
        "subjects": ("osaka", "tokyo"),
        "ip": "203.0.113.7",
        "number": 2,
    }
    watched.notices.clear()
    await watched.turn(INTERVAL_S)
    assert watched.events() == []
    watched.internet.sees(keys[0], "203.0.113.9")
    await watched.turn(INTERVAL_S)
    assert watched.shown("osaka").shared_with == ()
    assert watched.events() == [("changed", ("tokyo",))]


async def test_the_address_of_a_target_that_does_not_work_may_be_anothers_since(
    bench: Bench, watched: Watched
) -> None:
    keys = {}
    for number, name in enumerate(("tokyo", "osaka")):
        keys[name] = f"node:{(await bench.add_node(name)).id}"
        await bench.rules.create(rule(f"10.0.0.{5 + number}", name))
        watched.internet.sees(keys[name], f"203.0.113.{number}")
    await watched.turn()
    del watched.internet.pages[keys["tokyo"]]
    watched.internet.sees(keys["osaka"], "203.0.113.0")
    await watched.turn(INTERVAL_S)
    assert watched.shown("tokyo").ip == watched.shown("osaka").ip == "203.0.113.0"
    assert watched.shown("osaka").shared_with == ()
    assert watched.events() == [("changed", ("osaka",))]


async def test_the_own_route_and_its_wan_may_share_an_address(
    bench: Bench, watched: Watched
) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    await bench.rules.create(rule("10.0.0.6", "Interface:wan1"))
    for key in ("DIRECT", "Interface:wan1"):
        watched.internet.sees(key, "203.0.113.7")
    await watched.turn()
    assert watched.shown("DIRECT").shared_with == ("Interface:wan1",)
    assert watched.events() == []
    await bench.rules.create(rule("10.0.0.7", "Interface:wan2"))
    watched.internet.sees("Interface:wan2", "203.0.113.7")
    await watched.turn()
    assert watched.events() == [("shared", ("DIRECT", "Interface:wan1", "Interface:wan2"))]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Delay(delay=-1, error=as_sentence("timed out")), "other"),
        (Delay(delay=5, page=b"A" * 4096), "exit-page-long"),
        (Delay(delay=5, page=b"ip=203.0.113.9\x1b[31m\n"), "exit-page-form"),
        (Delay(delay=5, page=b"ip=0.0.0.0\n"), "exit-page-address"),
        (Delay(delay=5), "exit-page-form"),
    ],
)
async def test_a_target_without_an_answer_keeps_its_last_address(
    bench: Bench, watched: Watched, answer: Delay, code: str
) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    watched.internet.sees("DIRECT", "203.0.113.7")
    await watched.turn()
    before = watched.shown("DIRECT")
    watched.internet.pages["DIRECT"] = answer
    await watched.turn(INTERVAL_S)
    after = watched.shown("DIRECT")
    assert (after.ip, after.seen_at) == (before.ip, before.seen_at)
    assert after.error_coded is not None
    assert after.error_coded.code == code
    assert watched.events() == []
    watched.internet.sees("DIRECT", "203.0.113.7")
    await watched.turn(INTERVAL_S)
    assert watched.shown("DIRECT").error == ""


async def test_targets_are_asked_some_at_a_time_and_each_once_an_interval(
    bench: Bench, watched: Watched
) -> None:
    for number in range(2 * ASKED_AT_ONCE + 3):
        await bench.add_node(f"node-{number}", group="hk", **{"interface-name": "wan1"})
    await bench.rules.create(rule("10.0.0.5", "Group_hk"))
    assert len(await watched.turn()) == 2 * ASKED_AT_ONCE + 4  # the WAN is one of them
    assert [len(asked) for asked in watched.internet.asked] == [ASKED_AT_ONCE, ASKED_AT_ONCE, 4]
    assert await watched.turn(INTERVAL_S / 2) == []
    assert len(await watched.turn(INTERVAL_S / 2)) == 2 * ASKED_AT_ONCE + 4


async def test_a_target_that_is_new_or_changed_is_asked_at_once(
    bench: Bench, watched: Watched
) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    assert await watched.turn() == ["DIRECT"]
    made = await bench.add_node("tokyo")
    assert await watched.turn() == []
    await bench.rules.create(rule("10.0.0.6", "tokyo"))
    assert await watched.turn() == [f"node:{made.id}"]
    await bench.nodes.replace(made.id, node("tokyo", server="198.51.100.8"))
    assert await watched.turn() == [f"node:{made.id}"]
    assert await watched.turn() == []


async def test_a_renamed_node_keeps_its_address_and_a_deleted_one_does_not(
    bench: Bench, watched: Watched
) -> None:
    made = await bench.add_node("tokyo")
    await bench.rules.create(rule("10.0.0.5", "tokyo"))
    watched.internet.sees(f"node:{made.id}", "203.0.113.7")
    await watched.turn()
    since = watched.shown("tokyo").changed_at
    await bench.nodes.replace(made.id, node("kyoto"))
    assert watched.shown("kyoto").changed_at == since
    await bench.nodes.delete(made.id)
    await watched.turn()
    assert [each.name for each in watched.exits.now()] == []


async def test_nothing_is_asked_while_stopped_opened_or_off(
    bench: Bench, watched: Watched, record: MemoryExits
) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    await bench.settings.stop()
    assert await watched.turn() == []
    await bench.settings.open()
    assert await watched.turn() == []
    await bench.settings.start()
    assert await watched.turn() == ["DIRECT"]
    assert await Watched(bench, record, interval_s=0).turn() == []


async def test_netd_that_is_away_is_asked_again_soon(bench: Bench, watched: Watched) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    bench.netd.is_away = True
    assert await watched.turn() == []
    assert "it is not running" in watched.shown("DIRECT").error
    bench.netd.is_away = False
    assert await watched.turn(RETRY_S / 2) == []
    assert await watched.turn(RETRY_S / 2) == ["DIRECT"]


async def test_a_restart_knows_the_addresses_and_reports_a_change(
    bench: Bench, watched: Watched, record: MemoryExits
) -> None:
    await bench.rules.create(rule("10.0.0.5", "DIRECT"))
    watched.internet.sees("DIRECT", "203.0.113.7")
    await watched.turn()
    assert record.saved == 1
    await watched.turn(INTERVAL_S)
    assert record.saved == 1  # a new time alone is not written
    await watched.exits.close()
    assert record.saved == 2
    again = Watched(bench, record)
    await again.exits.open()
    assert again.shown("DIRECT") == watched.shown("DIRECT")
    again.internet.sees("DIRECT", "203.0.113.8")
    await again.turn()
    assert again.events() == [("changed", ("DIRECT",))]


async def test_a_node_changed_while_it_was_asked_does_not_get_the_answer(
    bench: Bench, watched: Watched
) -> None:
    made = await bench.add_node("tokyo")
    await bench.rules.create(rule("10.0.0.5", "tokyo"))
    fetch = bench.netd.delays

    async def change_meanwhile(
        probes: Sequence[Probe], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        bench.netd.delays = fetch  # type: ignore[method-assign]
        await bench.nodes.replace(made.id, node("tokyo", server="198.51.100.8"))
        return await fetch(probes, url, timeout_ms)

    bench.netd.delays = change_meanwhile  # type: ignore[method-assign]
    watched.internet.sees(f"node:{made.id}", "203.0.113.7")
    await watched.turn()
    assert watched.shown("tokyo").ip == ""
    await watched.turn()
    assert watched.shown("tokyo").ip == "203.0.113.7"


async def test_a_full_list_of_sharers_has_a_bound(bench: Bench, watched: Watched) -> None:
    for number in range(ASKED_AT_ONCE - 1):
        made = await bench.add_node(f"node-{number}", group="hk", **{"interface-name": "wan1"})
        watched.internet.sees(f"node:{made.id}", "203.0.113.7")
    await bench.rules.create(rule("10.0.0.5", "Group_hk"))
    await watched.turn()
    ((_, subjects),) = watched.events()
    assert len(subjects) == ASKED_AT_ONCE - 1
    for number in range(20):
        made = await bench.add_node(f"more-{number}", group="hk", **{"interface-name": "wan1"})
        watched.internet.sees(f"node:{made.id}", "203.0.113.7")
    await watched.turn()
    assert [len(subjects) for _, subjects in watched.events()] == [20, 20]
    assert len(watched.shown("node-0").shared_with) == ASKED_AT_ONCE + 18


async def test_delays_of_answers_are_taken_once(watched: Watched) -> None:
    await watched.bench.rules.create(rule("10.0.0.1", "DIRECT"))
    watched.internet.sees("DIRECT", "203.0.113.1")
    await watched.turn()
    assert watched.exits.take_delays() == {"DIRECT": 1}
    assert watched.exits.take_delays() == {}
