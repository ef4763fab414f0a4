"""A change is stored and in force, or neither, with any failure at any time."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, Invalid
from egressd.model.nouns import Settings
from egressd.model.plan import Change, Plan
from egressd.service import number_allocation, steps
from egressd.service.ledger import Proposal

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench, OpenBench, Settle


async def test_calls_fail_before_the_state_is_loaded(
    tmp_path: Path, open_bench: OpenBench, make: Make
) -> None:
    async with open_bench(tmp_path) as bench:
        assert bench.ledger.phase == "restoring"
        for call in (bench.ledger.resync(), bench.rules.create(make.rule())):
            with pytest.raises(Failed, match="not loaded"):
                await call
        assert bench.netd.asked == []


async def test_start_puts_the_whole_stored_state_in_force(
    tmp_path: Path, open_bench: OpenBench, make: Make
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.start()
        await bench.rules.create(make.rule())
    async with open_bench(tmp_path) as bench:
        await bench.ledger.load()
        assert bench.ledger.phase == "restoring"
        await bench.ledger.resync()
        assert bench.ledger.phase == "running"
        assert "10.0.0.5" in bench.netd.plan.hosts
        await bench.agree()


async def test_a_change_is_stored_and_in_force_when_the_call_returns(
    bench: Bench, make: Make
) -> None:
    outcome = await bench.rules.create(make.rule())
    assert outcome.value.id == 1
    assert bench.ledger.revision == 1
    await bench.agree()
    change = bench.netd.asked[-1]
    assert isinstance(change, Change)
    assert list(change.hosts.put) == ["10.0.0.5"]


async def test_a_change_without_effect_on_the_plan_has_a_revision(bench: Bench, make: Make) -> None:
    rule = (await bench.rules.create(make.rule())).value
    await bench.rules.replace(rule.id, make.rule(comment="living room"))
    change = bench.netd.asked[-1]
    assert isinstance(change, Change)
    assert change.is_empty
    assert change.revision == bench.ledger.revision == 2
    await bench.agree()


async def test_a_change_without_differences_does_nothing(bench: Bench, make: Make) -> None:
    rule = (await bench.rules.create(make.rule())).value
    asked = len(bench.netd.asked)
    bench.clock.tick()
    assert (await bench.rules.set_enabled(rule.id, True)).value == rule
    assert (await bench.rules.replace(rule.id, make.rule())).value == rule
    assert (await bench.rules.delete_many(["10.9.9.9"])).value == 0
    assert bench.ledger.revision == 1
    assert len(bench.netd.asked) == asked


async def test_a_refused_draft_does_not_reach_netd_or_the_store(bench: Bench, make: Make) -> None:
    asked = len(bench.netd.asked)
    with pytest.raises(Invalid):
        await bench.rules.create(make.rule(ip="nonsense"))
    assert bench.ledger.revision == 0
    assert len(bench.netd.asked) == asked
    await bench.agree()


@pytest.mark.parametrize("is_large", [False, True])
async def test_an_exception_of_a_builder_is_raised(bench: Bench, is_large: bool) -> None:
    def build(state: DesiredState) -> Proposal[None]:
        raise Invalid("no")

    with pytest.raises(Invalid, match="no"):
        await bench.ledger.change(build, is_large=is_large)
    await bench.agree()


@pytest.mark.parametrize("store_fails", ["", "begin", "commit"])
async def test_a_failed_change_keeps_the_old_state(
    bench: Bench, make: Make, store_fails: str
) -> None:
    """All combinations of netd's outcomes for the next calls, with each failing call of the
    store.
    """
    ways = ("obey", "refuse", "break", "lose")
    addresses = (f"10.0.{n >> 8}.{n & 255}" for n in itertools.count(1))
    for behaviour in itertools.product(ways, repeat=3):
        before = bench.state
        bench.netd.behaviour = list(behaviour)
        bench.store.failing = [store_fails]
        try:
            await bench.rules.create(make.rule(next(addresses)))
        except Failed:
            assert bench.state is before
            assert await bench.store.load() == before
        else:
            assert (behaviour[0], store_fails) == ("obey", "")
        bench.netd.behaviour = []
        bench.store.failing = []
        bench.netd.return_after_restart()
        await bench.rules.create(make.rule(next(addresses)))
        await bench.agree()


async def test_a_change_is_reverted_in_netd_if_the_disk_is_full(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.1"))
    bench.store.failing = ["commit"]
    with pytest.raises(Failed, match="disk is full"):
        await bench.rules.create(make.rule("10.0.0.2"))
    put, back = bench.netd.asked[-2:]
    assert isinstance(put, Change)
    assert isinstance(back, Change)
    assert (put.base, put.revision) == (back.revision, back.base) == (1, 2)
    assert back.hosts.drop == ("10.0.0.2",)
    await bench.agree()


async def test_a_refusal_does_not_set_the_whole_plan_again(bench: Bench, make: Make) -> None:
    bench.netd.behaviour = ["refuse"]
    with pytest.raises(Failed, match="the kernel would not"):
        await bench.rules.create(make.rule())
    assert sum(isinstance(asked, Plan) for asked in bench.netd.asked) == 1
    assert bench.ledger.phase == "running"
    await bench.agree()


async def put_out_of_force(bench: Bench, make: Make, how: str) -> None:
    """Make a change meet `how`, and the next one a netd that refuses all calls."""
    bench.netd.behaviour = [how]
    with pytest.raises(Failed):
        await bench.rules.create(make.rule("10.0.0.2"))
    bench.netd.return_after_restart()
    bench.netd.behaviour = ["refuse", "refuse", "refuse"]
    with pytest.raises(Failed, match="the kernel would not"):
        await bench.rules.create(make.rule("10.0.0.3"))


async def test_a_change_can_repair_a_plan_that_netd_refuses(bench: Bench, make: Make) -> None:
    rule = (await bench.rules.create(make.rule("10.0.0.1"))).value
    await put_out_of_force(bench, make, "lose")
    bench.netd.behaviour = ["refuse"]
    with pytest.raises(Failed, match="the kernel would not"):
        await bench.rules.replace(rule.id, make.rule("10.0.0.1"))
    assert not bench.ledger.is_in_force
    bench.netd.behaviour = ["refuse"]
    await bench.rules.delete(rule.id)
    assert isinstance(bench.netd.asked[-1], Plan)
    await bench.agree()


async def test_a_refused_plan_is_not_in_force_despite_its_revision(
    bench: Bench, make: Make
) -> None:
    await bench.rules.create(make.rule("10.0.0.1"))
    await put_out_of_force(bench, make, "break")
    assert not bench.ledger.is_in_force
    await bench.ledger.resync()
    await bench.agree()


async def test_without_netd_changes_fail_and_reads_succeed(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.1"))
    bench.netd.is_away = True
    for _ in range(2):
        with pytest.raises(Failed, match="not running"):
            await bench.rules.create(make.rule("10.0.0.2"))
    assert [rule.host for rule in bench.rules.list()] == ["10.0.0.1"]
    assert bench.ledger.phase == "restoring"
    bench.netd.plan = Plan()  # it restarts with an empty disk
    bench.netd.return_after_restart()
    await bench.ledger.resync()
    await bench.agree()


async def test_changes_wait_while_the_whole_plan_is_set(
    bench: Bench, make: Make, settle: Settle
) -> None:
    bench.netd.hold = asyncio.Event()
    resync = asyncio.create_task(bench.ledger.resync())
    change = asyncio.create_task(bench.rules.create(make.rule()))
    await settle()
    assert bench.ledger.phase == "restoring"
    assert not change.done()
    bench.netd.hold.set()
    await resync
    await change
    await bench.agree()


async def test_a_cancelled_caller_leaves_no_half_change(
    bench: Bench, make: Make, settle: Settle
) -> None:
    bench.netd.hold = asyncio.Event()
    leaving = asyncio.create_task(bench.rules.create(make.rule("10.0.0.1")))
    await settle()
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert bench.rules.list() == []
    bench.netd.hold.set()
    await bench.rules.create(make.rule("10.0.0.2"))
    assert [rule.host for rule in bench.rules.list()] == ["10.0.0.1", "10.0.0.2"]
    await bench.agree()


async def test_a_failure_after_its_caller_was_cancelled_is_silent(
    bench: Bench, make: Make, settle: Settle
) -> None:
    bench.netd.hold = asyncio.Event()
    bench.netd.behaviour = ["refuse"]
    leaving = asyncio.create_task(bench.rules.create(make.rule()))
    await settle()
    leaving.cancel()
    bench.netd.hold.set()
    await bench.ledger.close()
    await bench.agree()


async def test_thirty_two_concurrent_writers_lose_nothing(bench: Bench, make: Make) -> None:
    async def write(writer: int) -> None:
        for number in range(3):
            ip = f"10.{writer}.0.{number}"
            rule = (await bench.rules.create(make.rule(ip))).value
            await bench.rules.replace(rule.id, make.rule(ip, comment=str(writer)))
            if number % 2:
                await bench.rules.delete(rule.id)

    await asyncio.gather(*(write(writer) for writer in range(32)))
    kept = {f"10.{writer}.0.{number}" for writer in range(32) for number in (0, 2)}
    assert {rule.host for rule in bench.rules.list()} == kept
    assert all(rule.comment == rule.ip.split(".")[1] for rule in bench.rules.list())
    assert bench.ledger.revision == 32 * (3 + 3 + 1)
    assert len({rule.id for rule in bench.rules.list()}) == len(kept)
    await bench.agree()


async def test_the_phase_is_stopped_after_an_operators_stop(bench: Bench) -> None:
    await bench.settings.stop()
    phases = [bench.ledger.phase]
    assert bench.netd.plan.policy.stopped
    await bench.settings.start()
    phases.append(bench.ledger.phase)
    assert phases == ["stopped", "running"]


async def test_groups_and_interfaces_keep_their_numbers(bench: Bench, make: Make) -> None:
    node = await bench.add_node("a", group="asia", **{"interface-name": "wan2"})
    await bench.rules.create(make.rule("10.0.0.1", "Interface:wan1"))
    await bench.services.create(make.service(outbound_interface="wan3"))
    await bench.lines.create(make.line("l2tp_1", interface="wan4"))
    await bench.lines.create(make.line("l2tp_2"))
    await bench.settings.put(Settings(unmanaged="Interface:wan5"))
    expected = {"Group_asia": 1, "Interface:wan2": 1, "Interface:wan1": 2, "Interface:wan3": 3}
    expected |= {"Interface:wan4": 4, "Interface:wan5": 5}
    assert dict(bench.state.numbers) == expected
    await bench.nodes.delete(node.id)
    await bench.rules.delete_many(["10.0.0.1"])
    await bench.add_node("b", group="europe")
    await bench.add_node("c", group="asia")
    assert dict(bench.state.numbers) == expected | {"Group_europe": 2}
    await bench.agree()


@pytest.mark.slow
async def test_missing_numbers_are_given_at_the_next_start(
    tmp_path: Path, open_bench: OpenBench, make: Make
) -> None:
    """Past fault: a backup restored without a service into a new database blocked groups and
    interfaces for good, because their numbers were not restored.
    """
    backup = tmp_path / "backup"
    async with open_bench(tmp_path / "one") as bench:
        await bench.start()
        for name in ("wan1", "wan2"):
            await bench.rules.create(make.rule(f"10.0.0.{name[-1]}", f"Interface:{name}"))
        await bench.add_node("a", group="asia")
        await bench.store.real.backup(backup)
        numbers = dict(bench.state.numbers)
    async with open_bench(tmp_path / "empty") as bench:
        # Existing flows keep their meaning if it was the same device.
        await bench.store.real.restore(await bench.store.real.read_backup(backup))
        await bench.start()
        assert dict(bench.state.numbers) == numbers
    async with open_bench(tmp_path / "another") as bench:
        await bench.start()
        await bench.rules.create(make.rule("10.0.0.9", "Interface:wan2"))
    async with open_bench(tmp_path / "another") as bench:
        await bench.store.real.restore(await bench.store.real.read_backup(backup))
        await bench.start()
        expected = {"Interface:wan2": 1, "Interface:wan1": 2, "Group_asia": 1}
        assert dict(bench.state.numbers) == expected
        assert bench.netd.plan.egresses.keys() == {"wan1", "wan2"}
        await bench.agree()
    async with open_bench(tmp_path / "another") as bench:
        await bench.start()
        assert dict(bench.state.numbers) == expected


async def test_tables_hold_no_more_rows_than_a_backup(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 4):
        await bench.rules.create(make.rule(f"10.0.0.{number}"))
    monkeypatch.setattr(steps, "ROWS_MAX", 3)
    before, asked = bench.state, len(bench.netd.asked)
    refused = "there may be at most 3 rules, and would be"
    with pytest.raises(Invalid, match=f"{refused} 4"):
        await bench.rules.create(make.rule("10.0.0.4"))
    with pytest.raises(Invalid, match=f"{refused} 5"):
        await bench.rules.import_rows("10.0.0.4,DIRECT\n10.0.0.5,DIRECT", replace=False)
    assert (bench.state, len(bench.netd.asked)) == (before, asked)
    await bench.add_node()
    monkeypatch.setattr(steps, "ROWS_MAX", 1)  # earlier rows stay, and may be deleted
    await bench.rules.replace(1, make.rule("10.0.0.9"))
    await bench.rules.delete(2)
    await bench.agree()


async def test_too_many_interface_names_are_refused(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(number_allocation._HIGHEST, "Interface:", 2)
    for name in ("wan1", "wan2"):
        await bench.rules.create(make.rule(f"10.0.0.{name[-1]}", f"Interface:{name}"))
    with pytest.raises(Invalid, match="one name too many"):
        await bench.rules.create(make.rule("10.0.0.3", "Interface:wan3"))
    await bench.rules.create(make.rule("10.0.0.3", "Interface:wan2"))
    await bench.agree()


def test_an_edit_of_an_unknown_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no such table"):
        DesiredState().with_edits([Edit("towns", 1, None)], 1)
