"""The fast path of known flows on the real kernel: packets arrive whole, other flows avoid it."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from operator import add
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import astuple

from egressd.model.errors import Failed
from egressd.model.messages import RuleCount
from egressd.model.plan import Plan
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import FastPath, maps, tracking
from egressd.netd.kernel.fast_path import path as path_module
from egressd.netd.kernel.fast_path.elements import COUNT, address_key
from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.packets import TCP, TCP_RST, ipv4, new_token, tcp
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, clear, elements, eventually, kill, limit, send
from tests.support.fast_path import (
    CLIENT,
    ask_again,
    counted,
    hooked,
    is_cut,
    lan_and_wan,
    passed,
    takes_it,
    talk,
)
from tests.support.known_flows import programs_here
from tests.support.leaks import watched
from tests.support.netns import JoinedNamespace, Namespace

pytestmark = pytest.mark.lab

MIB = 1 << 20
KERNEL = ("DIRECT", "Interface:wan2")


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab) -> Iterator[None]:
    yield
    clear(lab)


# --- The device's reports. ---------------------------------------------------------------------


def have_sent(lab: Lab, least: Mapping[int, int]) -> bool:
    """True if clients have sent more packets by the fast path than `least`."""
    return all(passed(lab, client).up_packets > packets for client, packets in least.items())


# --- Its packets arrive. ----------------------------------------------------------------------


@pytest.mark.parametrize("target", KERNEL)
def test_a_download_takes_the_fast_path_and_arrives_whole(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    before = passed(lab, 1)
    reply = lab.client(1).http(f"http://{SERVER}/bytes/{50 * MIB}", verify=True, timeout=30)
    assert (reply.error, reply.size) == ("", 50 * MIB)
    after = passed(lab, 1)
    assert 45 * MIB < after.down_bytes - before.down_bytes < 60 * MIB
    assert after.up_packets > before.up_packets


@pytest.mark.parametrize("target", KERNEL)
def test_an_upload_takes_the_fast_path_with_the_targets_address(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    before = passed(lab, 1)
    reply = lab.client(1).http(f"http://{SERVER}/", method="POST", upload=50 * MIB, timeout=30)
    wan = lab.wan(1 if target == "DIRECT" else 2)
    assert (reply.error, reply.seen) == ("", wan.address)
    assert passed(lab, 1).up_bytes - before.up_bytes > 45 * MIB


def _sum_up_yourself(names: list[str]) -> None:
    """Turn checksum offloading off, so that each packet is sent with its checksum."""
    for name in names:
        value = array.array("B", struct.pack("=II", 0x17, 0))  # ETHTOOL_STXCSUM
        request = struct.pack("@16sP", name.encode(), value.buffer_info()[0])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            fcntl.ioctl(asked, 0x8946, request)  # SIOCETHTOOL


def _ask_again(source: str, times: int) -> int:
    """Send `times` datagrams from one socket, and return the number of answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.bind((source, 0))
        asking.settimeout(2)
        asking.connect((SERVER, 7))
        answered = 0
        for number in range(times):
            data = f"datagram {number}: {'x' * 64}".encode()
            asking.send(data)
            answered += asking.recv(4096).endswith(data)
        return answered


def test_checksums_are_correct_without_offloading(lab: Lab) -> None:
    # Otherwise the ends, which are one machine, never check them.
    send(lab, 2, "Interface:wan2")
    for role, names in (("client2", ["eth0"]), ("internet", ["isp2"])):
        with JoinedNamespace(netns.namespace(lab.name, role)) as host:
            host.run(_sum_up_yourself, names)
    before = passed(lab, 2)
    reply = lab.client(2).http(f"http://{SERVER}/bytes/{2 * MIB}", verify=True, timeout=20)
    assert (reply.error, reply.size) == ("", 2 * MIB)
    assert passed(lab, 2).down_bytes - before.down_bytes > MIB
    before = passed(lab, 2)
    with JoinedNamespace(netns.namespace(lab.name, "client2")) as host:
        assert host.run(_ask_again, lab.client(2).address, 20) == 20
    assert passed(lab, 2).down_packets - before.down_packets > 10


def test_all_bytes_are_counted_on_either_path(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    before = counted(lab, lab.client(1).address)
    assert lab.client(1).http(f"http://{SERVER}/bytes/{20 * MIB}", timeout=20).error == ""
    eventually(lambda: counted(lab, lab.client(1).address) - before > 20 * MIB)
    assert counted(lab, lab.client(1).address) - before < 23 * MIB
    limit(lab, 1, 100_000)  # from here on another counter has the bytes it receives
    limit(lab, 1, 0)
    eventually(lambda: counted(lab, lab.client(1).address) - before > 20 * MIB)
    assert counted(lab, lab.client(1).address) - before < 23 * MIB


def tracked(lab: Lab, side: str, port: int) -> str:
    """Return the kernel's entries of client 1's connections by a port, as of conntrack(8)."""
    source = lab.client(1).address
    return lab.router.run("conntrack", "-L", "-s", source, "-p", "tcp", side, str(port)).stdout


def test_conntrack_sees_connections_end(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    assert "ESTABLISHED" in tracked(lab, "--dport", 7)
    connection.close()
    eventually(lambda: "ESTABLISHED" not in tracked(lab, "--dport", 7))


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def _reset(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    opened.close()


def _forge_a_reset(source: tuple[str, int], target: tuple[str, int]) -> None:
    """Send a reset with a sequence number that is not the connection's next."""
    segment = tcp(source[0], target[0], source[1], target[1], b"", flags=TCP_RST)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.sendto(ipv4(source[0], target[0], TCP, segment), (target[0], 0))


def _seconds_left(lab: Lab, port: int) -> int:
    """Return the seconds until the kernel forgets the connection from a port of the client's."""
    (left,) = re.findall(r"tcp +6 (\d+) ", tracked(lab, "--sport", port))
    return int(left)


@contextmanager
def talked(lab: Lab) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield a connection that has taken the fast path: the client's end, and the far end."""
    send(lab, 1, "DIRECT")
    before = passed(lab, 1)
    with lab.internet.socket() as listener, lab.client(1).host.socket() as client:
        listener.bind((SERVER, 0))
        port = listener.getsockname()[1]
        listener.listen()
        client.bind((lab.client(1).address, 0))
        client.connect((SERVER, port))
        with listener.accept()[0] as server:
            server.settimeout(5)
            exchange(client, server)
            assert passed(lab, 1).up_packets > before.up_packets
            assert _seconds_left(lab, client.getsockname()[1]) > 7200
            yield client, server


def exchange(client: socket.socket, server: socket.socket, times: int = 20) -> None:
    """Send messages from one end to the other, and answers."""
    for number in range(times):
        for sender, receiver in ((client, server), (server, client)):
            sender.sendall(b"%d" % number)
            assert receiver.recv(100) == b"%d" % number


@pytest.mark.parametrize("by_client", [True, False])
@pytest.mark.parametrize("silent_s", [0.0, 1.5])
def test_connections_that_are_reset_expire_soon(lab: Lab, by_client: bool, silent_s: float) -> None:
    # Thousands of such entries would otherwise fill the conntrack table for hours.
    with talked(lab) as (client, server):
        time.sleep(silent_s)
        left = partial(_seconds_left, lab, client.getsockname()[1])
        _reset(client if by_client else server)
        eventually(lambda: left() <= 10)
        with pytest.raises(ConnectionResetError):
            (server if by_client else client).recv(100)


def test_a_forged_reset_does_not_shorten_a_timeout(lab: Lab) -> None:
    with talked(lab) as (client, server):
        source, target = server.getsockname(), server.getpeername()
        with JoinedNamespace(netns.namespace(lab.name, "internet")) as there:
            there.run(_forge_a_reset, source, target)
        exchange(client, server)
        assert _seconds_left(lab, target[1]) > 7200


def test_a_connection_may_be_idle_for_hours_after_a_large_transfer(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    download = lab.client(1).download(f"http://{SERVER}/bytes/{10**12}")
    try:
        before = passed(lab, 1).down_bytes
        eventually(lambda: passed(lab, 1).down_bytes - before > 100 * MIB, 20)
        # Read its entry after a packet has taken the slow path, as one does each second.
        time.sleep(1.5)
        (left,) = re.findall(r"tcp +6 (\d+) ESTABLISHED", tracked(lab, "--dport", 80))
        assert int(left) > 7200  # RFC 5382: 2 h 4 min
    finally:
        download.stop()


def test_the_fast_path_is_used_in_one_arm_use(namespaces: None) -> None:
    with Lab(LabSpec(one_arm=True, wans=1, nodes=())) as lab:
        lab.start_egressd()
        send(lab, 1, "DIRECT")
        reply = lab.client(1).http(f"http://{SERVER}/bytes/{5 * MIB}", verify=True, timeout=20)
        assert (reply.error, reply.size) == ("", 5 * MIB)
        assert passed(lab, 1).down_bytes > 4 * MIB


# --- Flows that do not take it. ---------------------------------------------------------------


def test_a_limited_client_takes_the_slow_path(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    limit(lab, 1, 10_000)
    assert not takes_it(lab, 1, connection)
    limit(lab, 1, 0)
    assert takes_it(lab, 1, connection)


def test_a_nodes_client_takes_the_slow_path(lab: Lab) -> None:
    lab.api.post("/nodes", lab.nodes["ss"].draft())
    send(lab, 1, "ss")
    assert not takes_it(lab, 1, lab.client(1).connect(SERVER))


@pytest.mark.parametrize("target", ["Interface:wan2", "REJECT", "Interface:wan9"])
def test_p1_connections_of_a_moved_client_are_cut_at_once(lab: Lab, target: str) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    with lab.internet.capture() as capture:
        token = capture.prove(connection.exchange)
        assert capture.interfaces_of(token) == {lab.wan(1).far}
        send(lab, 1, target)
        token = new_token()
        with suppress(Failed):
            assert connection.exchange(token, timeout=2).error != ""
        assert capture.interfaces_of(token) == set()


@pytest.mark.parametrize("ruled", [True, False])
def test_p1_an_idle_connection_of_a_moved_client_does_not_go_on(lab: Lab, *, ruled: bool) -> None:
    """It is silent until conntrack has forgotten it, and must not go on by the new egress: the far
    end would see one connection from two addresses.
    """

    def move(target: str) -> None:
        if ruled:
            send(lab, 1, target)
        else:
            answer = lab.api.ask("PUT", "/ops/settings", {**settings, "unmanaged": target})
            assert answer.status == 200

    settings = lab.api.ask("GET", "/ops/settings").body
    address = lab.client(1).address
    try:
        move("DIRECT")
        connection = lab.client(1).connect(SERVER)
        with lab.internet.capture() as capture:
            token = capture.prove(lab.client(1).connect(SERVER).exchange)
            assert capture.interfaces_of(token) == {lab.wan(1).far}
            move("Interface:wan2")
            eventually(lambda: lab.router.run("conntrack", "-L", "-s", address).stdout == "")
            assert connection.state() == "open"
            assert address in elements(lab, "set", "cut_flows")
            # netd takes the change of the set for its own.
            assert "changed the ruleset" not in lab.device.program.log.read_text()
            token = new_token()
            assert is_cut(connection, token)
            assert capture.interfaces_of(token) == set()
        assert lab.client(1).connect(SERVER).exchange("hello").error == ""
    finally:
        if not ruled:
            move(settings["unmanaged"])


def test_p1_a_flood_on_the_fast_path_leaves_by_its_rules_target(lab: Lab) -> None:
    with watched(lab, {1: "DIRECT", 2: "Interface:wan2"}) as watch:
        for target in ("Interface:wan2", "DIRECT", "Interface:wan9", "Interface:wan2") * 3:
            before = {client: passed(lab, client).up_packets for client in (1, 2)}
            watch.move(1, target)
            going = (2,) if target == "Interface:wan9" else (1, 2)
            eventually(partial(have_sent, lab, {c: before[c] + 20 for c in going}))


def test_p3_connections_of_other_clients_continue(lab: Lab) -> None:
    for client in (1, 2):
        send(lab, client, "DIRECT")
    other = lab.client(2).connect(SERVER)
    assert takes_it(lab, 2, other)
    for target in ("Interface:wan2", "REJECT", "DIRECT"):
        send(lab, 1, target)
        assert takes_it(lab, 2, other)


@pytest.fixture
def strict_tracking(lab: Lab) -> Iterator[None]:
    """Have conntrack begin no connection with a packet from its middle.

    By default it does: once the old entry is deleted, a connection that still has the same target
    goes on as a new flow, judged by the new rules.
    """
    loose = "net.netfilter.nf_conntrack_tcp_loose"
    lab.router.run("sysctl", "-qw", f"{loose}=0")
    yield
    lab.router.run("sysctl", "-qw", f"{loose}=1")


def test_p1_a_whitelist_change_cuts_flows_on_the_fast_path(lab: Lab, strict_tracking: None) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    try:
        lab.api.put("/whitelist", {"domains": "", "ips": "192.0.2.77", "node": "DIRECT"})
        with suppress(Failed):
            assert connection.exchange("anything", timeout=2).error != ""
        assert takes_it(lab, 1, lab.client(1).connect(SERVER))
    finally:
        lab.api.put("/whitelist", {"domains": "", "ips": "", "node": "DIRECT"})


# --- Failures. --------------------------------------------------------------------------------


def test_flows_continue_and_counters_are_kept_while_netd_is_dead(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    eventually(lambda: counted(lab, lab.client(1).address) > 0)
    before = counted(lab, lab.client(1).address)
    kill(lab, "egressd.app netd")
    assert takes_it(lab, 1, connection)
    lab.device.wait_healthy()
    assert takes_it(lab, 1, connection)
    eventually(lambda: counted(lab, lab.client(1).address) > before)


def test_p1_a_stop_blocks_flows_on_the_fast_path_and_keeps_counters(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    eventually(lambda: counted(lab, lab.client(1).address) > 0)
    before = counted(lab, lab.client(1).address)
    lab.device.stop()
    try:
        with suppress(Failed):
            assert connection.exchange("anything", timeout=2).error != ""
    finally:
        lab.device.start()
    eventually(lambda: counted(lab, lab.client(1).address) >= before)
    assert takes_it(lab, 1, lab.client(1).connect(SERVER))


def test_p1_a_block_in_place_of_netd_blocks_flows_on_the_fast_path(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    kill(lab, "egressd.app netd", signal.SIGSTOP)
    try:
        lab.router.run(sys.executable, "-m", "egressd.app", "block")
        assert hooked(lab) == set()
        with suppress(Failed):
            assert connection.exchange("anything", timeout=2).error != ""
    finally:
        lab.device.kill()
        lab.device.start()
    assert takes_it(lab, 1, lab.client(1).connect(SERVER))


def test_p2_a_wan_that_goes_down_blocks_flows_on_the_fast_path(lab: Lab) -> None:
    send(lab, 1, "Interface:wan2")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    with lab.internet.capture(lab.wan(1).far) as other:
        other.prove()
        lab.wan(2).lower()
        try:
            token = new_token()
            with suppress(Failed):
                assert connection.exchange(token, timeout=2).error != ""
            assert other.flows(token) == []
        finally:
            lab.wan(2).restore()
    eventually(lambda: lab.client(1).http(f"http://{SERVER}/").seen == lab.wan(2).address)
    assert takes_it(lab, 1, lab.client(1).connect(SERVER))


def test_p1_no_flow_continues_by_another_wan_with_the_first_ones_address(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    other = lab.wan(2)
    route = ("default", "via", other.gateway, "dev", other.interface, "metric", "1")
    with lab.internet.capture(other.far) as capture:
        capture.prove()
        lab.router.run("ip", "route", "add", *route)
        try:
            token = new_token()
            eventually(lambda: is_cut(connection, token), 10)  # once netd has seen the route
            assert lab.client(1).http(f"http://{SERVER}/").seen == other.address
            assert {flow.source for flow in capture.flows(token)} <= {other.address}
        finally:
            lab.router.run("ip", "route", "delete", *route)
    eventually(lambda: lab.client(1).http(f"http://{SERVER}/").seen == lab.wan(1).address)


def take_away(interface: str) -> None:
    """Detach the programs as ``bpftool net detach`` does."""
    system.detach(socket.if_nametoindex(interface), programs_here()[interface])


def test_deleted_programs_are_attached_again(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    with JoinedNamespace(lab.router.namespace) as router:
        router.run(take_away, "lan0")
    talk(connection)
    eventually(lambda: "lan0" in hooked(lab), 15)
    assert takes_it(lab, 1, connection)


# --- Kernels without it, or with a temporary refusal. -----------------------------------------

SOME = RuleCount(1, 2, 3, 4)


def count_some() -> None:
    """Count bytes as if traffic had taken the fast path."""
    program = next(iter(programs_here().values()))
    counts = next(each for each in system.maps_of(program) if each.name == "counts")
    before = counts.get(address_key(CLIENT)) or bytes(COUNT.size)
    counts.put(address_key(CLIENT), COUNT.pack(*map(add, COUNT.unpack(before), astuple(SOME))))


def refuse(code: int) -> NoReturn:
    raise OSError(code, os.strerror(code))


@pytest.fixture
def router(namespace: Namespace) -> Iterator[Namespace]:
    """Yield a router of a LAN with a client, and a WAN with a default route."""
    with lan_and_wan(namespace):
        yield namespace


def test_without_kernel_types_all_flows_take_the_slow_path(
    router: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "kernel_types", lambda: refuse(errno.ENOENT))

    def body() -> tuple[str, dict[str, int]]:
        path = FastPath()
        for _ in range(2):
            ask_again(path)
        assert path.counts([CLIENT]) == {}
        return path.problem, programs_here()

    problem, there = router.run(body)
    assert "No such file or directory" in problem
    assert there == {}


def test_a_load_refused_for_lack_of_memory_is_tried_again(
    router: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_module, "_REST_S", 0.5)

    def body() -> list[tuple[bool, set[str]]]:
        path, found = FastPath(), []
        with monkeypatch.context() as refusing:
            refusing.setattr(system, "load", lambda *_: refuse(errno.ENOMEM))
            ask_again(path)
        found.append((path.problem != "", set(programs_here())))
        ask_again(path)  # too soon
        found.append((path.problem != "", set(programs_here())))
        time.sleep(0.6)
        ask_again(path)
        return [*found, (path.problem != "", set(programs_here()))]

    refused = (True, set[str]())
    assert router.run(body) == [refused, refused, (False, {"lan0", "wan1"})]


def test_counters_survive_a_refused_load(
    router: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_module, "_REST_S", 0.0)

    def body() -> list[Mapping[str, RuleCount]]:
        path = FastPath()
        ask_again(path)
        count_some()
        with monkeypatch.context() as refusing:
            refusing.setattr(tracking, "timeouts", lambda: refuse(errno.ENOMEM))
            ask_again(path)
        assert programs_here() == {}
        ask_again(path)
        found = [path.counts([CLIENT])]
        count_some()
        found.append(path.counts([CLIENT]))
        path.move(Plan(), [CLIENT])
        found.append(path.counts([CLIENT]))  # the change may still read them
        path.sync()
        return [*found, path.counts([CLIENT])]

    twice = RuleCount(2, 4, 6, 8)
    assert router.run(body) == [{CLIENT: SOME}, {CLIENT: twice}, {CLIENT: twice}, {}]


def test_counters_of_an_earlier_version_outlive_its_successor(
    router: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_an_earlier_version() -> None:
        key_size, value_size, room = maps._SHAPES["egresses"]
        others = {**maps._SHAPES, "egresses": (key_size, value_size, room // 2)}
        monkeypatch.setattr(maps, "_SHAPES", others)
        ask_again(FastPath())
        count_some()

    def of_this_version() -> Mapping[str, RuleCount]:
        path = FastPath()
        path.load_previous()
        ask_again(path)
        return path.counts([CLIENT])

    router.run(of_an_earlier_version)
    assert [router.run(of_this_version) for _ in range(3)] == [{CLIENT: SOME}] * 3


def test_changed_conntrack_timeouts_are_adopted(router: Namespace) -> None:
    def body() -> tuple[set[int], set[int]]:
        path = FastPath()
        ask_again(path)
        before = set(programs_here().values())
        ask_again(path)
        assert set(programs_here().values()) == before
        Path("/proc/sys/net/netfilter/nf_conntrack_udp_timeout_stream").write_text("77")
        ask_again(path)
        assert path.problem == ""
        return before, set(programs_here().values())

    before, after = router.run(body)
    assert len(before) == len(after) == 2
    assert not before & after
