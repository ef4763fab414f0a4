"""Channels, the policy, and what is sent by whom, with a clock that the test sets."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from egressd.model.errors import Invalid, Missing, OverQuota
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import Event, LineStatus, Status
from egressd.model.nouns import AlertPolicy
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.targets import mark_of
from egressd.service.alert_book import GATHER_S, PER_HOUR, RETRY_S
from egressd.service.alert_checks import inner_problems
from egressd.service.alerts import Alerts, ChannelDraft
from egressd.service.group_checks import GroupDraft
from tests.support.drafts import line, node
from tests.support.use_cases import RESOLVERS, Bench, MemoryAlerts

START = 1_800_000_000.0
URL = "ntfys://ntfy.example.org/secret-topic"


class Alerted:
    """A device's alerts, with a clock that a test sets."""

    def __init__(
        self, bench: Bench, record: MemoryAlerts | None = None, now: float = START
    ) -> None:
        self.bench = bench
        self.now = now
        self.uptime = 0.0
        self.own: tuple[Sentence, ...] = ()
        self.record = record or MemoryAlerts()
        self.alerts = Alerts(
            bench.ledger,
            bench.netd,
            lambda: RESOLVERS,
            record=self.record,
            clock=bench.clock,
            problems=lambda: self.own,
            inner=lambda url: inner_problems(url, bench.around),
            host="gw1",
            now=lambda: self.now,
            local=lambda at: datetime.fromtimestamp(at, UTC),
            uptime=lambda: self.uptime,
        )

    async def channel(self, name: str = "phone", via: str = "DIRECT", url: str = URL) -> int:
        made = await self.alerts.create(ChannelDraft(name=name, url=url, via=via))
        return made.value.id

    async def policy(self, *on: str, for_s: int = 0, quiet: str = "") -> None:
        await self.alerts.put_policy(AlertPolicy(on=on, for_s=for_s, quiet=quiet))

    async def turn(self, after: float = 0.0) -> list[str]:
        """Look `after` seconds later, and return the bodies of what was sent meanwhile."""
        self.now += after
        self.uptime += after
        before = len(self.bench.netd.alerts)
        await self.alerts.step()
        for _ in range(10):
            await asyncio.sleep(0)
        return [body for _, _, _, body in self.bench.netd.alerts[before:]]

    def sees(self, **fields: object) -> None:
        self.alerts.look(Status(state="running", revision=1, **fields))  # type: ignore[arg-type]


@pytest.fixture
def alerted(bench: Bench) -> Alerted:
    return Alerted(bench)


async def test_a_message_takes_the_path_of_its_channels_target(alerted: Alerted) -> None:
    bench = alerted.bench
    await bench.nodes.create(node("tokyo"))
    for name, via in {"a": "DIRECT", "b": "tokyo", "c": "Interface:wan2"}.items():
        number = await alerted.channel(name, via)
        assert await alerted.alerts.test(number) == NONE
    (direct,), (by_node,), (by_wan,) = (paths for paths, *_ in bench.netd.alerts)
    state = bench.ledger.state
    assert isinstance(direct, KernelPath)
    assert direct.mark == MARK_DIRECT
    assert isinstance(by_node, NodePath)
    assert by_node.hops[0].node == state.node_by_name["tokyo"]
    assert isinstance(by_wan, KernelPath)
    assert by_wan.mark == mark_of(state, "Interface:wan2")
    assert "wan2" in bench.netd.plan.egresses


async def test_the_node_in_use_of_a_group_comes_first(alerted: Alerted) -> None:
    for name in ("a", "b", "c", "d", "e", "f"):
        await alerted.bench.nodes.create(node(name, group="hk"))
    number = await alerted.channel(via="Group_hk")
    state = alerted.bench.ledger.state
    keys = {each.name: f"node:{each.id}" for each in state.nodes.values()}
    group = f"group:{state.numbers['Group_hk']}"
    alerted.sees(
        elected={group: keys["e"]},
        failing={keys["a"]: as_sentence("dead")},
        delays={keys["c"]: 5, keys["b"]: 50},
    )
    await alerted.alerts.test(number)
    (paths,) = (paths for paths, *_ in alerted.bench.netd.alerts)
    names = {each.id: each.name for each in state.nodes.values()}
    taken = [names[path.hops[0].node] for path in paths if isinstance(path, NodePath)]
    assert taken == ["e", "c", "b", "d"]


async def test_a_group_of_any_members_is_a_target(alerted: Alerted) -> None:
    bench = alerted.bench
    await bench.nodes.create(node("tokyo"))
    members = ("tokyo", "Interface:wan1", "Interface:wan2")
    await bench.groups.create("office", GroupDraft(strategy="fallback", members=members))
    number = await alerted.channel(via="Group_office")
    state = bench.ledger.state
    group = f"group:{state.numbers['Group_office']}"
    alerted.sees(elected={group: "Interface:wan2"})
    assert await alerted.alerts.test(number) == NONE
    (paths,) = (paths for paths, *_ in bench.netd.alerts)
    assert [type(path) for path in paths] == [KernelPath, NodePath, KernelPath]
    assert paths[0].mark == mark_of(state, "Interface:wan2")
    assert {"wan1", "wan2"} <= {*bench.netd.plan.egresses}


async def test_without_a_path_nothing_is_asked_of_netd(alerted: Alerted) -> None:
    made = await alerted.bench.nodes.create(node("tokyo"))
    number = await alerted.channel(via="tokyo")
    await alerted.bench.nodes.delete(made.value.id)
    problem = await alerted.alerts.test(number)
    assert problem.code == "via-gone"
    assert alerted.bench.netd.alerts == []


async def test_a_renamed_target_is_followed(alerted: Alerted) -> None:
    made = await alerted.bench.nodes.create(node("tokyo"))
    number = await alerted.channel(via="tokyo")
    await alerted.bench.nodes.replace(made.value.id, node("osaka"))
    assert alerted.alerts.channel(number).via == "osaka"


async def test_states_and_events_are_alerted_by_their_names(alerted: Alerted) -> None:
    bench = alerted.bench
    made = await bench.nodes.create(node("tokyo"))
    await bench.lines.create(line("l2tp_1"))
    await alerted.channel()
    await alerted.policy("node.failing", "line.down", "wan.down", "exit.shared", "backup.old")
    why = as_sentence("it is dead")
    alerted.own = (say("timed-backup-late", folder="/mnt"), as_sentence("another"))
    alerted.alerts.look_around()
    alerted.sees(
        failing={f"node:{made.value.id}": why},
        lines={"l2tp_1": LineStatus(is_online=False, reason=why)},
        wans=("wan1",),
        egress_problems={"wan1": why},
    )
    alerted.alerts.take(Event(topic="exit", code="shared", text="a and b leave alike"))
    alerted.alerts.take(Event(topic="exit", code="changed", text="not asked for"))
    assert await alerted.turn() == []
    (body,) = await alerted.turn(GATHER_S)
    texts = {line.split(" ", 2)[2] for line in body.splitlines()}
    assert texts == {
        "a and b leave alike",
        "tokyo fails: it is dead",
        "the line l2tp_1 is offline: it is dead",
        "wan1 does not work: it is dead",
        str(say("timed-backup-late", folder="/mnt")),
    }
    alerted.sees()
    alerted.own = ()
    alerted.alerts.look_around()
    await alerted.turn(1)
    (body,) = await alerted.turn(GATHER_S)
    assert len(body.splitlines()) == 4
    assert "tokyo answers again" in body


async def test_a_deleted_node_and_a_disabled_line_do_not_work_again(alerted: Alerted) -> None:
    """Past fault: an alert said that a deleted node answers, and that a disabled line is online."""
    bench = alerted.bench
    made = await bench.nodes.create(node("tokyo"))
    await bench.lines.create(line("l2tp_1"))
    await bench.lines.create(line("l2tp_2"))
    await alerted.channel()
    await alerted.policy("node.failing", "line.down")
    offline = LineStatus(is_online=False)
    alerted.sees(
        failing={f"node:{made.value.id}": as_sentence("dead")},
        lines={"l2tp_1": offline, "l2tp_2": offline},
    )
    await alerted.turn()
    (body,) = await alerted.turn(GATHER_S)
    assert len(body.splitlines()) == 3
    await bench.nodes.delete(made.value.id)
    await bench.lines.set_enabled_many([("l2tp", "l2tp_1")], is_enabled=False)
    alerted.sees(lines={"l2tp_2": LineStatus(is_online=True)})
    await alerted.turn(1)
    (body,) = await alerted.turn(GATHER_S)
    (told,) = body.splitlines()
    assert "l2tp_2" in told


async def test_a_state_is_kept_while_netd_restores(alerted: Alerted) -> None:
    made = await alerted.bench.nodes.create(node("tokyo"))
    await alerted.channel()
    await alerted.policy("node.failing")
    alerted.sees(failing={f"node:{made.value.id}": as_sentence("dead")})
    await alerted.turn()
    assert len(await alerted.turn(GATHER_S)) == 1
    alerted.alerts.look(Status(state="restoring", revision=0))
    await alerted.turn(1)
    alerted.sees(failing={f"node:{made.value.id}": as_sentence("dead")})
    await alerted.turn(1)
    assert await alerted.turn(10 * GATHER_S) == []


async def test_a_failed_message_is_tried_again_and_others_are_not_held_up(
    alerted: Alerted,
) -> None:
    other = "json://example.com/b"
    await alerted.channel("a")
    await alerted.channel("b", url=other)
    await alerted.policy("exit.shared")
    alerted.bench.netd.alert_problem = lambda url: as_sentence("refused") if url == URL else NONE
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    assert len(await alerted.turn(GATHER_S)) == 2
    assert alerted.alerts.waiting() == {1: 1}
    assert [each.outcome for each in alerted.alerts.sent()] == ["sent", "failed"]
    assert await alerted.turn(RETRY_S[0] - 1) == []
    alerted.bench.netd.alert_problem = lambda _: NONE
    (body,) = await alerted.turn(1)
    assert "one" in body
    assert alerted.alerts.waiting() == {}


async def test_a_channel_that_never_answers_holds_up_and_loses_nothing(
    alerted: Alerted, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up, send, tried = asyncio.Event(), alerted.bench.netd.send_alert, []

    async def send_alert(paths: Any, url: str, title: str, body: str) -> Sentence:
        if url != URL or given_up.is_set():
            return await send(paths, url, title, body)
        tried.append(body)
        await given_up.wait()
        return say("errand-no-answer", seconds=30)

    monkeypatch.setattr(alerted.bench.netd, "send_alert", send_alert)
    silent = await alerted.channel("a")
    await alerted.channel("b", url="json://example.com/b")
    await alerted.policy("exit.shared")
    for text in ("one", "two", "three"):
        alerted.alerts.take(Event(topic="exit", code="shared", text=text))
        (body,) = await alerted.turn(GATHER_S)
        assert text in body, "the other channel has it"
    assert len(tried) == 1, "no second attempt before the first has ended"
    assert alerted.alerts.waiting() == {silent: 3}
    given_up.set()
    assert await alerted.turn() == []
    ended = alerted.alerts.sent()[0]
    assert (ended.channel, ended.outcome) == (silent, "failed")
    assert ended.reason == "no answer within 30 s"
    (body,) = await alerted.turn(RETRY_S[0])
    assert all(text in body for text in ("one", "two", "three"))
    assert alerted.alerts.waiting() == {}


async def test_a_netd_that_is_away_loses_nothing(alerted: Alerted) -> None:
    await alerted.channel()
    await alerted.policy("exit.shared")
    alerted.bench.netd.is_away = True
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    assert await alerted.turn(GATHER_S) == []
    assert alerted.alerts.waiting() == {1: 1}
    alerted.bench.netd.is_away = False
    assert len(await alerted.turn(RETRY_S[0])) == 1


async def test_waiting_alerts_outlive_a_restart(alerted: Alerted) -> None:
    await alerted.channel()
    await alerted.policy("exit.shared")
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    await alerted.turn()
    after = Alerted(alerted.bench, alerted.record)
    await after.alerts.open()
    assert len(await after.turn(GATHER_S)) == 1


@pytest.mark.parametrize("set_by", [-7200, 3 * 86_400, 50 * 365 * 86_400])
async def test_an_alert_is_sent_in_time_although_the_clock_is_set(
    alerted: Alerted, set_by: float
) -> None:
    """Past fault: it waited until a clock that was set back was there again, and was dropped as too
    old if the clock was set forward, as it is after each boot of a box that keeps no time while it
    is off.
    """
    await alerted.channel()
    await alerted.policy("exit.shared")
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    await alerted.turn()
    alerted.now += set_by
    alerted.bench.netd.is_away = True
    assert await alerted.turn(GATHER_S) == []
    assert [each.outcome for each in alerted.alerts.sent()] == ["failed"]
    alerted.now += set_by
    alerted.bench.netd.is_away = False
    (body,) = await alerted.turn(RETRY_S[0])
    assert body.startswith(f"{datetime.fromtimestamp(START + 2 * set_by, UTC):%Y-%m-%d %H:%M} one")


async def test_kept_alerts_are_sent_after_a_boot_with_an_old_clock(alerted: Alerted) -> None:
    """Past fault: they waited until the clock was where it had been."""
    await alerted.channel()
    await alerted.policy("exit.shared")
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    await alerted.turn()
    after = Alerted(alerted.bench, alerted.record, now=0.0)
    await after.alerts.open()
    assert await after.turn() == []
    after.now += START
    assert len(await after.turn(GATHER_S)) == 1


async def test_the_standby_box_of_a_pair_sends_nothing(alerted: Alerted) -> None:
    await alerted.channel()
    await alerted.policy("exit.shared", "wan.down")
    alerted.sees(pair_role="standby", wans=("wan1",), egress_problems={"wan1": as_sentence("x")})
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    await alerted.turn()
    assert await alerted.turn(GATHER_S) == []
    alerted.sees(pair_role="active", wans=("wan1",), egress_problems={"wan1": as_sentence("x")})
    await alerted.turn()
    assert len(await alerted.turn(GATHER_S)) == 1


async def test_quiet_hours_hold_messages_back_but_no_test(alerted: Alerted) -> None:
    number = await alerted.channel()
    at = datetime.fromtimestamp(START, UTC)
    quiet = f"{at:%H:%M}-{(at.hour + 1) % 24:02}:{at.minute:02}"
    await alerted.policy("exit.shared", quiet=quiet)
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    assert await alerted.turn(GATHER_S) == []
    assert await alerted.alerts.test(number) == NONE
    assert len(await alerted.turn(3600)) == 1


async def test_tests_count_among_the_messages_of_an_hour(alerted: Alerted) -> None:
    number = await alerted.channel()
    for _ in range(PER_HOUR):
        await alerted.alerts.test(number)
    with pytest.raises(Invalid, match="as many messages"):
        await alerted.alerts.test(number)
    assert len(alerted.bench.netd.alerts) == PER_HOUR


async def test_channels_that_are_off_or_not_chosen_get_nothing(alerted: Alerted) -> None:
    one, two = await alerted.channel("a"), await alerted.channel("b")
    await alerted.alerts.revise(two, {"is_enabled": False})
    assert alerted.alerts.channel(two).url == URL
    await alerted.policy("exit.shared")
    alerted.alerts.take(Event(topic="exit", code="shared", text="one"))
    assert alerted.alerts.waiting() == {one: 1}
    await alerted.alerts.put_policy(AlertPolicy(on=("exit.shared",), channels=(two,)))
    await alerted.turn()
    assert alerted.alerts.waiting() == {}
    alerted.alerts.take(Event(topic="exit", code="shared", text="two"))
    assert alerted.alerts.waiting() == {}


async def test_faults_name_their_fields_and_change_nothing(alerted: Alerted) -> None:
    (own,) = [each for each in alerted.bench.around.own if each.version == 4][:1]
    for url, field in {
        "syslog://": "url",
        f"json://{own}/x": "url",
        "json://10.0.0.1/x": "url",
    }.items():
        with pytest.raises(Invalid) as refused:
            await alerted.channel(url=url)
        assert {fault.path[0] for fault in refused.value.faults} == {field}
    with pytest.raises(Invalid, match=r"via .*\n?"):
        await alerted.channel(via="REJECT")
    with pytest.raises(Invalid, match="via"):
        await alerted.channel(via="nowhere")
    await alerted.channel()
    with pytest.raises(Invalid, match="name"):
        await alerted.channel()
    with pytest.raises(Missing):
        await alerted.alerts.delete(9)
    with pytest.raises(Invalid, match="channels"):
        await alerted.alerts.put_policy(AlertPolicy(channels=(9,)))
    for wrong in ({"on": ("node.dead",)}, {"for_s": -1}, {"quiet": "7-8"}):
        policy = msgspec.structs.replace(AlertPolicy(), **wrong)
        with pytest.raises(Invalid, match=next(iter(wrong))):
            await alerted.alerts.put_policy(policy)
    assert len(alerted.alerts.channels()) == 1
    assert alerted.alerts.policy() == AlertPolicy()


async def test_there_are_a_few_channels_at_most(alerted: Alerted) -> None:
    for number in range(32):
        await alerted.channel(f"channel {number} {'x' * number}")
    with pytest.raises(OverQuota):
        await alerted.channel("one more")


def test_no_secret_is_in_a_repr() -> None:
    assert "secret" not in repr(ChannelDraft(name="a", url=URL))
