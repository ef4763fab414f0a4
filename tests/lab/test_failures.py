"""Killing parts of egressd, or its foundations, leaks nothing, and other clients do not notice.

P1 and P2 of the promises. Five clients flood while a part dies: two on nodes, one on DIRECT, one on
a WAN of its own, one rejected. Every upstream is captured, after a proof that the capture sees
packets.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from egressd_lab.capture import Capture
from egressd_lab.client import Flood
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, configure, eventually, kill, send

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
BACK_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5-udp", "ss"), clients=5)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        send(lab, 1, "ss")
        send(lab, 2, "Interface:wan2")
        send(lab, 3, "DIRECT")
        send(lab, 4, "REJECT")
        send(lab, 5, "socks5-udp")
        yield lab


class Watch:
    """Floods from every client, and captures of every upstream."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        self.lab = lab
        self.tokens = {number: new_token() for number in (1, 2, 3, 4, 5)}
        links = [wan.far for wan in lab.wans]
        links += [node.link for node in lab.nodes.values()]
        self.captures: dict[str, Capture] = {
            link: stack.enter_context(lab.internet.capture(link)) for link in links
        }
        for capture in self.captures.values():
            capture.prove()
        self.floods: list[Flood] = [
            lab.client(number).flood(token, kind=kind, rate=200)
            for number, token in self.tokens.items()
            for kind in ("udp", "icmp", "tcp")
        ]

    def stop(self) -> None:
        assert sum(flood.stop().sent for flood in self.floods) > 100

    def seen_on(self, client: int) -> set[str]:
        token = self.tokens[client]
        return {link for link, capture in self.captures.items() if capture.flows(token)}


@contextmanager
def watched(lab: Lab) -> Iterator[Watch]:
    """Run the block under floods, then check each client's packets against its rule."""
    with ExitStack() as stack:
        watch = Watch(lab, stack)
        yield watch
        watch.stop()
        # Packets to a node show their token if they are not encrypted.
        assert watch.seen_on(1) <= {lab.nodes["ss"].link}
        assert watch.seen_on(5) <= {lab.nodes["socks5-udp"].link, lab.wan(1).far}
        assert watch.seen_on(2) == {lab.wan(2).far}
        assert watch.seen_on(3) == {lab.wan(1).far}
        assert watch.seen_on(4) == set()


def reaches(lab: Lab, client: int) -> Callable[[], bool]:
    exits = {
        1: lab.nodes["ss"].address,
        2: lab.wan(2).address,
        3: lab.wan(1).address,
        5: lab.nodes["socks5-udp"].address,
    }
    return lambda: lab.client(client).http(WEB, timeout=0.4).seen == exits[client]


def assert_all_reach(lab: Lab) -> None:
    for client in (1, 2, 3, 5):
        eventually(reaches(lab, client), BACK_WITHIN_S)
    assert not lab.client(4).http(WEB).ok


def test_control_each_flood_is_captured_on_its_egress(lab: Lab) -> None:
    assert_all_reach(lab)
    with watched(lab) as watch:
        eventually(lambda: all(watch.seen_on(client) for client in (2, 3)))
        time.sleep(1)


@pytest.mark.parametrize("part", ["egressd.app netd", "egressd.app api"])
def test_traffic_continues_while_a_process_is_dead(lab: Lab, part: str) -> None:
    with watched(lab):
        connections = [lab.client(number).connect() for number in (1, 2, 3)]
        kill(lab, part)
        for connection in connections:
            assert connection.exchange("still here").ok
        assert_all_reach(lab)
        lab.device.wait_healthy()
        for connection in connections:
            assert connection.exchange("and after").ok
            connection.close()
        send(lab, 4, "REJECT")  # the API answers and netd applies


def test_p2_an_api_that_starts_without_netds_socket_reaches_netd(lab: Lab) -> None:
    (lab.folder / "egressd" / "run" / "netd.sock").unlink()
    with watched(lab):
        kill(lab, "egressd.app api")
        lab.device.wait_healthy(30)
        assert_all_reach(lab)


def test_traffic_continues_while_both_processes_and_their_keeper_are_dead(lab: Lab) -> None:
    with watched(lab):
        connection = lab.client(1).connect()
        lab.device.kill()
        assert connection.exchange("still here").ok
        assert_all_reach(lab)
        lab.device.start()
        assert connection.exchange("adopted").ok
        assert_all_reach(lab)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dead_or_stuck_worker_blocks_and_is_replaced(lab: Lab, number: signal.Signals) -> None:
    with watched(lab):
        bystanders = [lab.client(number).connect() for number in (2, 3)]
        kill(lab, "egressd.netd.engine.worker", number)
        eventually(reaches(lab, 1), BACK_WITHIN_S)
        for connection in bystanders:
            assert connection.exchange("undisturbed").ok
            connection.close()
        assert_all_reach(lab)


def test_an_instance_never_gets_a_port_still_mapped_to_another(lab: Lab) -> None:
    """Past fault: after netd was restarted, a worker's death sent clients of one node to another
    node for some milliseconds: a restarted instance could get the port of a lost one, to which the
    kernel still sent that node's clients.
    """
    with watched(lab):
        for _ in range(5):
            kill(lab, "egressd.app netd")  # the next one assigns ports from the first one again
            lab.device.wait_healthy()
            kill(lab, "egressd.netd.engine.worker")
            assert_all_reach(lab)


def test_flows_of_a_plan_that_was_not_stored_end_at_the_next_start(lab: Lab) -> None:
    """Past fault: flows of a plan that was taken back could look like flows of a later plan."""
    client = lab.client(3).address
    tuple_ = ("-p", "udp", "-s", client, "-d", "192.0.2.77", "--sport", "77", "--dport", "77")
    mark = ("--mark", "0x3fff0000")  # DIRECT, under the last epoch
    lab.router.run("conntrack", "-I", *tuple_, "--timeout", "600", *mark)
    kill(lab, "egressd.app netd")
    lab.device.wait_healthy()
    eventually(
        lambda: "192.0.2.77" not in lab.router.run("conntrack", "-L", "-s", client).stdout, 10
    )


def test_a_dead_node_blocks_its_clients_only(lab: Lab) -> None:
    node = lab.nodes["ss"]
    with watched(lab) as watch:
        bystanders = [lab.client(number).connect() for number in (2, 3)]
        node.program.kill()
        assert not lab.client(1).http(WEB, timeout=2).ok
        assert watch.seen_on(1) <= {node.link}
        for connection in bystanders:
            assert connection.exchange("undisturbed").ok
            connection.close()
        lab.start_node(node)
        eventually(reaches(lab, 1), BACK_WITHIN_S)


def test_a_node_that_does_not_answer_its_clients_is_reported(lab: Lab) -> None:
    configure(lab, delay_url=f"{WEB}generate_204")
    node = lab.nodes["ss"]

    def problem() -> str:
        flows = lab.api.ask("GET", "/ops/overview").body["flows"]
        return next(str(flow["problem"]) for flow in flows if flow["target"] == "ss")

    assert_all_reach(lab)
    eventually(lambda: problem() == "", 30)  # another test may have killed it, too
    node.program.kill()
    assert not lab.client(1).http(WEB, timeout=2).ok
    eventually(lambda: problem() == "its node fails: connection refused", 20)
    path = f"/ops/explain?client={lab.client(1).address}&destination={SERVER}"
    told = lab.api.ask("GET", path).body
    assert (told["is_blocked"], told["reason"], told["problem"]) == (True, problem(), problem())
    lab.start_node(node)
    eventually(lambda: problem() == "", 30)


def test_a_flushed_ruleset_leaks_nothing_and_is_restored_within_a_second(lab: Lab) -> None:
    with watched(lab):
        for _ in range(5):
            lab.router.run("nft", "flush", "ruleset")
            assert eventually(reaches(lab, 3), BACK_WITHIN_S) < 1
        assert_all_reach(lab)


def test_a_foreign_firewall_that_blocks_clients_is_reported(lab: Lab) -> None:
    def problems() -> list[str]:
        found: list[str] = lab.api.ask("GET", "/ops/overview").body["problems"]
        return [problem for problem in found if "firewall" in problem]

    chain = "{ type filter hook forward priority 0; policy drop; }"
    assert problems() == []
    lab.router.run("nft", "add", "table", "ip", "filter")
    try:
        lab.router.run("nft", "add", "chain", "ip", "filter", "FORWARD", chain)
        assert not lab.client(3).http(WEB, timeout=0.5).ok
        eventually(lambda: len(problems()) == 1)
        assert "lan0" in problems()[0]
        for side in ("iifname", "oifname"):
            lab.router.run("nft", "add", "rule", "ip", "filter", "FORWARD", side, "lan0", "accept")
        eventually(lambda: problems() == [])
        assert_all_reach(lab)
    finally:
        lab.router.run("nft", "delete", "table", "ip", "filter")


def test_flushed_policy_rules_leak_nothing_and_are_restored(lab: Lab) -> None:
    with watched(lab):
        for _ in range(3):
            lab.router.run("ip", "rule", "flush")
            lab.router.run("ip", "rule", "add", "priority", "32766", "lookup", "main")
            for client in (1, 2, 3):
                eventually(reaches(lab, client), BACK_WITHIN_S)


@pytest.mark.parametrize(
    ("setting", "foreign"),
    [("conf.wan2.rp_filter", "2"), ("conf.all.rp_filter", "1"), ("ip_forward", "0")],
)
def test_p2_a_kernel_setting_that_another_program_changes_is_restored(
    lab: Lab, setting: str, foreign: str
) -> None:
    def value() -> str:
        return lab.router.run("sysctl", "-n", f"net.ipv4.{setting}").stdout.strip()

    right = value()
    for _ in range(3):  # more than the slow check could heal in this time
        lab.router.run("sysctl", "-qw", f"net.ipv4.{setting}={foreign}")
        assert eventually(lambda: value() == right) < 2
        for client in (1, 2, 3):
            assert eventually(reaches(lab, client), BACK_WITHIN_S) < 2


def test_clients_of_a_wan_are_blocked_until_it_is_back(lab: Lab) -> None:
    wan = lab.wan(2)
    token = new_token()
    with lab.internet.capture(lab.wan(1).far) as capture:
        capture.prove()
        flood = lab.client(2).flood(token, rate=200)
        wan.delete()
        blocked = lab.client(2).http(WEB, timeout=2)
        assert not blocked.ok
        wan.recreate()
        eventually(reaches(lab, 2), BACK_WITHIN_S)
        wan.lower()
        assert not lab.client(2).http(WEB, timeout=2).ok
        wan.restore()
        eventually(reaches(lab, 2), BACK_WITHIN_S)
        assert flood.stop().sent > 100
        assert not capture.flows(token)


def test_stopping_the_service_blocks_all_clients(lab: Lab) -> None:
    with ExitStack() as stack:
        watch = Watch(lab, stack)
        eventually(reaches(lab, 2), BACK_WITHIN_S)
        lab.device.stop()
        for capture in watch.captures.values():
            capture.clear()
        for client in (1, 2, 3, 4):
            assert not lab.client(client).http(WEB, timeout=1).ok
        watch.stop()
        for client in watch.tokens:
            assert watch.seen_on(client) == set()
    lab.device.start()
    assert_all_reach(lab)


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.5])
def test_stopping_the_service_while_it_starts_blocks_all_clients(lab: Lab, seconds: float) -> None:
    lab.device.kill()
    assert_all_reach(lab)
    lab.device.program.start()
    eventually(lambda: bool(lab.device.pids("egressd.app netd")))
    time.sleep(seconds)
    lab.device.stop()
    for client in (1, 2, 3):
        assert not lab.client(client).http(WEB, timeout=1).ok
    assert not lab.device.pids("egressd.netd.engine.worker")
    lab.device.start()
    assert_all_reach(lab)


def between_two_netds(lab: Lab) -> None:
    """Kill netd so often that its next start is delayed."""
    for _ in range(5):
        eventually(lambda: bool(lab.device.pids("egressd.app netd")), 20)
        kill(lab, "egressd.app netd")
        eventually(lambda: not lab.device.pids("egressd.app netd"))


def frozen(lab: Lab) -> None:
    kill(lab, "egressd.app netd", signal.SIGSTOP)


def without_a_configuration(lab: Lab) -> None:
    lab.device.config.write_text("[lan2]\n")
    os.kill(lab.device.program.pid, signal.SIGHUP)
    eventually(lambda: "lan2" in lab.device.program.tail(), 20)


@pytest.mark.parametrize("befalls", [between_two_netds, frozen, without_a_configuration])
def test_p1_stopping_the_service_blocks_all_clients_if_netd_cannot(
    lab: Lab, befalls: Callable[[Lab], None]
) -> None:
    """Past fault: a stop blocked no client while netd was dead, frozen or unable to start, because
    netd alone blocked clients. Its keeper does so in its place (`egressd-block` under systemd).
    """
    config = lab.device.config.read_text()
    befalls(lab)
    try:
        assert_all_reach(lab)
        lab.device.stop()
    finally:
        lab.device.config.write_text(config)
    for client in (1, 2, 3, 5):
        assert not lab.client(client).http(WEB, timeout=1).ok
    assert not lab.device.pids("egressd.netd.engine.worker")
    lab.device.start()
    assert_all_reach(lab)


def test_an_unwritable_token_does_not_block_clients(lab: Lab) -> None:
    token = Path(lab.device.data) / "api" / "token"
    lab.device.stop()
    kept = token.read_bytes()
    token.unlink()
    token.with_name("token.new").mkdir()  # the place where a new one would be written
    lab.device.program.start()
    try:
        eventually(lambda: "exits after a fatal error" in lab.device.program.tail(), 30)
        assert_all_reach(lab)
    finally:
        lab.device.stop()
        token.with_name("token.new").rmdir()
        token.write_bytes(kept)
        shutil.chown(token, "egressd", "egressd")
    lab.device.start()
    assert_all_reach(lab)


def test_elements_flushed_while_netd_starts_are_restored(lab: Lab) -> None:
    """Past fault: elements that another program deleted while netd started were not restored,
    because netd listened for events only after it had loaded the table.
    """
    lab.device.stop()
    lab.device.program.start()

    def has_hosts() -> bool:
        listed = lab.router.run("nft", "list", "map", "inet", "egressd", "hosts").stdout
        return lab.client(2).address in listed

    eventually(has_hosts, 20)
    lab.router.run("nft", "flush", "map", "inet", "egressd", "hosts")
    lab.device.wait_healthy()
    assert_all_reach(lab)


def test_p2_restoring_does_not_wait_for_an_engine_that_does_not_start(namespaces: None) -> None:
    """Past fault: a flush was repaired 10 s late while the engine did not start, because the repair
    waited for it.
    """
    with Lab(LabSpec(nodes=("ss",), clients=2)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        send(lab, 1, "ss")
        send(lab, 2, "DIRECT")
        is_healed = threading.Event()

        def let_none_live() -> None:
            while not is_healed.wait(0.02):
                for worker in lab.device.pids("engine.worker"):
                    with suppress(ProcessLookupError):
                        os.kill(worker, signal.SIGKILL)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(let_none_live)
            try:
                time.sleep(2)
                lab.router.run("nft", "flush", "ruleset")
                eventually(lambda: lab.client(2).http(WEB, timeout=0.4).ok, 3)
            finally:
                is_healed.set()
        eventually(lambda: lab.client(1).http(WEB, timeout=0.4).ok, 40)


def test_an_unreadable_database_blocks_all_clients(lab: Lab) -> None:
    database = Path(lab.device.data) / "api" / "state.db"
    lab.device.stop()
    kept = database.read_bytes()
    database.write_bytes(b"no database" + kept[11:])
    lab.device.program.start()
    try:
        eventually(lambda: "exits after a fatal error" in lab.device.program.tail(), 30)
        for client in (1, 2, 3):
            assert not lab.client(client).http(WEB, timeout=1).ok
    finally:
        lab.device.stop()
        database.write_bytes(kept)
    lab.device.start()
    assert_all_reach(lab)
