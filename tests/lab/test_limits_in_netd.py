"""netd on a kernel that refuses to limit: changes that need no limit go on."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network

import pytest

from egressd.model.errors import Failed
from egressd.model.plan import Limit, Patch
from egressd.netd.dataplane import speed_limits as module
from egressd.netd.dataplane.speed_limits import SpeedLimits
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import Shaper
from egressd.planner.topology import Topology
from tests.support.netns import Namespace

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

TOPOLOGY = Topology(lans=("lan0",), lan_networks=(("lan0", IPv4Network("10.0.0.0/24")),))
LIMITED = {"10.0.0.5": Limit(number=1, upload_kbps=500, download_kbps=0)}
FREE = {"10.0.0.6": Limit(number=2, upload_kbps=0, download_kbps=0)}


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as made:
        made.shell("ip link add lan0 type bridge; ip link set lan0 up")
        yield made


@contextmanager
def limiting() -> Iterator[SpeedLimits]:
    """Yield the limits of the namespace that the test runs in."""
    limits = SpeedLimits(Shaper(Nft()))
    try:
        yield limits
    finally:
        limits.close()


def shell(script: str) -> str:
    return subprocess.run(["sh", "-ec", script], check=True, capture_output=True, text=True).stdout


def block() -> None:
    """Put another program's device at the place of the first tree."""
    shell("ip link add egressd-up0 type bridge")


def unblock() -> None:
    shell("ip link del egressd-up0")


def listed(name: str) -> bool:
    return "10.0.0" in shell(
        f"nft list set inet egressd {name} || nft list map netdev egressd {name}"
    )


async def test_changes_without_limits_succeed() -> None:
    with limiting() as limits:
        assert await limits.sync({}, TOPOLOGY)
        block()
        with pytest.raises(Failed, match="not ifb"):
            await limits.change(Patch(put=LIMITED), LIMITED, TOPOLOGY, strict=True)
        assert not limits.problems
        await limits.change(Patch(put=FREE), FREE, TOPOLOGY, strict=True)
        assert listed("sent")


async def test_a_plan_is_put_in_force_as_far_as_the_kernel_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    both = {**LIMITED, **FREE}

    with limiting() as limits:
        block()
        assert not await limits.sync(LIMITED, TOPOLOGY)
        assert "not ifb" in limits.problems[0]
        await limits.change(Patch(put=FREE), both, TOPOLOGY, strict=True)
        with pytest.raises(Failed, match="not ifb"):
            await limits.change(Patch(put=LIMITED), both, TOPOLOGY, strict=True)
        assert not await limits.refresh(both, TOPOLOGY)
        unblock()
        assert await limits.refresh(both, TOPOLOGY)
        assert not limits.problems
        assert listed("up_hosts")
        assert listed("sent")
        assert not await limits.refresh(both, TOPOLOGY)


async def test_failed_attempts_are_repeated_at_intervals() -> None:
    with limiting() as limits:
        block()
        await limits.sync(LIMITED, TOPOLOGY)
        unblock()
        assert not await limits.refresh(LIMITED, TOPOLOGY), "it is not time yet"
        assert limits.problems
        assert await limits.sync(LIMITED, TOPOLOGY)
        assert not limits.problems


async def test_many_concurrent_changes_and_reads_take_turns() -> None:
    with limiting() as limits:
        await limits.sync({}, TOPOLOGY)
        wanted: dict[str, Limit] = {}
        asked: list[Awaitable[object]] = []
        for number in range(1, 40):
            put = {f"10.0.0.{number}": Limit(number=number, upload_kbps=9, download_kbps=9)}
            wanted |= put
            asked.append(limits.change(Patch(put=put), wanted, TOPOLOGY, strict=True))
            asked.append(limits.counters())
        many = {
            f"10.0.1.{n}": Limit(number=99 + n, upload_kbps=9, download_kbps=0) for n in range(50)
        }
        wanted |= many
        asked.append(limits.change(Patch(put=many), wanted, TOPOLOGY, strict=True))
        await asyncio.gather(*asked)
        assert not await limits.sync(wanted, TOPOLOGY), "all is as it should be"
        assert len(await limits.counters()) == len(wanted)
