"""Changes on trial: taken back as a whole unless they are confirmed, also over a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.errors import Failed, Missing, Obstructed
from egressd.model.nouns import Settings
from egressd.service import trials as trials_module

if TYPE_CHECKING:
    from egressd.model.desired import DesiredState
    from egressd.model.trial import ChangeTrial
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench, OpenBench

pytestmark = pytest.mark.slow


@asynccontextmanager
async def followed(bench: Bench) -> AsyncIterator[None]:
    following = asyncio.create_task(bench.trials.follow())
    try:
        yield
    finally:
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following


async def pass_minutes(bench: Bench, minutes: int) -> None:
    """Let the trial's time pass: the state is read again with another clock."""
    bench.now += 60 * minutes
    bench.trials._trial = None


async def change_everything(bench: Bench, make: Make) -> None:
    await bench.add_node("osaka", group="asia")
    await bench.rules.create(make.rule("10.0.0.7", "osaka"))
    await bench.rules.delete(1)
    await bench.whitelist.put("example.com", "", "DIRECT")
    await bench.settings.put(Settings(check_interval_s=77))
    await bench.settings.stop()


def rows(bench: Bench) -> list[object]:
    state = bench.state
    return [state.nodes, state.rules, state.lines, state.services, state.whitelist, state.settings]


async def test_unconfirmed_changes_are_taken_back(bench: Bench, make: Make) -> None:
    await bench.rules.create(make.rule("10.0.0.5"))
    before = rows(bench)
    async with followed(bench):
        await bench.trials.begin(5, "token")
        assert [str(each) for each in bench.trials.problems()] == [
            "changes are on trial until 2025-11-20T23:03:40Z: unless confirmed, they are taken back"
        ]
        await change_everything(bench, make)
        assert (await bench.trials.state()).changes == 6
        await pass_minutes(bench, 5)
        assert (await bench.trials.state()).is_running  # the time was read anew, and is over
        await _over(bench)
    assert rows(bench) == before
    assert bench.state.next_id("nodes") == 2
    last = (await bench.undo.latest(1))[0]
    assert (last.who, last.text.code) == ("egressd", "trial-ended")
    assert bench.trials.problems() == ()
    await bench.agree()


async def _over(bench: Bench) -> None:
    for _ in range(500):
        if not (await bench.trials.state()).is_running:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the trial goes on")


async def test_confirmed_changes_stay(bench: Bench, make: Make) -> None:
    async with followed(bench):
        await bench.trials.begin(5, "token")
        await bench.rules.create(make.rule("10.0.0.5"))
        assert await bench.trials.confirm() == 1
        await pass_minutes(bench, 9)
        await asyncio.sleep(0.1)
    assert len(bench.state.rules) == 1
    with pytest.raises(Missing, match="no changes are on trial"):
        await bench.trials.confirm()
    with pytest.raises(Missing, match="no changes are on trial"):
        await bench.trials.revert()


async def test_a_refused_confirmation_ends_no_trial(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: a trial that began just then was ended by it: nothing was taken back."""
    find = bench.store.trial

    async def find_first() -> ChangeTrial | None:
        found = await find()
        monkeypatch.undo()
        await bench.trials.begin(5, "token")
        return found

    monkeypatch.setattr(bench.store, "trial", find_first)
    with pytest.raises(Missing, match="no changes are on trial"):
        await bench.trials.confirm()
    assert (await bench.trials.state()).is_running


async def test_there_is_one_trial_at_a_time(bench: Bench) -> None:
    await bench.trials.begin(5, "token")
    with pytest.raises(Obstructed, match="on trial already, until 2025-11-20T23:03:40Z"):
        await bench.trials.begin(5, "token")


async def test_a_trial_begins_after_a_change_that_comes_between(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: it was taken back with what came after the trial had begun."""
    begin = bench.store.begin_trial

    async def late(begun: ChangeTrial, state: DesiredState) -> bool:
        monkeypatch.undo()
        await bench.rules.create(make.rule("10.0.0.5"))
        return await begin(begun, state)

    monkeypatch.setattr(bench.store, "begin_trial", late)
    trial = await bench.trials.begin(5, "token")
    assert trial.revision == bench.ledger.revision
    assert (await bench.trials.state()).changes == 0
    await bench.trials.revert()
    assert len(bench.state.rules) == 1


async def test_a_trial_goes_on_over_a_restart(
    open_bench: OpenBench, tmp_path: Path, make: Make
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.start()
        await bench.rules.create(make.rule("10.0.0.5"))
        before = rows(bench)
        await bench.trials.begin(5, "token")
        await change_everything(bench, make)
    async with open_bench(tmp_path) as bench:
        await bench.start()
        bench.now += 240
        async with followed(bench):
            await asyncio.sleep(0.1)
            assert (await bench.trials.state()).is_running
            assert rows(bench) != before
    async with open_bench(tmp_path) as bench:
        await bench.start()
        bench.now += 301
        async with followed(bench):
            await _over(bench)
        assert rows(bench) == before
        await bench.agree()


async def test_taking_back_is_tried_again_after_a_failure(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials_module, "AGAIN_S", 0.1)
    await bench.trials.begin(5, "token")
    await bench.rules.create(make.rule("10.0.0.5"))
    await pass_minutes(bench, 5)
    bench.store.failing = ["commit"]
    seen = []
    async with followed(bench):
        while bench.state.rules:
            seen += [str(each) for each in bench.trials.problems()]
            await asyncio.sleep(0.01)
    assert any("cannot be taken back: commit to the database" in each for each in seen)
    assert not (await bench.trials.state()).is_running


async def test_changes_are_taken_back_at_once(bench: Bench, make: Make) -> None:
    await bench.trials.begin(5, "token")
    await bench.rules.create(make.rule("10.0.0.5"))
    text = await bench.trials.revert()
    assert str(text) == "the changes on trial taken back: rule 10.0.0.5 deleted"
    assert not bench.state.rules
    await bench.undo.undo(bench.state.revision)
    assert len(bench.state.rules) == 1


async def test_a_trial_without_changes_just_ends(bench: Bench) -> None:
    await bench.trials.begin(5, "token")
    revision = bench.state.revision
    text = await bench.trials.revert()
    assert str(text) == "the changes on trial taken back: nothing was changed"
    assert bench.state.revision == revision
    assert not (await bench.trials.state()).is_running


async def test_a_trial_ends_although_a_change_came_just_before(
    bench: Bench, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: it was answered that the changes were taken back, and the trial went on: what was
    changed afterwards was taken back later.
    """
    await bench.trials.begin(5, "token")
    rule = (await bench.rules.create(make.rule("10.0.0.5"))).value
    commit, change = bench.store.commit, bench.ledger.change
    is_late, is_asked = asyncio.Event(), asyncio.Event()

    async def asked(build: Any, **options: Any) -> Any:
        is_asked.set()
        return await change(build, **options)

    async def late() -> None:
        monkeypatch.setattr(bench.ledger, "change", asked)
        is_late.set()
        await is_asked.wait()
        monkeypatch.undo()
        await commit()

    monkeypatch.setattr(bench.store, "commit", late)
    by_hand = asyncio.create_task(bench.rules.delete(rule.id))
    await is_late.wait()
    reverting = asyncio.create_task(bench.trials.revert())
    await by_hand
    assert str(await reverting) == "the changes on trial taken back: nothing was changed"
    assert not (await bench.trials.state()).is_running


async def test_confirming_comes_before_taking_back(bench: Bench, make: Make) -> None:
    """Another box may confirm while this one takes back: the store decides."""
    await bench.trials.begin(5, "token")
    await bench.rules.create(make.rule("10.0.0.5"))
    first = await bench.store.trial_state()
    assert first is not None
    await bench.store.end_trial()
    with pytest.raises(Failed, match="they were confirmed, or taken back"):
        await bench.trials._take_back(first)
    assert len(bench.state.rules) == 1
    await bench.agree()
