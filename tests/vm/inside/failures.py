"""Scenarios in which something fails under the lines. They follow those of `scenarios`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Final

import msgspec

from egressd.netd.lines.unit import members
from tests.vm.inside import network
from tests.vm.inside.netns import sh
from tests.vm.inside.network import SERVERS, WANS
from tests.vm.inside.suite import (
    BLOCK_S,
    RUN_DIR,
    Suite,
    leader,
    local_port,
)

REDIAL_S: Final = 3.0
"""After a daemon of a line died, its client has answers again."""
RETURN_S: Final = 10.0
"""After a way to the server is there again."""


async def daemons_are_killed(suite: Suite) -> None:
    """kill -9 of xl2tpd alone, of pppd alone, and of all processes of a line."""
    hit = ("l2tp_a", "l2tp_b", "pptp_a")
    others = suite.bystanders(*hit)
    since = time.monotonic()
    os.kill(leader("l2tp_a"), signal.SIGKILL)
    second = members(RUN_DIR / "units" / "l2tp_b") - {leader("l2tp_b")}
    for pid in (*second, *members(RUN_DIR / "units" / "pptp_a")):
        with suppress(ProcessLookupError):  # it followed one that was killed before
            os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    await suite.online(hit)
    for name in hit:
        cut, back = suite.clients[name].cut_and_back(since)
        suite.figures |= {f"{name} cut": cut, f"{name} back": back}
        assert back <= REDIAL_S, f"{name} was back after {back:.1f} s"
    suite.figures["longest silence"] = others.check()


async def an_association_is_lost(suite: Suite) -> None:
    """The server ends IPsec: not one clear packet, and the line's twin goes on."""
    others = suite.bystanders("l2tp_d")
    since = time.monotonic()
    await asyncio.to_thread(network.end_association, "s2", local_port("l2tp_d"))
    await asyncio.sleep(1)
    await suite.online(["l2tp_d"])
    cut, back = suite.clients["l2tp_d"].cut_and_back(since)
    suite.figures |= {"cut": cut, "back": back, "longest silence": others.check()}
    assert back <= RETURN_S, f"back after {back:.1f} s"


async def a_nat_comes_between(suite: Suite) -> None:
    """Two lines with a secret by one WAN, whose address the server does not see."""
    hit = ("l2tp_d", "l2tp_e")
    others = suite.bystanders("l2tp_a", *hit)
    kept = {name: suite.lines[name] for name in hit}
    await suite.apply(**dict.fromkeys(hit))
    sh(
        "ip netns exec isp nft 'add table ip nat; add chain ip nat post "
        "{ type nat hook postrouting priority 100; }; "
        f"add rule ip nat post ip saddr {WANS['wan1']} ip daddr {SERVERS['s2']} masquerade'"
    )
    before = suite.taps["wan1"].encapsulated
    began = time.monotonic()
    await suite.apply(**kept)
    await suite.online(hit)
    suite.figures["online behind NAT"] = time.monotonic() - began
    assert suite.taps["wan1"].encapsulated > before, "no ESP in UDP was seen"
    await suite.apply(**dict.fromkeys(hit))
    sh("ip netns exec isp nft delete table ip nat")
    await suite.apply(**kept)
    await suite.online(hit)
    suite.figures["longest silence"] = others.check()


async def charon_is_killed(suite: Suite) -> None:
    """kill -9 of the IKE daemon: its lines are dialled anew, in clear never."""
    hit = ("l2tp_c", "l2tp_d", "l2tp_e")
    others = suite.bystanders(*hit)
    since = time.monotonic()
    record = msgspec.json.decode((RUN_DIR / "charon" / "unit.json").read_bytes())
    os.kill(record["pid"], signal.SIGKILL)
    await asyncio.sleep(1)
    await suite.online(hit)
    for name in hit:
        back = suite.clients[name].cut_and_back(since)[1]
        suite.figures[f"{name} back"] = back
        assert back <= REDIAL_S, f"{name} was back after {back:.1f} s"
    suite.figures["longest silence"] = others.check()


def _all_returned(suite: Suite, hit: Collection[str], since: float, restored: float) -> None:
    """The clients had their longest silence `since`, and answers soon after the way was there."""
    for name in hit:
        back = since + suite.clients[name].cut_and_back(since)[1] - restored
        suite.figures[f"{name} back"] = back
        assert back <= RETURN_S, f"{name} was back after {back:.1f} s"


async def a_path_is_cut(suite: Suite) -> None:
    """Packets between one WAN and one server vanish: seen by silence, other lines go on."""
    hit = ("l2tp_c", "pptp_a", "pptp_b")
    others = suite.bystanders(*hit)
    since = time.monotonic()
    sh(
        f"ip -n isp rule add pref 10 from {WANS['wan2']} to {SERVERS['s1']} blackhole; "
        f"ip -n isp rule add pref 10 from {SERVERS['s1']} to {WANS['wan2']} blackhole"
    )
    for name in hit:
        status = await suite.until(name, lambda status: not status.is_online, BLOCK_S)
        suite.figures[f"{name} known down"] = time.monotonic() - since
        assert status.reason, status
    await asyncio.sleep(4)
    status = (await suite.statuses())["pptp_a"]
    assert status.state in ("lost", "unreachable", "dialing"), status
    sh("ip -n isp rule del pref 10; ip -n isp rule del pref 10")
    restored = time.monotonic()
    await suite.online(hit)
    _all_returned(suite, hit, since, restored)
    suite.figures["longest silence"] = others.check()


FAILURES: Final = (
    daemons_are_killed,
    an_association_is_lost,
    a_nat_comes_between,
    charon_is_killed,
    a_path_is_cut,
)
