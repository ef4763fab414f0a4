"""Each box of a pair keeps cut what the other one has cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

import pytest

from egressd.model.pair import PairLink
from egressd.netd.cluster.cut_flow_sync import PORT, CutFlowSync
from egressd.netd.kernel.cut_flows import TIMEOUT_S, CutFlows
from egressd.netd.kernel.nft import Nft
from tests.support import netns
from tests.support.cut_flows import TABLE, key, keys, listed
from tests.support.device import eventually
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

ADDRESSES: Final = IPv4Address("192.168.77.1"), IPv4Address("192.168.77.2")
LINKS: Final = [PairLink("sync0", own, peer) for own, peer in (ADDRESSES, ADDRESSES[::-1])]
MANY: Final = 20_000
WAIT_S: Final = 60.0
"""Seconds in which a busy machine lists so many flows, again and again."""


@pytest.fixture
def boxes(namespaces: None) -> Iterator[list[Namespace]]:
    with Namespace() as here, Namespace() as there:
        here.cable("sync0", there, "sync0")
        for space, link in zip((here, there), LINKS, strict=True):
            space.shell(f"ip address add {link.own}/30 dev sync0")
        yield [here, there]


async def box(
    link: PairLink, early: list[int], late: list[int], first: int, last: int
) -> list[int]:
    """Put the flows `early` in, then connect, and put `late` in once there are `first` flows in
    all. Return the seconds that are left of each one's time, once there are `last` flows.
    """
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    nft, cut_flows = Nft(), CutFlows()
    nft.run(TABLE)
    sync = CutFlowSync(link, cut_flows)
    for number in early:
        cut_flows.put([key(number)])
    sync.open()
    await netns.eventually(lambda: len(listed()) >= first, WAIT_S)
    for number in late:
        await asyncio.to_thread(cut_flows.put, [key(number)])
    await netns.eventually(lambda: len(listed()) == last, WAIT_S)
    await sync.close()
    await asyncio.sleep(0)  # the loop reports what has failed in its next round
    assert failures == []
    return [*listed().values()]


def test_each_box_keeps_cut_what_the_other_one_has_cut(boxes: list[Namespace]) -> None:
    here = boxes[0].start_async(box, LINKS[0], [1, 2], [3], 3, 5)
    there = boxes[1].start_async(box, LINKS[1], [4], [5], 3, 5)
    for running in (here, there):
        assert all(TIMEOUT_S - 60 < left <= TIMEOUT_S for left in running.result())


async def listen(link: PairLink) -> None:
    """Be a box that has cut nothing, until the end."""
    Nft().run(TABLE)
    CutFlowSync(link, CutFlows()).open()
    await asyncio.Event().wait()


async def reported(link: PairLink, silent: Path) -> str:
    """Return the problem of a box whose other one does not answer, once that one does again."""
    Nft().run(TABLE)
    sync = CutFlowSync(link, CutFlows())
    sync.open()
    assert sync.problem is None
    await netns.eventually(lambda: sync.problem is not None, WAIT_S)
    found = str(sync.problem)
    silent.touch()
    await netns.eventually(lambda: sync.problem is None, WAIT_S)
    await sync.close()
    return found


def test_a_box_that_drops_the_port_is_reported(boxes: list[Namespace], tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    boxes[1].shell(
        "nft add table inet firewall; "
        "nft 'add chain inet firewall input { type filter hook input priority 0; }'; "
        f"nft add rule inet firewall input tcp dport {PORT} drop"
    )
    boxes[1].start_async(listen, LINKS[1])
    reporting = boxes[0].start_async(reported, LINKS[0], silent)
    eventually(silent.exists, WAIT_S)
    boxes[1].shell("nft delete table inet firewall")
    assert f"{ADDRESSES[1]}, does not answer on sync0 (TCP port {PORT})" in reporting.result()


async def keep_many(link: PairLink, ready: Path) -> None:
    """Put many flows in, and be connected until the end."""
    nft, cut_flows = Nft(), CutFlows()
    nft.run(TABLE)
    for some in keys(0, MANY):
        cut_flows.put(some)
    CutFlowSync(link, cut_flows).open()
    ready.touch()
    await asyncio.Event().wait()


def test_a_box_that_comes_back_gets_all_that_is_cut(boxes: list[Namespace], tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    boxes[0].start_async(keep_many, LINKS[0], ready)
    eventually(ready.exists)
    assert len(boxes[1].run_async(box, LINKS[1], [], [], MANY, MANY)) == MANY
    # One that goes down without an end of its connections, and forgets all.
    gone = boxes[1].start_async(box, LINKS[1], [], [], MANY, MANY + 1)
    eventually(lambda: "ESTAB" in boxes[1].shell("ss -Htn"))
    boxes[1].shell("ip link set sync0 down")
    gone.kill()
    boxes[1].shell("nft flush ruleset; ip link set sync0 up")
    assert len(boxes[1].run_async(box, LINKS[1], [], [], MANY, MANY)) == MANY
