"""The worker that measures, if it answers pings and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from egressd.model.errors import Failed
from egressd.model.messages import Delay
from egressd.netd.engine import trial
from egressd.netd.engine.launch import Account
from egressd.netd.engine.process import WorkerProcess
from egressd.netd.engine.protocol import Measure, Measured, ProbeDocument
from egressd.netd.engine.trial import Trials


class Worker:
    def __init__(self, *, hangs: bool) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._hangs = hangs

    async def ask(self, asked: Measure) -> Measured:
        if self._hangs:
            await asyncio.Event().wait()
        return Measured({probe.name: Delay(delay=7) for probe in asked.probes})

    async def kill(self) -> None:
        self.ended.set_result("killed")


def test_p2_a_hanging_measurement_times_out_and_the_next_has_a_new_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Past fault: groups kept a dead node for good once the engine hung in a measurement, which had
    no time limit.
    """
    monkeypatch.setattr(trial, "_TRY_S", 0.05)

    async def body() -> None:
        workers = [Worker(hangs=True), Worker(hangs=False)]
        coming = iter(workers)

        async def start(*_: object, **__: object) -> WorkerProcess:
            return cast(WorkerProcess, next(coming))

        monkeypatch.setattr(WorkerProcess, "start", start)
        trials = Trials(tmp_path / "trial.sock", Account(uid=0, gid=0))
        probe = ProbeDocument(name="a", config="{}")
        with pytest.raises(Failed, match="the engine hangs"):
            await trials.delays([probe], "http://site.test/", 1)
        assert workers[0].ended.result() == "killed"
        assert await trials.delays([probe], "http://site.test/", 1) == {"a": Delay(delay=7)}

    asyncio.run(body())
