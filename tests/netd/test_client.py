"""The api's end of the socket to netd."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import cast

import pytest

from egressd.model.errors import Failed
from egressd.model.messages import LineNews, RuleCount
from egressd.netd.client import NetdClient
from egressd.netd.reconciler import Reconciler
from egressd.netd.server import Server
from tests.lab.netns import eventually


class _Busy:
    """A netd that does what it is asked for, but too late."""

    line_news = LineNews({})

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.monitor = self

    async def counters(self) -> dict[int, RuleCount]:
        await self.free.wait()
        return {}


def test_who_has_waited_too_long_connects_anew_to_say_what_is_to_be_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        netd = _Busy()
        server = Server(tmp_path / "netd.sock", os.getuid(), cast(Reconciler, netd))
        await server.open()
        connected: list[bool] = []

        async def on_connect() -> None:
            connected.append(True)

        client = NetdClient(tmp_path / "netd.sock", on_connect=on_connect, on_event=lambda _: None)
        running = asyncio.create_task(client.run())
        await eventually(lambda: len(connected) == 1)
        monkeypatch.setattr("egressd.netd.client._ANSWER_S", 0.05)
        with pytest.raises(Failed, match=r"no answer within 0\.05 seconds"):
            await client.counters()
        monkeypatch.setattr("egressd.netd.client._ANSWER_S", 5.0)
        await eventually(lambda: len(connected) == 2)
        netd.free.set()
        assert await client.counters() == {}
        running.cancel()
        await asyncio.wait({running})
        await server.close()

    asyncio.run(body())
