"""Changes of nftables by other processes, distinguished from egressd's own."""

import asyncio
import subprocess
import threading
import time

import pytest

from egressd.netd.kernel import nft_events, uapi
from egressd.netd.kernel.netlink import Message
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.nft_events import ForeignChanges
from tests.support.netns import Namespace, eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

TABLE = """
add table inet egressd
add map inet egressd hosts { type ipv4_addr : mark; }
"""


class Watched(ForeignChanges):
    """Counts its wake-ups by the kernel, and keeps its reports."""

    def __init__(self, family: int | None = None) -> None:
        super().__init__(self.on_change, family=family)
        self.reasons: list[str] = []
        self.told_at: list[float] = []
        self.woken = 0

    async def on_change(self, reason: str) -> None:
        self.reasons.append(reason)
        self.told_at.append(time.monotonic())

    def _heard(self, messages: list[Message], lost: bool) -> None:
        self.woken += 1
        super()._heard(messages, lost)


def change() -> None:
    """Make a change, in another process."""
    subprocess.run(["nft", "add", "table", "inet", "other"], check=True)


def flip(nft: Nft, times: int) -> None:
    nft.run("flush map inet egressd hosts\nadd element inet egressd hosts { 192.0.2.1 : 0 }\n")
    for mark in range(times):
        nft.run(
            "delete element inet egressd hosts { 192.0.2.1 }\n"
            f"add element inet egressd hosts {{ 192.0.2.1 : {mark} }}\n"
        )


async def test_a_change_by_another_process_is_reported_within_100_ms() -> None:
    nft = Nft()
    nft.run(TABLE)
    async with Watched() as watched:
        process = await asyncio.create_subprocess_exec("nft", "flush", "ruleset")
        await process.wait()
        ended = time.monotonic()
        await eventually(lambda: bool(watched.reasons))
        assert nft.chains() is None
        reasons, delay = watched.reasons, watched.told_at[0] - ended
    assert len(reasons) == 1
    assert reasons[0].startswith("nft (process ")
    assert delay < 0.1


async def test_our_own_changes_are_not_reported_and_cause_no_wake_up() -> None:
    first = Nft()
    first.run(TABLE)
    async with Watched() as watched:
        flip(first, 1000)
        second = Nft()  # created after the watcher
        flip(second, 1)
        await asyncio.sleep(0.02)  # it learns the new socket
        flip(second, 1000)
        many = ", ".join(f"10.0.{i >> 8}.{i & 255} : 7" for i in range(10_000))
        second.run(f"add element inet egressd hosts {{ {many} }}")
        thread = threading.Thread(target=flip, args=(first, 1000))
        thread.start()
        thread.join()
        await asyncio.sleep(0.1)
        change()
        await eventually(lambda: bool(watched.reasons))  # it does report
        reasons, woken = watched.reasons, watched.woken
    assert len(reasons) == 1
    assert reasons[0].startswith("nft (process ")
    # One for the second Nft's socket, one for the other process.
    assert woken <= 2


async def test_a_foreign_change_among_our_own_is_reported() -> None:
    nft = Nft()
    nft.run(TABLE)
    async with Watched() as watched:
        thread = threading.Thread(target=flip, args=(nft, 2000))
        thread.start()
        await asyncio.sleep(0.02)
        await asyncio.to_thread(change)
        await asyncio.to_thread(thread.join)
        await asyncio.sleep(0.1)
        reasons = watched.reasons
    assert len(reasons) == 1
    assert reasons[0].startswith("nft (process ")


async def test_with_a_family_given_only_changes_of_its_tables_are_reported() -> None:
    ours = "add table netdev egressd\nadd set netdev egressd s { type ipv4_addr; }\n"

    def shell(script: str) -> None:
        subprocess.run(["sh", "-ec", script], check=True)

    nft = Nft()
    nft.run(TABLE + ours)
    async with Watched(uapi.NFPROTO_NETDEV) as watched:
        many = ", ".join(f"10.0.{i >> 8}.{i & 255}" for i in range(10_000))
        nft.run(f"add element netdev egressd s {{ {many} }}")
        shell("nft add table inet other; nft flush map inet egressd hosts")
        await asyncio.sleep(0.1)
        told = [len(watched.reasons)]
        for damage in ("delete element netdev egressd s { 10.0.0.7 }", "flush ruleset"):
            shell(f"nft '{damage}'")
            await asyncio.sleep(0.2)
            told.append(len(watched.reasons))
    assert told == [0, 1, 2]


async def test_lost_events_count_as_foreign(namespace: Namespace) -> None:
    namespace.run(lambda: Nft().run(TABLE))

    async with Watched() as watched:
        stranger = namespace.start(lambda: flip(Nft(), 2000))
        stranger.result()  # blocks the loop, so that the queue overruns
        await eventually(lambda: bool(watched.reasons))
        reasons = watched.reasons
    assert reasons[0] == nft_events.LOST


async def test_a_failed_callback_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egressd.netd.kernel.debounce._RETRY_S", 0.01)

    calls = 0

    async def on_change(_reason: str) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise OSError("not now")

    async with ForeignChanges(on_change):
        change()
        await eventually(lambda: calls == 3)
        await asyncio.sleep(0.1)
    assert calls == 3
