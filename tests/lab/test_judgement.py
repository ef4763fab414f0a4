"""All sources give the same judgement of each client: each known cause is made, reported, and
removed.

Each is reported unasked, by an event and in the log. `problems`, *Why?* and the overview say the
same, and a packet that is sent has that fate.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from egressd.netd.health.dns_servers import PERIOD_S
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, LabSpec
from tests.lab.five import (
    all_is_well,
    all_tell,
    assert_all_tell,
    explained,
    heard,
    mended,
    overview,
)
from tests.support.device import SERVER, add_nodes, configure, eventually, send

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
TOLD_S: Final = 6.0
"""Seconds, well below `PERIOD_S`, after which a regular check would find each cause. ``pytest -s``
prints the duration of each: under 2 s on an idle machine.
"""
ASKED_S: Final = PERIOD_S + 8.0
"""Seconds to find a cause by queries: the interval, and the timeout of a silent server."""
TARGETS: Final = {1: "DIRECT", 2: "Interface:wan2", 3: "ss"}

Cause = Callable[[Lab, ExitStack], None]
"""Makes the cause; the callbacks on the stack remove it."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd()
        configure(lab, delay_url=f"{WEB}generate_204")
        add_nodes(lab)
        for client, target in TARGETS.items():
            send(lab, client, target)
        yield lab


def reaches(lab: Lab, client: int, url: str = WEB) -> bool:
    return lab.client(client).http(url, timeout=1).ok


def all_reach(lab: Lab) -> bool:
    return all(reaches(lab, client) for client in TARGETS)


def is_well(lab: Lab) -> bool:
    return all_is_well(lab, *TARGETS) and all_reach(lab)


def no_way(lab: Lab, mend: ExitStack) -> None:
    for wan in lab.wans:
        wan.lower()
        mend.callback(wan.restore)


def no_carrier(lab: Lab, mend: ExitStack) -> None:
    lab.wan(1).unplug()
    mend.callback(lab.wan(1).restore)


def wan_down(lab: Lab, mend: ExitStack) -> None:
    lab.wan(2).lower()
    mend.callback(lab.wan(2).restore)


def wan_gone(lab: Lab, mend: ExitStack) -> None:
    lab.wan(2).delete()
    mend.callback(lab.wan(2).recreate)


def no_gateway(lab: Lab, mend: ExitStack) -> None:
    lab.router.run("ip", "route", "del", "default", "dev", "wan2")
    mend.callback(lab.wan(2).restore)


def foreign_rule(lab: Lab, mend: ExitStack) -> None:
    rule = ("priority", "0", "iif", "lan0", "prohibit")
    lab.router.run("ip", "rule", "add", *rule)
    mend.callback(lab.router.run, "ip", "rule", "del", *rule)


def dead_workers(lab: Lab, mend: ExitStack) -> None:
    folder = lab.folder / "egressd" / "run" / "engine"
    for pid in lab.device.pids("egressd.netd.engine.worker"):
        os.kill(pid, signal.SIGKILL)
    away = folder.with_name("engine-away")
    folder.rename(away)
    mend.callback(away.rename, folder)
    mend.callback(shutil.rmtree, folder, ignore_errors=True)


def silent_gateway(lab: Lab, mend: ExitStack) -> None:
    lab.wan(2).silence()
    # Otherwise the kernel takes it for reachable for up to a minute.
    lab.router.run("ip", "neighbour", "flush", "dev", "wan2")
    mend.callback(lab.wan(2).speak)


def nothing_behind(lab: Lab, mend: ExitStack) -> None:
    """Let the gateway answer, but forward nothing."""
    wan = lab.wan(2)
    drop(lab, mend, f"iifname {wan.far} ip daddr != {wan.gateway} drop")


def no_resolver(lab: Lab, mend: ExitStack) -> None:
    drop(lab, mend, "meta l4proto { tcp, udp } th dport 53 drop")


def drop(lab: Lab, mend: ExitStack, rule: str) -> None:
    """Let the internet drop packets that match a rule."""
    chain = "type filter hook prerouting priority -300"
    table = f"table ip outage {{\nchain pre {{\n{chain}\n{rule}\n}}\n}}\n"
    lab.internet.run("nft", "-f", "-", stdin=table)
    mend.callback(lab.internet.run, "nft", "delete", "table", "ip", "outage")


@pytest.mark.parametrize(
    ("cause", "client", "words"),
    [
        (no_way, 1, "the device has no default route"),
        (no_carrier, 1, "the interface wan1 of the device's default route is down"),
        (wan_down, 2, "the interface wan2 is down"),
        (wan_gone, 2, "there is no interface wan2"),
        (no_gateway, 2, "the interface wan2 has no gateway"),
        (foreign_rule, 1, "another program's policy rules come before egressd's"),
        (foreign_rule, 3, "another program's policy rules come before egressd's"),
        (dead_workers, 3, "1 client of ss is blocked"),
        (silent_gateway, 2, "wan2"),
        (nothing_behind, 2, "nothing that is asked by wan2 answers"),
    ],
)
def test_each_cause_is_reported_by_all_sources_and_so_is_its_end(
    lab: Lab, cause: Cause, client: int, words: str
) -> None:
    eventually(lambda: is_well(lab), 30)
    with heard(lab) as five, ExitStack() as mend:
        # Only a client that sends is reported as blocked.
        flood = lab.client(client).flood(new_token(), rate=20)
        mend.callback(flood.stop)
        cause(lab, mend)
        event, logged = five.await_news(words, TOLD_S)
        print(f"{cause.__name__}: event after {event:.2f} s, log after {logged:.2f} s")
        # The reason for which workers do not start is known soon, and replaces the report that they
        # start.
        now = "" if cause is dead_workers else words
        eventually(lambda: all_tell(lab, client, TARGETS[client], now))
        assert not reaches(lab, client)
        if cause is silent_gateway:  # known once the kernel has given up
            five.await_news("of wan2 does not answer", ASKED_S)
        mend.close()
        mended(lab, five, lambda: is_well(lab), 40)


@pytest.fixture
def connections(lab: Lab, tmp_path: Path) -> Path:
    """Return a file for conntrack(8) of more connections than the table has room for."""
    room = int(lab.router.run("sysctl", "-n", "net.netfilter.nf_conntrack_max").stdout)
    file = tmp_path / "connections"
    with file.open("w") as lines:
        for number in range(room + 1000):
            host, port = divmod(number, 60_000)
            ours, theirs = f"10.99.0.{host + 1}", "192.0.2.77"
            lines.write(
                f"-A -p udp -s {ours} -d {theirs} --sport {port + 1024} --dport 77"
                f" --reply-src {theirs} --reply-dst {ours} --reply-port-src 77"
                f" --reply-port-dst {port + 1024} --timeout 600 --status ASSURED,SEEN_REPLY\n"
            )
    return file


def fill_table(lab: Lab, connections: Path) -> bool:
    """Add connections that the kernel may not forget early to the conntrack table, and return
    whether it is full. A busy machine may take only part of them at once.
    """
    lab.router.run("conntrack", "-R", str(connections), check=False)
    names = ("net.netfilter.nf_conntrack_count", "net.netfilter.nf_conntrack_max")
    tracked, limit = map(int, lab.router.run("sysctl", "-n", *names).stdout.split())
    return tracked >= limit


def test_a_full_connection_table_is_reported(lab: Lab, connections: Path) -> None:
    words = "the connection table is full"
    eventually(lambda: is_well(lab), 30)
    with heard(lab) as five:
        try:
            eventually(lambda: fill_table(lab, connections), 30)
            event, _ = five.await_news(words, TOLD_S)
            print(f"full table: event after {event:.2f} s")
            assert_all_tell(lab, 1, "DIRECT", words, ask=five.ask)
            overview = lab.api.ask("GET", "/ops/overview").body
            assert overview["tracked"] > 0.99 * overview["tracked_max"] > 0
            assert overview["workers"] > 0

            def is_refused() -> bool:
                # Each expired connection makes room for another.
                fill_table(lab, connections)
                return not reaches(lab, 1)

            eventually(is_refused, 20)
        finally:
            lab.router.run("conntrack", "-F")
        mended(lab, five, lambda: is_well(lab), 40)


def test_without_a_resolver_names_are_blocked_and_addresses_are_not(lab: Lab) -> None:
    words = "no resolver answers directly"
    eventually(lambda: is_well(lab), 30)
    named, resolver = "http://www.example.com/", RESOLVERS["google"]
    assert lab.client(1).http(named, resolver=resolver).ok
    with heard(lab) as five, ExitStack() as mend:
        no_resolver(lab, mend)
        pool = mend.enter_context(ThreadPoolExecutor())
        pool.submit(lab.client(1).http, named, resolver=resolver, timeout=3)
        event, _ = five.await_news(words, TOLD_S)
        print(f"no resolver: event after {event:.2f} s")
        assert_all_tell(lab, 1, "DIRECT", words, destination="www.example.com")
        assert not lab.client(1).http(named, resolver=resolver, timeout=1).ok
        assert not explained(lab, 1)["is_blocked"]
        assert reaches(lab, 1)
        mend.close()
        mended(lab, five, lambda: is_well(lab), 40)


def test_a_dead_node_is_reported_by_name_once_a_client_uses_it(lab: Lab) -> None:
    eventually(lambda: is_well(lab), 30)
    node = lab.nodes["ss"]
    with heard(lab) as five:
        node.program.kill()
        try:
            assert not reaches(lab, 3)
            event, _ = five.await_news("1 client of ss is blocked", 7.0)
            print(f"dead node: event after {event:.2f} s")
            assert_all_tell(lab, 3, "ss", "its node fails: connection refused")
            failure = {"topic": "node", "subject": "ss", "text": "ss fails: connection refused"}
            assert any(failure.items() <= each.items() for each in five.events)
            assert '"key": "node:' in five.logged()
        finally:
            lab.start_node(node)
        mended(lab, five, lambda: is_well(lab), 40)
        assert any(each["text"] == "ss answers again" for each in five.events)


def test_a_group_with_dead_nodes_only_is_reported(lab: Lab) -> None:
    eventually(lambda: is_well(lab), 30)
    nodes = [lab.add_node("socks5", f"g{number}") for number in (1, 2)]
    for node in nodes:
        lab.api.post("/nodes", node.draft("all"))
    send(lab, 3, "Group_all")
    try:
        eventually(lambda: is_well(lab), 30)
        with heard(lab) as five:
            for node in nodes:
                node.program.kill()
            assert not reaches(lab, 3)
            event, _ = five.await_news("1 client of Group_all is blocked", 10.0)
            print(f"dead group: event after {event:.2f} s")
            assert_all_tell(lab, 3, "Group_all", "all of its nodes fail")
            for node in nodes:
                lab.start_node(node)
            mended(lab, five, lambda: is_well(lab), 40)
    finally:
        send(lab, 3, "ss")


def test_a_foreign_firewall_is_reported_as_a_doubt_by_all_sources(lab: Lab) -> None:
    words = "another program's firewall drops"
    eventually(lambda: is_well(lab), 30)
    with heard(lab) as five:
        chain = "{ type filter hook forward priority 0; policy drop; }"
        lab.router.run("nft", "add", "table", "ip", "filter")
        try:
            lab.router.run("nft", "add", "chain", "ip", "filter", "FORWARD", chain)
            event, _ = five.await_news(words, TOLD_S)
            print(f"firewall: event after {event:.2f} s")
            assert any(words in problem for problem in overview(lab)["problems"])
            (doubt,) = explained(lab, 1)["doubts"]
            assert words in doubt
            assert not reaches(lab, 1)
        finally:
            lab.router.run("nft", "delete", "table", "ip", "filter")
        eventually(lambda: is_well(lab), 10)
        five.await_news("over: another program's firewall", 10)


FOUND: Final[dict[str, dict[str, object]]] = {"lan": {"interfaces": []}, "wan": {"interfaces": []}}


@pytest.fixture
def bare(namespaces: None) -> Iterator[Lab]:
    """Yield a router without LAN and WAN, whose roles are detected. It can still reach itself."""
    with Lab(LabSpec(nodes=())) as lab:
        lab.router.run("ip", "address", "flush", "dev", "lan0", "scope", "global")
        lab.router.run("ip", "address", "add", f"{LAN_ADDRESS}/32", "dev", "lo")
        for wan in lab.wans:
            wan.lower()
        lab.start_egressd(FOUND)
        yield lab


def test_without_lan_and_wan_the_missing_settings_are_reported(bare: Lab) -> None:
    send(bare, 1, "DIRECT")
    seen = overview(bare)
    assert any("set [lan] interfaces" in problem for problem in seen["problems"])
    assert any("set [wan] interfaces" in problem for problem in seen["problems"])
    assert_all_tell(bare, 1, "DIRECT", "there is no LAN")
    assert "over:" not in bare.device.program.log.read_text()
    with heard(bare) as five:
        bare.router.run("ip", "address", "del", f"{LAN_ADDRESS}/32", "dev", "lo")
        bare.router.run("ip", "address", "add", f"{LAN_ADDRESS}/24", "dev", "lan0")
        five.await_news("over: no LAN was found", 5)
        assert_all_tell(bare, 1, "DIRECT", "the device has no default route")
        for wan in bare.wans:
            wan.restore()
        five.await_news("over: no WAN was found", 5)
        mended(bare, five, lambda: all_is_well(bare, 1) and reaches(bare, 1), 20)


def test_the_reason_why_netd_cannot_restart_is_reported(lab: Lab) -> None:
    eventually(lambda: is_well(lab), 30)
    held = lab.folder / "egressd" / "run" / "netd.sock"
    with heard(lab) as five:
        (pid,) = lab.device.pids("egressd.app netd")
        held.unlink()
        held.mkdir()  # the place of its socket
        (held / "in the way").touch()
        os.kill(pid, signal.SIGKILL)
        five.await_news("talk to netd: it", 5)
        assert any("talk to netd" in problem for problem in overview(lab)["problems"])
        shutil.rmtree(held)
        eventually(lambda: is_well(lab), 60)
