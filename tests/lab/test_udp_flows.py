"""UDP flows that keep one socket use the new egress after a change of any kind.

Their first packets were pinned to the old egress. Until the entry that remembers this is gone, each
further one is dropped.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LabSpec
from tests.lab.whitelisted import save
from tests.support.device import SERVER, configure, eventually, kill, send, stopped
from tests.support.programs import talker

pytestmark = pytest.mark.lab

TALKER = str(Path(talker.__file__))
ELSEWHERE = "192.0.2.200"
"""A listed address that no client sends to."""
STREAM_PORT = 15_007


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=4)) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab, nodes: None) -> Iterator[None]:
    yield
    configure(lab, unmanaged="REJECT", group_strategy="urltest")
    save(lab)


class Talk:
    """A client's only socket, and the answers it receives."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.last = ""
        self._heard = 0
        self._program = program
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            self.last = line.strip()
            self._heard += 1

    @contextmanager
    def silenced(self) -> Iterator[None]:
        """Stop it from sending inside the block."""
        self._program.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._program.send_signal(signal.SIGCONT)

    def hears_something(self) -> bool:
        """True if an answer arrives within half a second."""
        before = self._heard
        time.sleep(0.5)
        return self._heard > before

    def is_seen_by(self, address: str) -> None:
        """Fail unless the far end soon sees it with that address."""
        eventually(lambda: self.last == address, 8)

    def close(self) -> None:
        self._program.kill()
        self._program.wait()
        self._reader.join()


@contextmanager
def talking(lab: Lab, client: int, port: int = 7) -> Iterator[Talk]:
    talker = lab.client(client)
    argv = [sys.executable, TALKER, "talk", talker.address, SERVER, str(port)]
    argv = exec_argv(talker.host.namespace, argv)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
        talk = Talk(program)
        try:
            yield talk
        finally:
            talk.close()


def way_out(lab: Lab, target: str) -> str:
    wans = {"DIRECT": lab.wan(1), "Interface:wan2": lab.wan(2)}
    return wans[target].address if target in wans else lab.nodes[target].address


@pytest.mark.parametrize(
    ("before", "after", "ips", "node"),
    [
        ("DIRECT", "ss", "", "DIRECT"),
        ("DIRECT", "Interface:wan2", ELSEWHERE, "DIRECT"),
        ("DIRECT", "ss", ELSEWHERE, "DIRECT"),
        ("ss", "Interface:wan2", ELSEWHERE, "ss"),
        ("ss", "socks5-udp", ELSEWHERE, "ss"),
    ],
)
def test_a_flow_follows_its_moved_client(
    lab: Lab, before: str, after: str, ips: str, node: str
) -> None:
    save(lab, ips=ips, node=node)
    send(lab, 1, before)
    with talking(lab, 1) as talk:
        talk.is_seen_by(way_out(lab, before))
        send(lab, 1, after)
        talk.is_seen_by(way_out(lab, after))


@pytest.mark.parametrize(("target", "node"), [("ss", "DIRECT"), ("Interface:wan2", "ss")])
def test_a_flow_follows_its_destination_onto_and_off_the_whitelist(
    lab: Lab, target: str, node: str
) -> None:
    save(lab, ips=ELSEWHERE, node=node)
    send(lab, 1, target)
    with talking(lab, 1) as talk:
        talk.is_seen_by(way_out(lab, target))
        save(lab, ips=f"{ELSEWHERE}\n{SERVER}", node=node)
        talk.is_seen_by(way_out(lab, node))
        save(lab, ips=ELSEWHERE, node=node)
        talk.is_seen_by(way_out(lab, target))


def test_a_flow_follows_a_changed_target_for_unruled_clients(lab: Lab) -> None:
    configure(lab, unmanaged="DIRECT")
    with talking(lab, 4) as talk:
        talk.is_seen_by(way_out(lab, "DIRECT"))
        configure(lab, unmanaged="Interface:wan2")
        talk.is_seen_by(way_out(lab, "Interface:wan2"))


def test_a_flow_follows_the_device_being_opened_and_started(lab: Lab) -> None:
    send(lab, 1, "Interface:wan2")
    with talking(lab, 1) as talk:
        talk.is_seen_by(way_out(lab, "Interface:wan2"))
        assert lab.api.ask("POST", "/ops/open", {"confirm": "open"}).status == 200
        try:
            talk.is_seen_by(way_out(lab, "DIRECT"))
        finally:
            assert lab.api.ask("POST", "/ops/start", {}).status == 200
        talk.is_seen_by(way_out(lab, "Interface:wan2"))


@pytest.mark.parametrize("strategy", ["fallback", "sticky"])
def test_a_flow_follows_its_node_to_another_group(lab: Lab, strategy: str) -> None:
    configure(lab, group_strategy=strategy)
    ids = {row["name"]: row["id"] for row in lab.api.get("/nodes")["data"]}

    def put(name: str, group: str) -> None:
        lab.api.patch("/nodes/batch", {"ids": [ids[name]], "group": group})

    put("socks5-udp", "g1")
    send(lab, 1, "Group_g1")
    with talking(lab, 1) as talk:
        talk.is_seen_by(way_out(lab, "socks5-udp"))
        put("ss", "g1")
        put("http", "g2")
        send(lab, 2, "Group_g2")
        put("socks5-udp", "g2")
        talk.is_seen_by(way_out(lab, "ss"))


@contextmanager
def streaming(lab: Lab) -> Iterator[None]:
    """Let the far end send to each known peer, with or without requests."""
    argv = [sys.executable, TALKER, "stream", SERVER, str(STREAM_PORT)]
    argv = exec_argv(lab.internet.namespace, argv)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield
        finally:
            server.kill()


def moved(lab: Lab) -> str:
    send(lab, 1, "DIRECT")
    return "DIRECT"


def moved_to_a_wan(lab: Lab) -> str:
    send(lab, 1, "Interface:wan2")
    return "Interface:wan2"


def without_a_rule(lab: Lab) -> str:
    configure(lab, unmanaged="DIRECT")
    address = lab.client(1).address
    (own,) = (rule["id"] for rule in lab.api.get("/rules")["data"] if rule["ip"] == address)
    lab.api.delete(f"/rules/{own}")
    return "DIRECT"


def opened(lab: Lab) -> str:
    assert lab.api.ask("POST", "/ops/open", {"confirm": "open"}).status == 200
    return "DIRECT"


@pytest.mark.parametrize("leave", [moved, moved_to_a_wan, without_a_rule, opened])
def test_a_flow_follows_its_client_while_the_server_streams_to_it(
    lab: Lab, leave: Callable[[Lab], str]
) -> None:
    """Past fault: UDP of a client from a fixed port was dead for good once the client had left its
    node while the far end continued to send: the engine's next datagram began a flow in the wrong
    direction.
    """
    send(lab, 2, "ss")  # keeps the node in use
    send(lab, 1, "ss")
    with streaming(lab), talking(lab, 1, STREAM_PORT) as talk:
        talk.is_seen_by(way_out(lab, "ss"))
        try:
            talk.is_seen_by(way_out(lab, leave(lab)))
        finally:
            assert lab.api.ask("POST", "/ops/start", {}).status == 200


@pytest.mark.parametrize("leave", [moved, moved_to_a_wan, without_a_rule, opened])
def test_a_flow_follows_its_client_after_the_server_began_it_again(
    lab: Lab, leave: Callable[[Lab], str]
) -> None:
    """Past fault: a node's client lost a UDP flow with fixed ports for good, now and then, when it
    left the node or the device was opened. The entry was removed before the kernel used the new
    plan, and the next datagram of the far end began an untranslated flow in the wrong direction.
    """
    send(lab, 2, "ss")
    send(lab, 1, "ss")
    mine = ("-p", "udp", "--src", lab.client(1).address)
    to_me = ("-p", "udp", "--src", SERVER, "--dst", lab.client(1).address)
    with streaming(lab), talking(lab, 1, STREAM_PORT) as talk:
        talk.is_seen_by(way_out(lab, "ss"))
        try:
            with talk.silenced():
                lab.router.run("conntrack", "-D", *mine)
                eventually(lambda: lab.router.run("conntrack", "-L", *to_me).stdout != "")
                way = leave(lab)
            talk.is_seen_by(way_out(lab, way))
        finally:
            assert lab.api.ask("POST", "/ops/start", {}).status == 200


@contextmanager
def ended(lab: Lab) -> Iterator[None]:
    """Stop the service."""
    lab.device.stop()
    try:
        yield
    finally:
        lab.device.start()


@contextmanager
def ended_while_frozen(lab: Lab) -> Iterator[None]:
    """Stop the service while netd cannot block clients itself."""
    kill(lab, "egressd.app netd", signal.SIGSTOP)
    with ended(lab):
        yield


@pytest.mark.parametrize("stop", [stopped, ended, ended_while_frozen])
def test_a_stopped_device_forwards_no_incoming_stream(
    lab: Lab, stop: Callable[[Lab], AbstractContextManager[None]]
) -> None:
    """Past fault: a stopped device continued to deliver UDP to its clients, because datagrams of
    known flows counted as answers; later only one whose service was stopped.
    """
    targets = {1: "ss", 2: "Interface:wan2", 3: "DIRECT"}
    for number, target in targets.items():
        send(lab, number, target)
    with streaming(lab), ExitStack() as stack:
        talks = [stack.enter_context(talking(lab, number, STREAM_PORT)) for number in targets]
        for talk, target in zip(talks, targets.values(), strict=True):
            talk.is_seen_by(way_out(lab, target))
        with stop(lab):
            eventually(lambda: not any(talk.hears_something() for talk in talks), 8)
        for talk, target in zip(talks, targets.values(), strict=True):
            talk.is_seen_by(way_out(lab, target))


def test_pings_continue_after_a_move(lab: Lab) -> None:
    save(lab, ips=ELSEWHERE)
    send(lab, 1, "DIRECT")
    argv = exec_argv(lab.client(1).host.namespace, ["ping", "-n", "-i", "0.2", "-c", "30", SERVER])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        for line in program.stdout:
            if "icmp_seq=3" in line:
                send(lab, 1, "Interface:wan2")
            if "received" in line:
                assert int(line.split(",")[1].split()[0]) >= 20
        assert program.wait() == 0
