"""One netd at a time: with a run directory, and in a network namespace."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from egressd.app import netd_process
from egressd.model.errors import Failed
from tests.lab.device_state import eventually
from tests.lab.netns import Namespace

pytestmark = pytest.mark.lab


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netd_process, "_PREDECESSOR_S", 0.5)


def hold(lock: Path, seconds: float) -> str:
    """Be netd for so long. Why that cannot be, or nothing."""

    async def body() -> str:
        try:
            held = await netd_process._be_the_only_one(lock)
        except Failed as error:
            return error.cause
        lock.with_suffix(".held").touch()
        await asyncio.sleep(seconds)
        held.close()
        return ""

    return asyncio.run(body())


def until_held(lock: Path) -> None:
    eventually(lock.with_suffix(".held").exists)


def test_there_is_one_in_a_network_namespace(tmp_path: Path) -> None:
    # Found by an audit: each undid what the other did, without an end.
    first, second = tmp_path / "first", tmp_path / "second"
    with Namespace() as network, Namespace() as other_network:
        network.start(hold, first, 60)
        until_held(first)
        assert network.run(hold, second, 0) == "another egressd runs in this network namespace"
        assert other_network.run(hold, second, 0) == ""


def test_there_is_one_with_a_run_directory(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with Namespace() as network, Namespace() as other_network:
        network.start(hold, lock, 60)
        until_held(lock)
        assert other_network.run(hold, lock, 0) == f"another one holds {lock}"


@pytest.mark.parametrize("successor", ["first", "second"])
def test_a_successor_waits_until_its_predecessor_is_gone(tmp_path: Path, successor: str) -> None:
    with Namespace() as network:
        predecessor = network.start(hold, tmp_path / "first", 0.2)
        until_held(tmp_path / "first")
        assert network.run(hold, tmp_path / successor, 0) == ""
        assert predecessor.result() == ""
