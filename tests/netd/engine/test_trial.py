"""The worker that measures, if it answers pings and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd.model.messages import Delay
from egressd.netd.engine import trial
from egressd.netd.engine.launch import Account
from egressd.netd.engine.protocol import AnswerBody, Measure, Measured, ProbeDocument, QuestionBody
from egressd.netd.engine.trial import Trials


class Worker:
    pid = 1

    def __init__(self, *, hangs: bool) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._hangs = hangs

    async def ask(self, body: QuestionBody) -> AnswerBody:
        assert isinstance(body, Measure)
        if self._hangs:
            await asyncio.Event().wait()
        return Measured({probe.name: Delay(delay=7) for probe in body.probes})

    async def kill(self) -> None:
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
    probe = ProbeDocument(name="a", config="{}")
    with pytest.raises(Failed, match="the engine hangs"):
        await trials.delays([probe], "http://site.test/", 1)
    assert workers[0].ended.result() == "killed"
    assert await trials.delays([probe], "http://site.test/", 1) == {"a": Delay(delay=7)}
