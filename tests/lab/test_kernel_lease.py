"""The lease of a member of a site in the kernel: it runs out by itself, and no write comes late."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from ipaddress import IPv4Network
from typing import Any

import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed, Invalid
from egressd.model.plan import GlobalPolicy, Plan
from egressd.netd.dataplane import lease as lease_module
from egressd.netd.dataplane.kernel_state import KernelState
from egressd.netd.dataplane.lease import Lease
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.set_elements import replace_timed
from egressd.planner import nft as script
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.topology import Topology
from tests.support.netns import eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

ONE_LAN = Topology(lans=("lan0",), lan_networks=(("lan0", IPv4Network("10.77.0.0/24")),))
FAMILIES = {"2", "10"}
"""IPv4 and IPv6, as nft lists them."""


def now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def gated() -> Nft:
    """Return the nftables of a namespace with a table that has a gate."""
    nft = Nft()
    nft.run(script.load(script.elements(Plan(), ONE_LAN, {}), is_gated=True))
    return nft


def families(nft: Nft) -> set[str]:
    return {key.split()[0] for key in nft.elements("lease") or ()}


async def test_the_lease_runs_out_in_the_kernel() -> None:
    nft, followed = gated(), list[int]()
    lease = Lease(followed.append)
    assert lease.left_ms == 0
    until = now_ms() + 600
    await lease.renew(until, is_gated=True)
    assert families(nft) == FAMILIES
    assert 0 < lease.left_ms <= 600
    assert followed == [until]
    await eventually(lambda: families(nft) == set())
    assert now_ms() - until > -20, "it ran out before its end"
    await eventually(lambda: lease.left_ms == 0)


@pytest.mark.parametrize("first_ms", [900, 5000])
async def test_a_renewal_replaces_the_end_before(first_ms: int) -> None:
    nft = gated()
    lease = Lease(lambda _: None)
    await lease.renew(now_ms() + first_ms, is_gated=True)
    await lease.renew(now_ms() + 2000, is_gated=True)
    other = Lease(lambda _: None)
    other.load_previous()
    assert 1000 < other.left_ms <= 2000
    assert families(nft) == FAMILIES


@pytest.mark.parametrize("ahead_ms", [-1000, 0, 50, 10_500, 1 << 40])
async def test_an_end_that_is_over_or_far_ahead_is_refused(ahead_ms: int) -> None:
    nft = gated()
    with pytest.raises(Invalid, match="until_ms"):
        await Lease(lambda _: None).renew(now_ms() + ahead_ms, is_gated=True)
    assert families(nft) == set()


def frozen(times: int, for_s: float) -> tuple[Callable[..., None], list[int]]:
    """Return a `replace_timed` ahead of whose writes of the lease the process is frozen, `times`
    times, and the time-outs that it was given.
    """
    given: list[int] = []

    def replace(*args: Any, needed: Collection[bytes] = ()) -> None:
        if needed:
            given.append(max(args[-1].values()))
            if len(given) <= times:
                time.sleep(for_s)
        replace_timed(*args, needed=needed)

    return replace, given


async def test_a_freeze_between_clock_and_write_prolongs_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nft = gated()
    replace, given = frozen(1, 0.3)
    monkeypatch.setattr(lease_module, "replace_timed", replace)
    lease = Lease(lambda _: None)
    until = now_ms() + 2000
    await lease.renew(until, is_gated=True)
    assert len(given) == 2, "the late write was refused, and another one made"
    assert given[1] <= given[0] - 300
    other = Lease(lambda _: None)
    other.load_previous()
    assert now_ms() + other.left_ms <= until + 50
    assert families(nft) == FAMILIES


async def test_a_machine_too_slow_to_write_leaves_the_lease_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nft = gated()
    replace, _ = frozen(100, 0.15)
    monkeypatch.setattr(lease_module, "replace_timed", replace)
    followed: list[int] = []
    lease = Lease(followed.append)
    with pytest.raises(Failed, match="more than 100 ms"):
        await lease.renew(now_ms() + 9000, is_gated=True)
    assert not families(nft) & FAMILIES
    assert (lease.left_ms, followed) == (0, [])


async def test_a_freeze_beyond_the_end_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    nft = gated()
    replace, _ = frozen(1, 0.6)
    monkeypatch.setattr(lease_module, "replace_timed", replace)
    with pytest.raises(Failed, match="its end came"):
        await Lease(lambda _: None).renew(now_ms() + 500, is_gated=True)
    assert not families(nft) & FAMILIES


async def test_without_a_gate_a_lease_writes_nothing() -> None:
    nft = Nft()
    nft.run(script.load(script.elements(Plan(), ONE_LAN, {})))
    await Lease(lambda _: None).renew(now_ms() + 5000, is_gated=False)
    assert nft.elements("lease") is None


def machine(nft: Nft) -> KernelState:
    made = KernelState(nft, InterfaceRoles(), engine_uid=990)
    made.topology = ONE_LAN
    return made


LEASED = Plan(policy=GlobalPolicy(is_leased=True), hosts={"10.77.0.5": MARK_DIRECT})
ALONE = Plan(hosts={"10.77.0.5": MARK_DIRECT})
OPENED = Plan(policy=GlobalPolicy(is_leased=True, opened=True, unmanaged=MARK_DIRECT))


async def test_a_load_opens_nothing_and_leaves_a_lease_that_runs() -> None:
    nft = Nft()
    kernel = machine(nft)
    await kernel.load(LEASED, {})
    assert (families(nft), kernel.lease_ms(LEASED)) == (set(), 0)
    await kernel.renew_lease(now_ms() + 8000, LEASED)
    await kernel.load(LEASED, {})
    assert families(nft) == FAMILIES
    left = kernel.lease_ms(LEASED)
    assert left is not None
    assert 0 < left <= 8000
    assert await kernel.is_intact()


async def test_the_next_netd_takes_over_a_lease_that_runs() -> None:
    nft = Nft()
    before = machine(nft)
    await before.load(LEASED, {})
    until = now_ms() + 8000
    await before.renew_lease(until, LEASED)
    after = machine(nft)
    after.load_previous()
    after.topology = ONE_LAN
    await after.load(LEASED, {})
    left = after.lease_ms(LEASED)
    assert left is not None
    assert left > 0
    assert now_ms() + left <= until + 50
    assert families(nft) == FAMILIES


async def test_the_next_netd_is_closed_if_the_lease_is_over() -> None:
    nft = Nft()
    before = machine(nft)
    await before.load(LEASED, {})
    await before.renew_lease(now_ms() + 200, LEASED)
    await eventually(lambda: families(nft) == set())
    after = machine(nft)
    after.load_previous()
    after.topology = ONE_LAN
    await after.load(LEASED, {})
    assert (families(nft), after.lease_ms(LEASED)) == (set(), 0)


async def test_a_flushed_table_gets_its_lease_again() -> None:
    nft = Nft()
    kernel = machine(nft)
    await kernel.load(LEASED, {})
    await kernel.renew_lease(now_ms() + 8000, LEASED)
    nft.run("delete table inet egressd\n")
    await kernel.load(LEASED, {})
    assert families(nft) == FAMILIES


async def test_a_device_that_is_opened_needs_its_lease() -> None:
    """The other members of its site count on the end of the lease."""
    nft = Nft()
    kernel = machine(nft)
    await kernel.load(OPENED, {})
    assert (families(nft), kernel.lease_ms(OPENED)) == (set(), 0)
    await kernel.renew_lease(now_ms() + 8000, OPENED)
    await kernel.load(LEASED, {})
    await kernel.load(OPENED, {})
    assert families(nft) == FAMILIES
    assert (kernel.lease_ms(OPENED) or 0) > 0


async def test_a_lease_given_to_a_box_alone_holds_once_it_needs_one() -> None:
    nft = Nft()
    kernel = machine(nft)
    await kernel.load(ALONE, {})
    await kernel.renew_lease(now_ms() + 8000, ALONE)
    assert (nft.elements("lease"), kernel.lease_ms(ALONE)) == (None, None)
    await kernel.load(LEASED, {})
    assert families(nft) == FAMILIES


async def test_a_box_that_leaves_its_site_keeps_no_gate_of_an_earlier_netd() -> None:
    nft = Nft()
    await machine(nft).load(LEASED, {})
    after = machine(nft)
    after.load_previous()
    after.topology = ONE_LAN
    await after.load(ALONE, {})
    assert nft.elements("lease") is None
    assert "@lease" not in (nft.chains() or "")


async def test_a_renewal_without_a_table_fails() -> None:
    nft = Nft()
    kernel = machine(nft)
    await kernel.load(LEASED, {})
    nft.run("delete table inet egressd\n")
    with pytest.raises(Failed, match="renew the lease"):
        await kernel.renew_lease(now_ms() + 8000, LEASED)
    await kernel.load(LEASED, {})
    assert families(nft) == FAMILIES
