"""The first scenarios: lines while only netd itself fails."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from typing import Final

from egressd.model.messages import RuleCount
from egressd.planner.registry import LINE_PORTS
from tests.support.known_flows import passed_here
from tests.vm.inside import clock, network
from tests.vm.inside.netns import sh
from tests.vm.inside.network import DNS, PASSWORD, SECRET, SERVERS, WANS
from tests.vm.inside.suite import (
    BLOCK_S,
    ONLINE_S,
    PLACES,
    RUN_DIR,
    Suite,
    leaders,
    replaced,
    users,
)


async def the_taps_see(suite: Suite) -> None:
    """The positive control: the taps see forbidden packets.

    It runs before the router is started, which would drop them.
    """
    for wan, address in WANS.items():
        for port, to in ((LINE_PORTS.start, (SERVERS["s1"], 1701)), (0, (network.WEB, 9))):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sent:
                sent.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, wan.encode())
                sent.bind((address, port))
                sent.sendto(b"x", to)
    began = time.monotonic()
    while not all(tap.bare and tap.clear for tap in suite.taps.values()):
        if time.monotonic() - began > BLOCK_S:
            break
        await asyncio.sleep(0.05)
    for wan, tap in suite.taps.items():
        assert tap.bare, f"the tap on {wan} is blind for clients' packets"
        assert tap.clear, f"the tap on {wan} is blind for clear L2TP"
        tap.bare.clear()
        tap.clear.clear()


async def all_come_online(suite: Suite) -> None:
    """Dial eight lines at once; the web server sees each client with its own line's address."""
    began = time.monotonic()
    with clock.steady():  # the daemons are read from the host's files
        await suite.apply()
        for name in suite.lines:
            await suite.until(name, lambda status: status.is_online, ONLINE_S)
            suite.figures[f"{name} online after"] = time.monotonic() - began
        await suite.online()
    since = time.monotonic()
    await asyncio.sleep(1.5)
    statuses = await suite.statuses()
    resolvers = (await suite.ask("status"))["resolvers"]
    for name, line in suite.lines.items():
        server = PLACES[name][0]
        expected = users(server)[name]
        assert statuses[name].ip == expected, f"{name}: {statuses[name]}"
        assert suite.clients[name].seen_since(since) == {expected}, name
        assert resolvers[name] == [DNS[server]], f"{name}: {resolvers[name]}"
        assert line.password not in repr(statuses[name])


async def known_flows_take_the_fast_path(suite: Suite) -> None:
    """Packets of each line's client bypass the whole stack, up and down."""
    addresses = {name: client.address for name, client in suite.clients.items()}
    before = {name: passed_here(address) for name, address in addresses.items()}
    began = time.monotonic()
    for name, address in addresses.items():
        async with asyncio.timeout(ONLINE_S):
            while not _has_grown(before[name], passed_here(address)):  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.1)
    suite.figures["all after"] = time.monotonic() - began


def _has_grown(before: RuleCount, now: RuleCount) -> bool:
    return now.up_packets > before.up_packets + 5 and now.down_packets > before.down_packets + 5


async def secrets_stay_secret(suite: Suite) -> None:
    """No command line, environment, log or file that others may read has a secret."""
    wanted = [text.encode() for text in (PASSWORD, SECRET)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            for file in ("cmdline", "environ"):
                try:
                    content = (entry / file).read_bytes()
                except OSError:
                    continue
                assert not any(secret in content for secret in wanted), f"{entry}/{file}"
    for path in RUN_DIR.rglob("*"):
        mode = path.lstat().st_mode & 0o777
        if path.is_dir():
            assert mode & 0o077 == 0, f"{path} is open to others"
        if path.is_file() and path.name != "options":
            content = path.read_bytes()
            assert not any(secret in content for secret in wanted), path
    options = list(RUN_DIR.rglob("options"))
    assert len(options) == len(suite.lines)
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in options)


async def edits_that_daemons_do_not_see(suite: Suite) -> None:
    """A comment or DNS edit dials no line."""
    others = suite.bystanders()
    before = leaders(suite.lines)
    await suite.apply(
        l2tp_a=replaced(suite.lines["l2tp_a"], comment="new"),
        pptp_a=replaced(suite.lines["pptp_a"], dns_profile="custom", dns_servers=("1.1.1.1",)),
    )
    await asyncio.sleep(1)
    assert leaders(suite.lines) == before
    suite.figures["longest silence"] = others.check()


async def a_rename_follows(suite: Suite) -> None:
    """A renamed line comes back under its new name, and others are not affected."""
    others = suite.bystanders("l2tp_f")
    began = time.monotonic()
    line, client = suite.lines["l2tp_f"], suite.clients.pop("l2tp_f")
    suite.clients["l2tp_new_name_x"] = client
    await suite.apply(l2tp_f=None, l2tp_new_name_x=replaced(line, name="l2tp_new_name_x"))
    await suite.online(["l2tp_new_name_x"])
    assert "l2tp_f:" not in sh("ip -o link"), "the old name is still there"
    suite.figures["back"] = time.monotonic() - began
    suite.figures["longest silence"] = others.check()
    suite.clients["l2tp_f"] = suite.clients.pop("l2tp_new_name_x")
    await suite.apply(l2tp_new_name_x=None, l2tp_f=line)
    await suite.online(["l2tp_f"])


async def netd_is_killed(suite: Suite) -> None:
    """Send kill -9 to the supervisor: lines go on, and the next supervisor takes them over
    unchanged.
    """
    others = suite.bystanders()
    before = leaders(suite.lines)
    await suite.end_router(signal.SIGKILL)
    await asyncio.sleep(2)
    await suite.start_router()
    for name in suite.lines:
        await suite.until(name, lambda status: status.is_online, 3)
    assert leaders(suite.lines) == before, "a line was dialled anew"
    for _ in range(30):  # it reports a line first, and then reads its peer's resolvers
        if (await suite.ask("status"))["resolvers"].keys() == suite.lines.keys():
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("a line's resolver is not known again")
    await suite.apply()
    assert leaders(suite.lines) == before, "a line was dialled anew"
    suite.figures["longest silence"] = others.check()


async def netd_is_replaced(suite: Suite) -> None:
    """Release and start again, with one line changed in between."""
    others = suite.bystanders("l2tp_b")
    before = leaders(suite.lines)
    await suite.ask("release")
    await suite.end_router(signal.SIGTERM)
    await suite.start_router()
    await suite.apply(l2tp_b=replaced(suite.lines["l2tp_b"], interface="wan1"))
    await suite.online(["l2tp_b"])
    after = leaders(suite.lines)
    assert {n for n in after if after[n] != before[n]} == {"l2tp_b"}
    suite.figures["longest silence"] = others.check()
    await suite.apply(l2tp_b=replaced(suite.lines["l2tp_b"], interface="wan2"))
    await suite.online(["l2tp_b"])


SCENARIOS: Final = (
    known_flows_take_the_fast_path,
    secrets_stay_secret,
    edits_that_daemons_do_not_see,
    a_rename_follows,
    netd_is_killed,
    netd_is_replaced,
)
