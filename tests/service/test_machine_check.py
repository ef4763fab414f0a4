"""The check of the machine by the running service: one at a time, and bounded in time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from egressd.model.errors import Failed
from egressd.model.findings import MachineFinding
from egressd.service import machine_check
from egressd.service.machine_check import MachineCheck
from tests.support.findings import NO_DHCP, NO_LAN, NO_PPTP
from tests.support.netd_double import NetdDouble
from tests.support.netns import eventually


class Disk:
    """The look of the api itself, which can be made to hang."""

    def __init__(self) -> None:
        self.looks = 0
        self.threads: set[int] = set()
        self.free = threading.Event()
        self.free.set()

    def __call__(self) -> Sequence[MachineFinding]:
        self.looks += 1
        self.threads.add(threading.get_ident())
        assert self.free.wait(30)
        return (NO_LAN,)

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()


class SilentNetd(NetdDouble):
    """A netd that takes the question and does not answer."""

    async def check_system(self) -> Sequence[MachineFinding]:
        await asyncio.Event().wait()
        raise AssertionError


async def test_findings_of_both_processes_are_sorted_by_weight() -> None:
    netd = NetdDouble()
    netd.lacking = (NO_DHCP, NO_PPTP)
    assert await MachineCheck(netd, Disk()).findings() == (NO_LAN, NO_PPTP, NO_DHCP)


async def test_a_second_caller_shares_the_running_check() -> None:
    disk = Disk()
    check = MachineCheck(NetdDouble(), disk)
    with disk.hanging():
        first, second, third = (asyncio.create_task(check.findings()) for _ in range(3))
        await eventually(lambda: disk.looks == 1)
        first.cancel()
        await asyncio.wait({first})
    assert await second == await third == (NO_LAN,)
    assert first.cancelled()
    assert disk.looks == 1
    await check.findings()
    assert disk.looks == 2, "a caller that comes later gets a check of its own"
    assert threading.get_ident() not in disk.threads, "the event loop did not wait for the disk"


async def test_a_check_that_hangs_ends_for_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_check, "CHECK_S", 0.05)
    disk = Disk()
    check = MachineCheck(NetdDouble(), disk)
    with disk.hanging():
        for _ in range(3):
            with pytest.raises(Failed, match=r"check the machine: no answer within 0\.05 seconds"):
                await check.findings()
        assert disk.looks == 1
    monkeypatch.setattr(machine_check, "CHECK_S", 30.0)
    assert await check.findings() == (NO_LAN,)


async def test_a_netd_that_is_away_is_a_finding_of_its_own() -> None:
    netd = NetdDouble()
    netd.is_away = True
    found = await MachineCheck(netd, Disk()).findings()
    assert [(each.weight, each.subject) for each in found] == [
        ("blocking", "netd"), ("blocking", "LAN"),
    ]  # fmt: skip
    assert found[0].text.endswith("are not checked: it is not running")


async def test_a_netd_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_check, "_NETD_S", 0.01)
    found = await MachineCheck(SilentNetd(), Disk()).findings()
    assert found[0].text.endswith("are not checked: no answer within 0.01 seconds")
    assert found[1:] == (NO_LAN,)


async def test_a_failed_look_is_no_finding() -> None:
    def own() -> Sequence[MachineFinding]:
        raise Failed("see this machine's interfaces and disk", "no such file")

    check = MachineCheck(NetdDouble(), own)
    for _ in range(2):
        with pytest.raises(Failed, match="no such file"):
            await check.findings()
