"""Two boxes with one configuration and shared addresses: one takes over from the other."""

from __future__ import annotations

import json
import os
import re
import signal
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median
from typing import Any

import pytest
from cryptography import x509

from egressd.model.errors import Failed
from egressd.model.pair import WORD_PORT
from egressd.netd.cluster.flows import CONFIGURATION, PORT
from egressd.netd.kernel.nft import Nft
from egressd.service.membership import TTL_S
from egressd_lab.client import Connection
from egressd_lab.device import TLS_PORT, Device, rule_body
from egressd_lab.host import Host
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, lan_address, wan_plans
from tests.support.browser import Browser
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.known_flows import passed_here
from tests.support.netns import JoinedNamespace
from tests.support.pair_chaos import CLIENTS, PairChaos
from tests.support.pair_flows import spread_flows
from tests.support.paired_lab import PairedLab, other, paired_lab

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
NOBODY = 3
ANSWERED_S = 1.0
"""Seconds after which a change that cannot be stored is refused, at the latest."""
CHANGES = 40
WRITES = 5000 if os.environ.get("EGRESSD_SITE") == "long" else 20
"""Changes that each box makes of one rule, while the other box does, and rules that each makes."""
FLOWS = 6000
FLOWS_RATE = 2000.0
CPU_MAX = 0.2
"""The part of a core that conntrackd may take for that rate; 0.07 on an idle machine."""
FAST_RATE = 500.0
FAST_SHARE = 0.98
"""The part of a flow's packets that take the fast path: all but the first ones."""
CHAOS_S = 12.0
SEED = 2826


@pytest.fixture(scope="module")
def made(namespaces: None) -> Iterator[PairedLab]:
    with paired_lab(clients=CLIENTS) as pair:
        add_nodes(pair.lab)
        yield pair


def put(pair: PairedLab, client: int, target: str) -> None:
    """Give a client a rule."""
    address = pair.lab.client(client).address
    pair.boxes[1].api.post("/rules", {"ip": address, "target_node": target})


def test_flows_outlive_the_loss_of_a_box(pair: PairedLab) -> None:
    lab = pair.lab
    put(pair, 1, "DIRECT")
    put(pair, 2, "Interface:wan2")
    clients = {1: pair.shared(1), 2: pair.shared(2)}
    for client, address in clients.items():
        eventually(lambda client=client, address=address: pair.seen(client) == address)  # type: ignore[misc]
    talking = {client: lab.client(client).connect(SERVER, 7) for client in clients}
    for client, connection in talking.items():
        assert connection.exchange("before").seen == clients[client]
    download = lab.client(1).download(f"{WEB}drip/3000", timeout=60)
    with lab.internet.capture("isp1") as one, lab.internet.capture("isp2") as two:
        for capture in (one, two):
            capture.prove()
            capture.clear()
        lab.topology.power(pair.active(), is_on=False)
        eventually(lambda: pair.seen(1) == clients[1], 30)
        for client, connection in talking.items():
            assert connection.exchange("after", 20).seen == clients[client]
        assert pair.seen(2) == clients[2]
        assert not pair.seen(NOBODY)
        received = download.progress().received
        eventually(lambda: download.progress().received > received)
        assert download.progress().seen == clients[1]
        assert pair.strangers(1, one) == []
        assert pair.strangers(2, two) == []


def test_a_flow_that_is_translated_for_another_wan_leaves_by_none(pair: PairedLab) -> None:
    """Past fault: the last check knew only of addresses that their own WAN has no more."""
    put(pair, 1, "Interface:wan1")
    client, router = pair.lab.client(1), pair.lab.routers[pair.active() - 1]
    eventually(lambda: pair.seen(1) == pair.shared(1))
    entry = ("-p", "udp", "-s", client.address, "-d", SERVER, "--sport", "5555", "--dport", "7")
    assert client.udp_echo("first", source_port=5555).seen == pair.shared(1)
    listed = router.run("conntrack", "-L", *entry).stdout
    (mark,) = re.findall(r"mark=(\d+)", listed)
    with pair.lab.internet.capture("isp1") as capture:
        capture.prove()
        capture.clear()
        for wan in (1, 2):  # the first one shows that such an entry is used
            router.run("conntrack", "-D", *entry)
            made = ("--src-nat", pair.shared(wan), "--mark", mark, "--timeout", "60")
            router.run("conntrack", "-I", *entry, *made)
            answer = client.udp_echo(f"by {wan}", source_port=5555, timeout=1)
            assert answer.seen == (pair.shared(1) if wan == 1 else "")
        assert pair.strangers(1, capture) == []


def test_connections_that_were_cut_stay_cut_after_a_takeover(pair: PairedLab) -> None:
    """Past fault: those that had been silent since they were closed by hand, or since their client
    was moved, went on by the other box.
    """
    lab = pair.lab
    for client in (1, 2):
        put(pair, client, f"Interface:wan{client}")
        eventually(lambda client=client: pair.seen(client) == pair.shared(client))  # type: ignore[misc]
    closed, moved = (lab.client(client).connect(SERVER, 7) for client in (1, 2))
    for connection in (closed, moved):
        assert connection.exchange("before").ok
    first = pair.active()
    second = other(first)
    addresses = [lab.client(client).address for client in (1, 2)]
    eventually(lambda: all(f"src={each} " in flows(pair, second) for each in addresses))
    answer = pair.boxes[first].api.ask("DELETE", f"/ops/connections?client={addresses[0]}")
    assert answer.body["closed"] > 0
    send(lab, 2, "Interface:wan1")
    eventually(
        lambda: not any(f"src={each} " in flows(pair, b) for each in addresses for b in pair.boxes)
    )
    with lab.internet.capture() as capture:
        lab.topology.power(first, is_on=False)
        eventually(lambda: pair.active() == second, 30)
        eventually(lambda: [pair.seen(client) for client in (1, 2)] == [pair.shared(1)] * 2)
        capture.prove(lab.client(1).connect(SERVER, 7).exchange)
        for connection in (closed, moved):
            token = new_token()
            assert connection.exchange(token).error == "ECONNRESET"
            assert not capture.flows(token)


def flows(pair: PairedLab, box: int) -> str:
    """Return the tracked flows of a box to the echo server."""
    listed = pair.lab.routers[box - 1].run("conntrack", "-L", "-p", "tcp", "--dport", "7")
    return listed.stdout


def test_a_box_with_a_wan_down_hands_over(pair: PairedLab) -> None:
    """It does not take over again when the cable is back."""
    lab = pair.lab
    put(pair, 1, "Interface:wan1")
    put(pair, 2, "Interface:wan2")
    clients = {1: pair.shared(1), 2: pair.shared(2)}
    for client, address in clients.items():
        eventually(lambda client=client, address=address: pair.seen(client) == address)  # type: ignore[misc]
    other_wan = lab.client(2).connect(SERVER, 7)
    assert other_wan.exchange("before").seen == clients[2]
    first = pair.active()
    second = other(first)
    lab.topology.plug_wan(first, 1, is_in=False)
    try:
        eventually(lambda: pair.seen(1) == clients[1], 30)
        assert pair.active() == second
        assert other_wan.exchange("after", 20).seen == clients[2]
    finally:
        lab.topology.plug_wan(first, 1, is_in=True)
    eventually(lambda: pair.roles() == {first: "standby", second: "active"}, 30)
    # With another link down here, neither box has more links than the other one.
    lab.topology.plug_wan(first, 2, is_in=False)
    lab.topology.plug_wan(second, 1, is_in=False)
    try:
        eventually(lambda: not pair.seen(1))
        eventually(lambda: pair.seen(2) == clients[2])
        assert pair.active() == second
    finally:
        lab.topology.plug_wan(first, 2, is_in=True)
        lab.topology.plug_wan(second, 1, is_in=True)


def test_a_wan_without_an_address_blocks_its_own_clients_alone(pair: PairedLab) -> None:
    """It has one on neither box: its DHCP server is silent, or its modem is off and
    systemd-networkd has taken the addresses. Past fault: neither box was active.
    """
    lab = pair.lab
    put(pair, 1, "Interface:wan1")
    put(pair, 2, "Interface:wan2")
    for client in (1, 2):
        eventually(lambda client=client: pair.seen(client) == pair.shared(client))  # type: ignore[misc]
    first = pair.active()
    second = other(first)
    try:
        lose_address(pair, first)
        eventually(lambda: pair.active() == second, 30)
        eventually(lambda: pair.roles() == {first: "standby", second: "active"}, 30)
        lose_address(pair, second)
        eventually(lambda: not pair.seen(1))
        eventually(lambda: pair.is_reported(second, "wan1 has no address of this box's own"))
        assert pair.active() == second
        assert pair.seen(2) == pair.shared(2)
    finally:
        for box in pair.boxes:
            lab.topology.raise_wan(wan_plans(lab.spec, box)[0])
    eventually(lambda: pair.seen(1) == pair.shared(1), 30)


def lose_address(pair: PairedLab, box: int) -> None:
    """Take its own address on the first WAN, and the routes by it, from a box."""
    plan = wan_plans(pair.lab.spec, box)[0]
    router = pair.lab.routers[box - 1]
    router.run("ip", "address", "delete", f"{plan.address}/{plan.prefix}", "dev", plan.interface)
    router.run("ip", "route", "flush", "dev", plan.interface)


def test_clients_of_nodes_notice_that_their_connections_are_gone(pair: PairedLab) -> None:
    lab = pair.lab
    put(pair, 1, "socks5")
    node = lab.nodes["socks5"].address
    eventually(lambda: pair.seen(1) == node)
    silent = lab.client(1).connect(SERVER, 7)
    assert silent.exchange("before").seen == node
    active = pair.active()
    eventually(lambda: SERVER in flows(pair, other(active)))
    lab.topology.power(active, is_on=False)
    eventually(lambda: silent.state() != "open", 30)
    eventually(lambda: pair.seen(1) == node, 30)


def test_a_box_that_stops_hands_over(pair: PairedLab) -> None:
    """By its own end, and with the way back."""
    lab = pair.lab
    put(pair, 1, "DIRECT")
    eventually(lambda: pair.seen(1) == pair.shared(1))
    connection = lab.client(1).connect(SERVER, 7)
    assert connection.exchange("before").seen == pair.shared(1)
    first = pair.active()
    second = other(first)
    pair.boxes[first].stop()
    assert connection.exchange("meanwhile").seen == pair.shared(1)
    eventually(lambda: pair.active() == second)
    assert pair.seen(1) == pair.shared(1)
    pair.boxes[first].start()
    eventually(lambda: pair.roles(first) == {first: "standby", second: "active"}, 30)
    pair.boxes[second].stop()
    eventually(lambda: pair.active() == first)
    assert connection.exchange("after").seen == pair.shared(1)


def test_a_frozen_box_uses_no_old_rule(pair: PairedLab) -> None:
    lab = pair.lab
    put(pair, 1, "DIRECT")
    eventually(lambda: pair.seen(1) == pair.shared(1))
    connection = lab.client(1).connect(SERVER, 7)
    connection.exchange("before")
    first = pair.active()
    second = other(first)
    with pair.frozen(first):
        eventually(lambda: pair.seen(1) == pair.shared(1), 30)
        api = pair.boxes[second].api
        (rule,) = api.get("/rules")["data"]
        api.put(f"/rules/{rule['id']}", {**rule_body(rule), "target_node": "REJECT"})
        with lab.internet.capture("isp1") as capture:
            capture.prove()
            capture.clear()
            for _ in range(20):
                assert not pair.seen(1)
            assert connection.exchange("after", 1).error
            sources = {flow.source for flow in capture.flows(outgoing=False, protocol="tcp")}
            assert pair.shared(1) not in sources
    eventually(lambda: pair.roles(second) == {first: "standby", second: "active"}, 30)
    assert not pair.seen(1)


def test_another_netd_takes_the_daemons_over(pair: PairedLab) -> None:
    """The other box is active meanwhile if that takes longer than keepalived waits for netd."""
    first = pair.active()
    box = pair.boxes[first]
    running = [box.pids(name) for name in ("keepalived", "conntrackd")]
    (netd,) = box.pids("egressd.app netd")
    os.kill(netd, signal.SIGKILL)
    eventually(lambda: box.pids("egressd.app netd") not in ([], [netd]), 30)
    box.wait_healthy()
    eventually(lambda: sorted(pair.roles().values()) == ["active", "standby"], 30)
    eventually(lambda: pair.roles()[pair.active() or 1] == "active", 30)
    assert [box.pids(name) for name in ("keepalived", "conntrackd")] == running


def test_a_keepalived_that_dies_leaves_no_address(pair: PairedLab) -> None:
    first = pair.active()
    second = other(first)
    pair.signal(first, signal.SIGKILL, "keepalived")
    eventually(lambda: pair.active() == second, 30)
    eventually(lambda: pair.roles() == {first: "standby", second: "active"}, 30)
    assert pair.is_reported(first, "keepalived has ended")


def test_a_box_that_leaves_its_pair_has_no_shared_address(pair: PairedLab) -> None:
    first = pair.active()
    box = pair.boxes[first]
    before = box.config.read_text()
    start, end = before.index("[pair]"), before.index("[cluster]")
    without = before[:start] + (before[end:] if end > start else "")
    try:
        box.config.write_text(without)
        pair.signal(first, signal.SIGKILL, "egressd.app netd")
        eventually(lambda: pair.active() == other(first), 30)
        eventually(lambda: not box.pids("keepalived") and not box.pids("conntrackd"))
    finally:
        box.config.write_text(before)
        pair.signal(first, signal.SIGKILL, "egressd.app netd")
        eventually(lambda: bool(box.pids("keepalived")), 30)


@pytest.mark.parametrize("part", ["egressd.app api", "egressd.app netd"])
def test_a_box_with_a_frozen_process_hands_over(pair: PairedLab, part: str) -> None:
    """Without the api its lease ends; without netd nothing says so in keepalived's track file."""
    put(pair, 1, "DIRECT")
    eventually(lambda: pair.seen(1) == pair.shared(1))
    first = pair.active()
    second = other(first)
    (pid,) = pair.boxes[first].pids(part)
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: pair.active() == second, 30)
        eventually(lambda: pair.seen(1) == pair.shared(1))
    finally:
        with suppress(ProcessLookupError):  # its watchdog may have ended it by now
            os.kill(pid, signal.SIGCONT)
    eventually(lambda: pair.roles(second) == {first: "standby", second: "active"}, 30)


def test_a_pair_serves_clients_without_its_database(pair: PairedLab) -> None:
    """Also after a takeover, when the other box is silent. Nothing can be changed meanwhile."""
    put(pair, 1, "DIRECT")
    eventually(lambda: pair.seen(1) == pair.shared(1))
    connection = pair.lab.client(1).connect(SERVER, 7)
    first = pair.active()
    second = other(first)
    pair.database.kill()
    try:
        outlives_a_lease(pair, connection)
        for box in pair.boxes:
            assert pair.is_reported(box, "neither box of the pair reaches the site's database")
            refuses_within_s(pair.boxes[box], ANSWERED_S)
        pair.lab.topology.power(first, is_on=False)
        eventually(lambda: pair.seen(1) == pair.shared(1), 30)
        outlives_a_lease(pair, connection)
        assert pair.is_reported(second, "nor the other box of the pair can be reached")
        eventually(lambda: pair.is_reported(second, "does not answer on sync0"), 30)
        pair.boxes[first].stop()
        pair.lab.topology.power(first, is_on=True)
        pair.boxes[first].start()
        # It has the same configuration, as the other box says.
        eventually(lambda: pair.is_reported(first, "neither box of the pair"), 30)
    finally:
        pair.database.start()
    (rule,) = pair.boxes[second].api.get("/rules")["data"]
    eventually(lambda: is_accepted(pair, second, rule), TTL_S + 2)
    eventually(lambda: set(pair.roles(second).values()) == {"active", "standby"}, 30)
    eventually(lambda: not pair.seen(1))
    eventually(lambda: pair.problems(second) == [], 30)


def test_a_pair_goes_on_with_a_database_that_is_read_only(pair: PairedLab) -> None:
    put(pair, 1, "DIRECT")
    eventually(lambda: pair.seen(1) == pair.shared(1))
    connection = pair.lab.client(1).connect(SERVER, 7)
    rules = pair.boxes[1].api.get("/rules")["data"]
    with pair.database.configured("default_transaction_read_only", "on"):
        eventually(lambda: pair.is_reported(1, "neither box of the pair"), 30)
        outlives_a_lease(pair, connection)
        for box in pair.boxes.values():
            assert box.api.get("/rules")["data"] == rules
            refuses_within_s(box, ANSWERED_S)
    eventually(lambda: is_accepted(pair, 2, rules[0]), TTL_S + 2)
    eventually(lambda: not pair.seen(1))


def refuses_within_s(box: Device, limit_s: float) -> None:
    """Check that a change is answered with 500 within so many seconds."""
    began = time.monotonic()
    rule = {"ip": "10.77.0.250", "target_node": "DIRECT"}
    assert box.api.ask("POST", "/svc/api/v1/rules", rule).status == 500
    assert time.monotonic() - began < limit_s


def test_a_commit_that_one_server_alone_has_is_not_answered_with_200(pair: PairedLab) -> None:
    """The database waits for a standby that is gone, and its administrator ends that wait."""
    put(pair, 1, "DIRECT")
    active = pair.active()
    (rule,) = pair.boxes[active].api.get("/rules")["data"]
    with (
        pair.database.configured("synchronous_standby_names", "absent"),
        ThreadPoolExecutor(1) as threads,
    ):
        changing = threads.submit(is_accepted, pair, active, rule)
        ending = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event"
        eventually(lambda: ["t"] in pair.database.query(f"{ending} = 'SyncRep'"))
        assert not changing.result()
    eventually(lambda: is_accepted(pair, other(active), rule), 30)
    targets = {box.api.get("/rules")["data"][0]["target_node"] for box in pair.boxes.values()}
    assert targets == {"REJECT"}


def test_a_change_is_in_both_kernels_when_it_is_answered(pair: PairedLab) -> None:
    put(pair, 1, "DIRECT")
    address = pair.lab.client(1).address
    (rule,) = pair.boxes[1].api.get("/rules")["data"]
    took, marks = [], set()
    for number in range(CHANGES):
        box, target = 1 + number % 2, ("Interface:wan2", "DIRECT")[number // 2 % 2]
        began = time.monotonic()
        body = {**rule_body(rule), "target_node": target}
        pair.boxes[box].api.put(f"/rules/{rule['id']}", body)
        took.append(time.monotonic() - began)
        found = [mark_of(pair, each, address) for each in (other(box), box)]
        assert found[0] == found[1]
        marks.add((target, found[0]))
    assert len(marks) == 2
    print(f"a change took {1000 * median(took):.1f} ms, at most {1000 * max(took):.0f}")


def test_two_writers_at_once_leave_both_kernels_equal(pair: PairedLab) -> None:
    put(pair, 1, "DIRECT")
    (rule,) = pair.boxes[1].api.get("/rules")["data"]
    before = revisions(pair)[0]

    def write(box: int) -> None:
        api = pair.boxes[box].api
        for number in range(WRITES):
            target = ("Interface:wan1", "Interface:wan2", "DIRECT", "REJECT")[(box + number) % 4]
            change = {"target_node": target, "comment": f"{number} of {box}"}
            api.put(f"/rules/{rule['id']}", {**rule_body(rule), **change})
            own = {"ip": f"10.{180 + box}.{number >> 8}.{number & 255}", "target_node": target}
            assert api.post("/rules", own)

    with ThreadPoolExecutor(len(pair.boxes)) as threads:
        for written in [threads.submit(write, box) for box in pair.boxes]:
            written.result()
    made = 2 * len(pair.boxes) * WRITES
    eventually(lambda: revisions(pair) == [before + made] * len(pair.boxes))
    one, two = (box.api.get("/rules")["data"] for box in pair.boxes.values())
    assert len(one) == 1 + len(pair.boxes) * WRITES
    assert one == two
    hosts = [sorted(re.findall(r"[\d.]+ : 0x\w+", listed(router))) for router in pair.lab.routers]
    assert len(hosts[0]) == len(one)
    assert hosts[0] == hosts[1]


def listed(router: Host) -> str:
    return router.run("nft", "list", "map", "inet", "egressd", "hosts").stdout


def revisions(pair: PairedLab) -> list[int]:
    """Return the revision that each box has in force, as the first one knows it."""
    return [each["revision"] for each in pair.api(1, "/ops/members")]


def mark_of(pair: PairedLab, box: int, address: str) -> str | None:
    """Return the mark of a client in a box's kernel."""

    def read() -> str | None:
        nft = Nft()
        while True:
            try:
                return nft.value("hosts", address)
            except Failed as error:  # the kernel's table changed meanwhile
                if "Interrupted" not in error.cause:
                    raise

    with JoinedNamespace(pair.lab.routers[box - 1].namespace) as router:
        return router.run(read)


def test_new_flows_are_in_the_kernel_of_the_standby_within_a_second(pair: PairedLab) -> None:
    put(pair, 1, "DIRECT")
    eventually(lambda: pair.seen(1) == pair.shared(1))
    found = spread_flows(pair, FLOWS, FLOWS_RATE)
    print(found)
    assert found.active >= FLOWS
    assert found.late_s < 1
    assert max(found.cpu.values()) < CPU_MAX


@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan2"])
def test_known_flows_with_a_shared_address_take_the_fast_path(pair: PairedLab, target: str) -> None:
    put(pair, 1, target)
    client = pair.lab.client(1)
    eventually(lambda: pair.seen(1) == pair.shared(2 if "2" in target else 1))
    with JoinedNamespace(pair.lab.routers[pair.active() - 1].namespace) as router:
        before = router.run(passed_here, client.address).up_packets
        flood = client.flood(new_token(), rate=FAST_RATE)
        eventually(lambda: flood.report().sent > FAST_RATE)
        sent = flood.stop().sent
        fast = router.run(passed_here, client.address).up_packets - before
    assert fast >= FAST_SHARE * sent


def outlives_a_lease(pair: PairedLab, connection: Connection) -> None:
    """Check that a client is served until each lease from before has ended."""
    end = time.monotonic() + TTL_S + 1
    while time.monotonic() < end:
        assert connection.exchange("on", 20).seen == pair.shared(1)
        assert pair.seen(1) == pair.shared(1)


def is_accepted(pair: PairedLab, box: int, rule: dict[str, Any]) -> bool:
    """Have a rule's client blocked; return True if that is done."""
    api = pair.boxes[box].api
    try:
        api.put(f"/rules/{rule['id']}", {**rule_body(rule), "target_node": "REJECT"})
    except Failed:
        return False
    return True


def test_conntrackd_follows_the_addresses_of_its_box(pair: PairedLab) -> None:
    router, address = pair.lab.routers[0], "192.168.250.1"
    file = pair.boxes[1].data.parent / "run" / "pair" / "flows" / CONFIGURATION

    def is_own() -> bool | None:
        with suppress(FileNotFoundError):  # it is being replaced
            return address in file.read_text() if pair.boxes[1].pids("conntrackd") else None
        return None

    router.run("ip", "address", "add", f"{address}/24", "dev", "sync0")
    eventually(lambda: is_own() is True, 30)
    router.run("ip", "address", "delete", f"{address}/24", "dev", "sync0")
    eventually(lambda: is_own() is False, 30)


def certificate(pair: PairedLab, address: str) -> bytes:
    """Return the certificate that a client of the LAN is shown at an address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        pair.lab.client(1).host.socket(address, TLS_PORT) as plain,
        context.wrap_socket(plain, server_hostname=address) as encrypted,
    ):
        found = encrypted.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_a_browser_sees_one_certificate_at_all_addresses(pair: PairedLab) -> None:
    """It has the shared address, and both boxes' own ones."""
    spec = pair.lab.spec
    addresses = {str(LAN_ADDRESS), *(str(lan_address(spec, box)) for box in (1, 2))}

    def is_one() -> bool:
        shown = {certificate(pair, address) for address in addresses}
        names = x509.load_der_x509_certificate(shown.pop()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        known = names.value.get_values_for_type(x509.IPAddress)
        return not shown and addresses <= {str(address) for address in known}

    eventually(is_one, 30)


def test_a_browser_stays_logged_in_over_a_takeover(pair: PairedLab) -> None:
    """At the shared address, with the certificate that it has."""
    test_a_browser_sees_one_certificate_at_all_addresses(pair)
    first = pair.active()
    browser = Browser(pair.lab, 1)
    code = pair.boxes[first].run("console", "code").strip()
    body = {"code": code, "password": "correct horse battery"}
    status, answer = browser.send("POST", "/console/setup", body)
    assert status == 200, answer
    sessions = "SELECT name FROM shared_access WHERE name LIKE 'session/%'"
    eventually(lambda: len(pair.database.query(sessions)) == 1)
    pair.boxes[first].stop()
    eventually(lambda: pair.active() == other(first), 30)
    eventually(lambda: browser.send("GET", "/console/session")[1]["state"] == "open")
    status, _ = browser.send("POST", "/console/logout")
    assert status == 200
    eventually(lambda: pair.database.query(sessions) == [])


def test_a_token_that_is_reset_counts_on_both_boxes(pair: PairedLab) -> None:
    former = pair.boxes[1].api.token
    pair.boxes[2].run("token", "reset")
    pair.wait_for_one_token()
    assert pair.boxes[1].api.token != former
    for box in pair.boxes.values():
        assert box.api.get("/rules")["data"] == []


def test_a_scoped_token_counts_on_both_boxes_until_it_is_deleted(pair: PairedLab) -> None:
    made = json.loads(pair.boxes[1].run("tokens", "create", "grafana", "read", "--json"))
    bearer = {"Authorization": f"Bearer {made['token']}"}

    def statuses(method: str, path: str) -> list[int]:
        return [box.api.ask(method, path, headers=bearer).status for box in pair.boxes.values()]

    eventually(lambda: statuses("GET", "/ops/overview") == [200, 200], 15)
    assert statuses("POST", "/svc/api/v1/rules") == [403, 403]
    assert made["token"] not in str(pair.database.query("SELECT * FROM shared_access"))
    pair.boxes[2].run("tokens", "delete", "grafana")
    eventually(lambda: statuses("GET", "/ops/overview") == [401, 401], 15)


def test_the_sync_link_is_guarded_again_after_a_flush(pair: PairedLab) -> None:
    router = pair.lab.routers[0]
    router.run("nft", "flush", "ruleset")
    eventually(
        lambda: (
            f"udp dport {{ {PORT}, {WORD_PORT} }} drop"
            in router.run("nft", "list", "ruleset").stdout
        )
    )


def test_random_failures_leak_nothing(pair: PairedLab) -> None:
    PairChaos(pair, seconds=CHAOS_S, seed=SEED).run()
