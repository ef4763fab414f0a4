"""The worker that measures: if it answers pings and nothing else, and if it has nothing to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.netd.engine import trial
from egressd.netd.engine.launch import Account
from egressd.netd.engine.protocol import AnswerBody, Measure, Measured, ProbeDocument, QuestionBody
from egressd.netd.engine.trial import Trials
from tests.support.netns import eventually

PROBE = ProbeDocument(name="a", config="{}")


class Worker:
    pid = 1

    def __init__(self, *, hangs: bool = False) -> None:
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._hangs = hangs

    async def ask(self, body: QuestionBody) -> AnswerBody:
        assert isinstance(body, Measure)
        if self._hangs:
            await asyncio.Event().wait()
        return Measured({probe.name: Delay(delay=7) for probe in body.probes})

    async def kill(self) -> None:
        await self.may_end.wait()
        self.ended.set_result("killed")

    def release(self) -> None:
        raise AssertionError("no test expects this call")


async def test_p2_a_hanging_measurement_times_out_and_the_next_has_a_new_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Past fault: groups kept a dead node for good once the engine hung in a measurement, which had
    no time limit.
    """
    monkeypatch.setattr(trial, "_TRY_S", 0.05)

    workers = [Worker(hangs=True), Worker(hangs=False)]
    coming = iter(workers)

    async def start(_path: Path, _account: Account) -> Worker:
        return next(coming)

    trials = Trials(tmp_path / "trial.sock", Account(uid=0, gid=0), start)
    with pytest.raises(Failed, match="the engine hangs"):
        await trials.delays([PROBE], "http://site.test/", 1)
    assert workers[0].ended.result() == "killed"
    assert await trials.delays([PROBE], "http://site.test/", 1) == {"a": Delay(delay=7)}


# --- A worker that has nothing to do. ----------------------------------------------------------


class Starter:
    """Starts workers that each hold the files of their socket, as a process does."""

    def __init__(self) -> None:
        self.workers: list[Worker] = []

    async def __call__(self, path: Path, _account: Account) -> Worker:
        assert all(worker.ended.done() for worker in self.workers), "one at a time"
        await asyncio.sleep(0)
        for suffix in (".sock", ".lock", ".log"):
            path.with_suffix(suffix).write_text("")
        self.workers.append(Worker())
        return self.workers[-1]


async def measured(trials: Trials) -> bool:
    """Measure once; return whether the answer is the worker's."""
    return await trials.delays([PROBE], "http://site.test/", 1000) == {"a": Delay(delay=7)}


async def test_an_idle_trial_worker_ends_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial, "_IDLE_S", 0.02)
    start = Starter()
    trials = Trials(tmp_path / "trial.sock", Account(uid=0, gid=0), start)
    assert await measured(trials)
    assert len([*tmp_path.iterdir()]) == 3
    await eventually(lambda: not [*tmp_path.iterdir()])
    assert start.workers[0].ended.result() == "killed"
    assert trials.worker is None


async def test_a_request_waits_for_the_end_of_an_idle_trial_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial, "_IDLE_S", 0.0)
    start = Starter()
    trials = Trials(tmp_path / "trial.sock", Account(uid=0, gid=0), start)
    assert await measured(trials)
    start.workers[0].may_end.clear()
    await eventually(lambda: trials.worker is None)
    waiting = [asyncio.ensure_future(measured(trials)) for _ in range(3)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(start.workers) == 1, "the old one has not ended yet"
    start.workers[0].may_end.set()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert len(start.workers) == 2
    await trials.close()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("passes", range(12))
async def test_no_request_is_lost_to_the_end_of_an_idle_trial_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, passes: int
) -> None:
    """Requests come at each pass of the event loop around the end, and some are given up."""
    monkeypatch.setattr(trial, "_IDLE_S", 0.0)
    start = Starter()
    trials = Trials(tmp_path / "trial.sock", Account(uid=0, gid=0), start)
    for _ in range(4):
        assert await measured(trials)
        for _ in range(passes):
            await asyncio.sleep(0)
        given_up = asyncio.ensure_future(measured(trials))
        kept = asyncio.ensure_future(measured(trials))
        for _ in range(passes % 4):
            await asyncio.sleep(0)
        given_up.cancel()
        assert await kept
    await eventually(lambda: trials.worker is None)
    await trials.close()
    assert all(worker.ended.done() for worker in start.workers)
    assert [*tmp_path.iterdir()] == []


async def test_closing_waits_for_an_idle_trial_worker_that_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(trial, "_IDLE_S", 0.0)
    start = Starter()
    trials = Trials(tmp_path / "trial.sock", Account(uid=0, gid=0), start)
    assert await measured(trials)
    start.workers[0].may_end.clear()
    await eventually(lambda: trials.worker is None)
    closing = asyncio.ensure_future(trials.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    start.workers[0].may_end.set()
    await closing
    assert start.workers[0].ended.done()
