"""Scenarios of failures under the lines. They run after those of `scenarios`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from egressd.netd.system.daemon_group import members
from tests.vm.inside import network
from tests.vm.inside.netns import sh
from tests.vm.inside.network import SERVERS, WANS
from tests.vm.inside.suite import (
    BLOCK_S,
    ONLINE_S,
    PLACES,
    RUN_DIR,
    Suite,
    has_state,
    leader,
    leaders,
    local_port,
    replaced,
    spis,
    users,
)

REDIAL_S: Final = 3.0
"""Seconds after a line's daemon died until its client has answers again."""
RETURN_S: Final = 10.0
"""Seconds after a path to the server is back until clients have answers again."""


async def daemons_are_killed(suite: Suite) -> None:
    """Send kill -9 to xl2tpd alone, to pppd alone, and to all processes of a line."""
    hit = ("l2tp_a", "l2tp_b", "pptp_a")
    others = suite.bystanders(*hit)
    since = time.monotonic()
    os.kill(leader("l2tp_a"), signal.SIGKILL)
    second = members(RUN_DIR / "units" / "l2tp_b") - {leader("l2tp_b")}
    for pid in (*second, *members(RUN_DIR / "units" / "pptp_a")):
        with suppress(ProcessLookupError):  # it ended after one that was killed before
            os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.5)
    await suite.online(hit)
    for name in hit:
        cut, back = suite.clients[name].cut_and_back(since)
        suite.figures |= {f"{name} cut": cut, f"{name} back": back}
        assert back <= REDIAL_S, f"{name} was back after {back:.1f} s"
    suite.figures["longest silence"] = others.check()


async def an_association_is_lost(suite: Suite) -> None:
    """The server ends IPsec: no packet goes in clear text, and the line's twin goes on."""
    others = suite.bystanders("l2tp_d")
    since = time.monotonic()
    await asyncio.to_thread(network.end_association, "s2", local_port("l2tp_d"))
    await asyncio.sleep(1)
    await suite.online(["l2tp_d"])
    cut, back = suite.clients["l2tp_d"].cut_and_back(since)
    suite.figures |= {"cut": cut, "back": back, "longest silence": others.check()}
    assert back <= RETURN_S, f"back after {back:.1f} s"


async def keys_are_renewed(suite: Suite) -> None:
    """Renew the keys of all associations, then those of IKE from each side, during transfers."""
    others = suite.bystanders()
    before = leaders(suite.lines)
    ours, theirs = f"unix://{RUN_DIR}/charon/vici", f"unix://{network.RUN}/s2/vici"
    keys = await asyncio.to_thread(spis)
    children = re.findall(r"uniqueid=(\d+) reqid=", await asyncio.to_thread(_listed, ours))
    assert len(children) == sum(has_secret for _, has_secret, _ in PLACES.values())
    for number in children:
        await asyncio.to_thread(sh, f"swanctl --rekey --child-id {number} --uri {ours}")
    await _eventually(lambda: len(spis() - keys) == 2 * len(children), "not all have new keys")
    for uri in (ours, theirs):
        known = await asyncio.to_thread(_ike_numbers, uri)
        for number in known:
            await asyncio.to_thread(sh, f"swanctl --rekey --ike-id {number} --uri {uri}")
        # Replaced associations stay for ten seconds.
        replaced_all = partial(_has_none_of, uri, known)
        await _eventually(replaced_all, "an IKE association was not replaced")
    await suite.online()
    assert leaders(suite.lines) == before, "a line was dialled anew"
    suite.figures["longest silence"] = others.check()


async def _eventually(check: Callable[[], bool], fault: str) -> None:
    """Wait until `check`, called in a thread, returns True; else fail with `fault`."""
    began = time.monotonic()
    while not await asyncio.to_thread(check):
        assert time.monotonic() - began < BLOCK_S, fault
        await asyncio.sleep(0.2)


def _has_none_of(uri: str, numbers: set[str]) -> bool:
    return not numbers & _ike_numbers(uri)


def _ike_numbers(uri: str) -> set[str]:
    return set(re.findall(r"uniqueid=(\d+) version=", _listed(uri)))


def _listed(uri: str) -> str:
    return sh(f"swanctl --list-sas --raw --uri {uri}")


async def a_nat_comes_between(suite: Suite) -> None:
    """Put NAT before two lines with a secret on one WAN, so that the server does not see its
    address.
    """
    hit = ("l2tp_d", "l2tp_e")
    others = suite.bystanders("l2tp_a", *hit)
    kept = {name: suite.lines[name] for name in hit}
    await _take_down(suite, hit)
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
    await _take_down(suite, hit)
    sh("ip netns exec isp nft delete table ip nat")
    await suite.apply(**kept)
    await suite.online(hit)
    suite.figures["longest silence"] = others.check()


async def _take_down(suite: Suite, names: Collection[str]) -> None:
    """Remove the lines, and wait until the server knows. Otherwise a packet of the server's could
    be the first of a flow that the NAT sees, and the flow would then pass it unchanged.
    """
    await suite.apply(**dict.fromkeys(names))
    server = f"unix://{network.RUN}/s2/vici"
    await _eventually(lambda: not _ike_numbers(server), "the server has not noticed")


async def charon_is_killed(suite: Suite) -> None:
    """Send kill -9 to the IKE daemon: its lines are dialled anew, and never in clear text."""
    hit = ("l2tp_c", "l2tp_d", "l2tp_e")
    others = suite.bystanders(*hit)
    since = time.monotonic()
    record = msgspec.json.decode((RUN_DIR / "charon" / "unit.json").read_bytes())
    suite.orphans = spis()
    os.kill(record["pid"], signal.SIGKILL)
    await asyncio.sleep(1)
    await suite.online(hit)
    for name in hit:
        back = suite.clients[name].cut_and_back(since)[1]
        suite.figures[f"{name} back"] = back
        assert back <= REDIAL_S, f"{name} was back after {back:.1f} s"
    suite.figures["longest silence"] = others.check()


def _all_returned(suite: Suite, hit: Collection[str], since: float, restored: float) -> None:
    """Assert that the clients, cut off after `since`, had answers soon after `restored`."""
    for name in hit:
        back = since + suite.clients[name].cut_and_back(since)[1] - restored
        suite.figures[f"{name} back"] = back
        assert back <= RETURN_S, f"{name} was back after {back:.1f} s"


async def a_path_is_cut(suite: Suite) -> None:
    """Drop packets between one WAN and one server: silence reveals it, and other lines go on."""
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


async def a_server_is_gone_for_a_minute(suite: Suite) -> None:
    """Stop a server, and use a wrong password and a wrong secret at the other one, then correct
    them.
    """
    hit = [name for name, place in PLACES.items() if place[0] == "s2"]
    since = time.monotonic()
    await asyncio.to_thread(network.stop_server, "s2")
    others = suite.bystanders(*hit, "l2tp_a", "l2tp_c", "pptp_b")

    good = {name: suite.lines[name] for name in ("l2tp_a", "l2tp_c", "pptp_b")}
    await suite.apply(
        l2tp_a=replaced(good["l2tp_a"], password="wrong"),
        l2tp_c=replaced(good["l2tp_c"], secret="wrong"),
        pptp_b=replaced(good["pptp_b"], password="wrong"),
    )
    for name, state in (
        ("l2tp_a", "wrong_password"),
        ("pptp_b", "wrong_password"),
        ("l2tp_c", "wrong_secret"),
    ):
        status = await suite.until(name, partial(has_state, state), ONLINE_S)
        assert status.next_attempt, status
        assert status.reason, status
        suite.figures[f"{name} {state} known"] = time.monotonic() - since
    corrected = time.monotonic()
    await suite.apply(**good)
    await suite.online(good)
    suite.figures["corrected and back"] = time.monotonic() - corrected

    for name in hit:
        status = await suite.until(name, lambda status: not status.is_online, BLOCK_S)
        assert status.state in ("lost", "unreachable", "dialing"), status
    await asyncio.sleep(max(0.0, 60 - (time.monotonic() - since)))
    await asyncio.to_thread(network.start_server, "s2", users("s2"))
    restored = time.monotonic()
    await suite.online(hit)
    _all_returned(suite, hit, since, restored)
    suite.figures["longest silence"] = others.check()


async def a_wan_is_gone(suite: Suite) -> None:
    """Lines without a fixed interface move to the other WAN; pinned ones wait, and leak nothing."""
    moving, pinned = ("l2tp_a", "l2tp_d"), ("l2tp_e",)
    others = suite.bystanders(*moving, *pinned)
    foreign = suite.taps["wan2"].by_address[WANS["wan1"]]
    began = time.monotonic()
    sh("ip link set wan1 down")
    await suite.until("l2tp_e", lambda status: status.state == "no_carrier", BLOCK_S)
    await suite.online(moving)
    _all_returned(suite, moving, began, began)
    assert "wan1" in (await suite.statuses())["l2tp_e"].reason
    assert suite.taps["wan2"].by_address[WANS["wan1"]] == foreign, "packets left by another WAN"
    sh("ip link set wan1 up; ip route add default via 10.1.0.1 dev wan1 metric 100")
    restored = time.monotonic()
    await suite.online(pinned)
    _all_returned(suite, pinned, began, restored)
    await suite.online(moving)
    suite.figures["longest silence"] = others.check()


async def a_wan_gets_another_address(suite: Suite) -> None:
    """Change a WAN's address with its link up. The old address goes first, as after an expired
    lease; then it goes last.
    """
    hit = ("l2tp_a", "l2tp_d", "l2tp_e")
    others = suite.bystanders(*hit)
    old, new = WANS["wan1"], "10.1.0.77"
    elsewhere = suite.taps["wan2"].by_address
    foreign = elsewhere[old], elsewhere[new]
    for what, gone, here in (("lapsed", old, new), ("renumbered", new, old)):
        before = leaders(hit)
        since = time.monotonic()
        network.readdress("wan1", gone, here, is_lapsed=what == "lapsed")
        for name in hit:
            while not is_dialled_anew(name, before[name]):
                assert time.monotonic() - since < BLOCK_S, f"{name} is still as it was"
                await asyncio.sleep(0.1)
        left = suite.taps["wan1"].by_address[gone]
        await suite.online(hit)
        assert suite.taps["wan1"].by_address[gone] == left, "the old address is still in use"
        for name in hit:
            cut, back = suite.clients[name].cut_and_back(since)
            suite.figures |= {f"{what}: {name} cut": cut, f"{what}: {name} back": back}
            assert back <= RETURN_S, f"{name} was back after {back:.1f} s"
    assert (elsewhere[old], elsewhere[new]) == foreign, "packets left by another WAN"
    suite.figures["longest silence"] = others.check()


def is_dialled_anew(name: str, process: int) -> bool:
    """True once another process dials the line. The line may already be online again."""
    with suppress(FileNotFoundError):  # no process at the moment
        return leader(name) != process
    return False


async def a_line_is_switched_off(suite: Suite) -> None:
    """It ends at once, its client gets an error, and no packet leaves by another egress."""
    names = ("l2tp_a", "l2tp_d", "pptp_b")
    others = suite.bystanders(*names)
    kept = {name: suite.lines[name] for name in names}
    folders = {name: RUN_DIR / "units" / name for name in names}
    began = time.monotonic()
    await suite.apply(**dict.fromkeys(names))
    suite.figures["blocked"] = time.monotonic() - began
    await asyncio.sleep(0.1)  # packets in flight
    since = time.monotonic()
    while any(folder.exists() for folder in folders.values()):
        assert time.monotonic() - began < 8, "a line that is off is still there"
        await asyncio.sleep(0.1)
    suite.figures["gone"] = time.monotonic() - began
    left = sh("ip -o link")
    for name, folder in folders.items():
        assert f"{name}:" not in left
        assert not members(folder)
    await asyncio.sleep(1)
    for name in names:
        assert not suite.clients[name].seen_since(since)
    await suite.apply(**kept)
    await suite.online(names)
    suite.figures["longest silence"] = others.check()


async def all_is_ended(suite: Suite) -> None:
    """Nothing of the lines is left."""
    began = time.monotonic()
    await suite.ask("close")
    suite.figures["ended"] = time.monotonic() - began
    assert "ppp" not in sh("ip -o link"), sh("ip -o link")
    assert not [path for path in (RUN_DIR / "units").iterdir() if members(path)]
    assert not members(RUN_DIR / "charon")
    assert not spis() - suite.orphans, "an IPsec association was left"
    await suite.end_router(signal.SIGTERM)


FAILURES: Final = (
    daemons_are_killed,
    an_association_is_lost,
    a_nat_comes_between,
    charon_is_killed,
    a_path_is_cut,
    keys_are_renewed,
    a_line_is_switched_off,
    a_wan_gets_another_address,
    a_wan_is_gone,
    a_server_is_gone_for_a_minute,
)
