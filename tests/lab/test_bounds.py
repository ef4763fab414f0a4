"""Bounds on one client's connections in the engine, and on its queries. A client above them is
refused, and no other client is.
"""

from __future__ import annotations

import json
import os
import re
import resource
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from egressd.netd.kernel import open_files
from egressd.planner.bounds import Bounds, bounds_of
from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.lab.five import explained, heard, overview
from tests.support.device import SERVER, add_nodes, elements, eventually, rule, send
from tests.support.netns import JoinedNamespace, Running

pytestmark = pytest.mark.lab

GREEDY, OTHER, DIRECT = 1, 2, 3
"""Two clients of one node, and one whose traffic the kernel routes."""
WEB: Final = f"http://{SERVER}/"
ECHO: Final = 7
RESOLVER: Final = "8.8.8.8"
OPEN_QUESTIONS: Final = 256
IDLE_S: Final = 10.0
_IP_RECVERR: Final = 11
_AT_ONCE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER's value that resets a connection and drops its unsent data (socket(7))."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        # This node passes on the end of a client's data, and waits for the rest of the answer.
        (address,) = lab.add_engine_node("patient", [{"type": "socks", "listen_port": 1080}])
        lab.start_egressd()
        add_nodes(lab)
        config = json.dumps({"server": address, "port": 1080, "udp": True})
        draft = {"name": "patient", "protocol": "socks5", "config_json": config, "group": ""}
        lab.api.post("/nodes", draft)
        send(lab, GREEDY, "ss")
        send(lab, OTHER, "ss")
        send(lab, DIRECT, "DIRECT")
        yield lab


@pytest.fixture
def greedy(lab: Lab) -> Iterator[JoinedNamespace]:
    """Yield the client that is about to exceed a bound, once no client is reported to do so."""
    eventually(lambda: overview(lab)["reached"] == [], 20)
    with JoinedNamespace(netns.namespace(lab.name, "client1")) as network:
        yield network
    lab.router.run("conntrack", "-D", "-s", lab.client(GREEDY).address, check=False)
    metered = ("sessions", "sessions_of", "sessions_of_networks")
    for name in (*metered, "questions_of", "question_bytes_of"):
        lab.router.run("nft", "flush", "set", "inet", "egressd", name)


NETWORK: Final = "10.77.0.0/24"
UNRULED: Final = "10.77.0.128/25"
"""A part of it with one rule for all addresses."""
NEIGHBOUR: Final = "10.77.0.129"
"""An address there with few connections."""


@pytest.fixture
def many(lab: Lab, greedy: JoinedNamespace) -> Iterator[list[str]]:
    """Yield addresses of the client that will exceed a bound, without a rule of their own."""
    addresses = [f"10.77.0.{number}" for number in range(130, 250)]
    all_of_them = (NEIGHBOUR, *addresses)
    greedy.shell("\n".join(f"ip address add {each}/32 dev eth0" for each in all_of_them))
    rule(lab, UNRULED, "ss")
    yield addresses
    (known,) = (each["id"] for each in lab.api.get("/rules")["data"] if each["ip"] == UNRULED)
    lab.api.delete(f"/rules/{known}")
    greedy.shell("\n".join(f"ip address delete {each}/32 dev eth0" for each in all_of_them))
    lab.router.run("conntrack", "-D", "-s", UNRULED, check=False)


def bounds(lab: Lab) -> Bounds:
    """Return all bounds, which follow from the number of files that a worker may open."""
    return bounds_of(open_files.limit(lab.device.pids("egressd.netd.engine.worker")[0]))


def bound(lab: Lab, counted: str) -> int:
    """Return the bound that the device's table was loaded with."""
    listed = lab.router.run("nft", "list", "table", "inet", "egressd").stdout
    found = re.search(rf"@{counted} {{ ip saddr ct count over (\d+) }}", listed)
    assert found is not None
    return int(found[1])


def address(lab: Lab, client: int = GREEDY) -> str:
    return lab.client(client).address


def problem(lab: Lab) -> str:
    """Return the reports on the client that exceeds a bound."""
    told = [p for p in overview(lab)["problems"] if p.startswith(f"{address(lab)}: ")]
    return "; ".join(told)


def is_served(lab: Lab, client: int) -> bool:
    return lab.client(client).http(WEB, timeout=2).ok


def resident_mb(lab: Lab) -> list[int]:
    """Return the memory of each engine worker, in MB."""
    found = []
    for pid in lab.device.pids("egressd.netd.engine.worker"):
        status = Path(f"/proc/{pid}/status").read_text()
        found.append(int(status.partition("VmRSS:")[2].split()[0]) // 1024)
    return sorted(found)


# --- The client's actions, in its own namespace. ----------------------------------------------


def make_room() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connect(
    number: int,
    port: int,
    hold_s: float,
    word: bytes,
    *,
    ends: bool = False,
    sources: Sequence[str] = ("",),
) -> int:
    """Open `number` connections of each source, hold them for `hold_s`, and return the number of
    those that were made.
    """
    make_room()
    with ExitStack() as held:
        made = 0
        for source in [*sources] * number:
            opened = held.enter_context(socket.socket())
            opened.settimeout(5)
            with suppress(OSError):
                opened.bind((source, 0))
                opened.connect((SERVER, port))
                opened.sendall(word)
                if ends:
                    opened.shutdown(socket.SHUT_WR)
                made += 1
        time.sleep(hold_s)
    return made


def speak(number: int, hold_s: float, sources: Sequence[str] = ("",)) -> int:
    """Send a datagram from `number` sockets of each source, hold them for `hold_s`, and return the
    number of those without an error.
    """
    make_room()
    with ExitStack() as held:
        opened = [
            held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(number * len(sources))
        ]
        refused = 0
        for index, each in enumerate(opened):
            each.bind((sources[index % len(sources)], 0))
            each.connect((SERVER, ECHO))
            each.setblocking(False)
            each.send(b"hello")
            time.sleep(0.0005)
        time.sleep(1)
        for each in opened:
            try:
                each.recv(2048)
            except BlockingIOError:
                pass
            except OSError:
                refused += 1
        time.sleep(hold_s)
        return len(opened) - refused


def question(name: bytes) -> bytes:
    number = os.urandom(2)
    return number + b"\1\0\0\1\0\0\0\0\0\0" + bytes([len(name)]) + name + b"\4test\0\0\1\0\1"


def ask(rate: int, seconds: float, flows: int) -> int:
    """Query random names by UDP, and return the number of queries sent."""
    with ExitStack() as held:
        opened = [
            held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(flows)
        ]
        for each in opened:
            each.connect((RESOLVER, 53))
        begun, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds:
            while sent < passed * rate:
                with suppress(OSError):
                    opened[sent % flows].send(question(os.urandom(6).hex().encode()))
                sent += 1
            time.sleep(0.002)
        return sent


def ask_by_tcp(rate: int, seconds: float, flows: int) -> int:
    """Query random names by TCP as `ask` does, without waiting for answers."""
    with ExitStack() as held:
        opened = [
            held.enter_context(socket.create_connection((RESOLVER, 53), 5)) for _ in range(flows)
        ]
        for each in opened:
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        begun, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begun) < seconds:
            if sent < passed * rate:
                names = (question(os.urandom(6).hex().encode()) for _ in range(40))
                many = b"".join(len(each).to_bytes(2, "big") + each for each in names)
                with suppress(OSError):
                    opened[sent // 40 % flows].send(many)
                sent += 40
            else:
                time.sleep(0.002)
        return sent


def is_answered(query: bytes) -> bool:
    """True if a resolver answers a query by TCP."""
    with suppress(OSError), socket.create_connection((RESOLVER, 53), 5) as opened:
        opened.sendall(query)
        return opened.recv(1) != b""
    return False


def ended(
    words: list[tuple[bytes, bool]], seconds: float, trickle: bytes = b""
) -> list[float | None]:
    """Connect to a resolver once for each word, and return the seconds until each connection was
    ended, or None after `seconds`. The end of data follows a word with a true flag; then `trickle`
    is sent, a byte a second.
    """
    left = [*trickle]
    after: list[float | None] = [None] * len(words)
    since = []
    with selectors.DefaultSelector() as waiting, ExitStack() as held:
        for number, (word, ends) in enumerate(words):
            since.append(time.monotonic())
            opened = held.enter_context(socket.create_connection((RESOLVER, 53), 5))
            opened.sendall(word)
            if ends:
                opened.shutdown(socket.SHUT_WR)
            waiting.register(opened, selectors.EVENT_READ, number)
        begun = time.monotonic()
        while waiting.get_map() and time.monotonic() < begun + seconds:
            if left and time.monotonic() - begun > len(trickle) - len(left):
                for key in waiting.get_map().values():
                    assert isinstance(key.fileobj, socket.socket)
                    with suppress(OSError):
                        key.fileobj.send(bytes(left[:1]))
                del left[0]
            for key, _ in waiting.select(0.2):
                assert isinstance(key.fileobj, socket.socket)
                with suppress(ConnectionError):
                    if key.fileobj.recv(2048):
                        continue
                waiting.unregister(key.fileobj)
                after[key.data] = time.monotonic() - since[key.data]
    return after


# --- Connections and sessions. ----------------------------------------------------------------


def test_the_connections_of_a_client_are_limited_and_others_are_served(
    lab: Lab, greedy: JoinedNamespace
) -> None:
    most = bound(lab, "tcp_of")
    words = f"{address(lab)}: the bound of {most} connections through nodes is reached"
    with heard(lab) as five:
        taking: Running[int] = greedy.start(connect, most + 300, ECHO, 4.0, b"x")
        five.await_news(words, 20)
        assert is_served(lab, OTHER)
        assert is_served(lab, DIRECT)
        assert problem(lab).startswith(words)
        told = explained(lab, GREEDY)
        assert (told["is_blocked"], told["reason"]) == (True, problem(lab).partition(": ")[2])
        assert not explained(lab, OTHER)["is_blocked"]
        metrics = lab.api.ask("GET", "/ops/metrics").body
        assert re.search(r'egressd_refused_total{kind="connections"} [1-9]', metrics)
        assert "egressd_sources_refused 1.0" in metrics
        assert taking.result(60) <= most
        eventually(lambda: is_served(lab, GREEDY), 5)
        five.await_news(f"over: {words}", 20)
        assert "fails" not in five.logged()
    assert not explained(lab, GREEDY)["is_blocked"]


def test_connections_that_conntrack_has_forgotten_are_counted(
    lab: Lab, greedy: JoinedNamespace
) -> None:
    """conntrack forgets a connection closed by its client before the engine's socket ends."""
    most = bound(lab, "tcp_of")
    send(lab, GREEDY, "patient")
    timeout = "net/netfilter/nf_conntrack_tcp_timeout_close_wait"
    before = lab.router.run("cat", f"/proc/sys/{timeout}").stdout.strip()
    lab.router.sysctl(timeout, 2)
    try:
        with waiting_server(lab) as port:
            taking = [greedy.start(connect, most, port, 60.0, b"x", ends=True)]
            eventually(lambda: tracked(lab, port) > most // 2, 20)
            eventually(lambda: tracked(lab, port) == 0, 40)
            taking.append(greedy.start(connect, most, port, 60.0, b"x", ends=True))
            eventually(lambda: address(lab) in elements(lab, "set", "greedy"), 40)
            eventually(lambda: "connections through nodes is reached" in problem(lab))
            assert is_served(lab, OTHER)
            assert not is_served(lab, GREEDY)
            for each in taking:
                each.kill()
        eventually(lambda: is_served(lab, GREEDY), 60)
    finally:
        lab.router.sysctl(timeout, before)
        send(lab, GREEDY, "ss")


def tracked(lab: Lab, port: int) -> int:
    listed = lab.router.run("conntrack", "-L", "-p", "tcp", "--dport", str(port), check=False)
    return listed.stdout.count("src=")


@contextmanager
def waiting_server(lab: Lab) -> Iterator[int]:
    """Yield the port of a server on the internet that accepts connections, sends nothing and ends
    none.
    """
    port = 8998
    with JoinedNamespace(netns.namespace(lab.name, "internet")) as internet:
        serving = internet.start(take_all, port)
        try:
            yield port
        finally:
            serving.kill()


def take_all(port: int) -> None:
    make_room()
    held = []
    with socket.create_server((SERVER, port), backlog=4096) as listener:
        while True:
            held.append(listener.accept())


def test_the_udp_sessions_of_a_client_are_limited_and_others_are_served(
    lab: Lab, greedy: JoinedNamespace
) -> None:
    with heard(lab) as five:
        taking = greedy.start(speak, bound(lab, "udp_of") + 200, 4.0)
        five.await_news("UDP sessions through nodes is reached", 20)
        assert lab.client(OTHER).udp_echo("hello").ok
        assert explained(lab, GREEDY)["doubts"] == [problem(lab).partition(": ")[2]]
        assert taking.result(60) < bound(lab, "udp_of")


def test_connections_of_all_addresses_of_a_network_are_limited(
    lab: Lab, greedy: JoinedNamespace, many: list[str]
) -> None:
    """A host may use many addresses. Each of them stays below a client's bound."""
    each = bounds(lab).connections - 100
    sources = many[: 2 * bounds(lab).connections_of_network // each + 1]
    words = "for all addresses of a network without a rule of their own is reached"
    with heard(lab) as five:
        taking: Running[int] = greedy.start(connect, each, ECHO, 60.0, b"x", sources=sources)
        five.await_news(f"connections through nodes {words}", 60)
        eventually(lambda: sources[0] in elements(lab, "set", "greedy"))
        assert greedy.run(connect, 1, ECHO, 0.0, b"x", sources=sources[:1]) == 0
        assert greedy.run(connect, 1, ECHO, 0.0, b"x", sources=[NEIGHBOUR]) == 1
        assert is_served(lab, OTHER)
        assert is_served(lab, GREEDY)
        asking = f"destination={SERVER}&port=80&protocol=tcp"
        told = lab.api.ask("GET", f"/ops/explain?client={sources[0]}&{asking}").body
        assert words in told["reason"]
        told = lab.api.ask("GET", f"/ops/explain?client={NEIGHBOUR}&{asking}").body
        assert told["reason"] == ""
        taking.kill()
        eventually(lambda: elements(lab, "set", "greedy") == "", 20)
        assert greedy.run(connect, 1, ECHO, 0.0, b"x", sources=sources[:1]) == 1


def test_udp_sessions_of_all_addresses_of_a_network_are_limited(
    lab: Lab, greedy: JoinedNamespace, many: list[str]
) -> None:
    each = bounds(lab).sessions - 50
    sources = many[: bounds(lab).sessions_of_network // each + 2]
    words = "for all addresses of a network without a rule of their own is reached"
    with heard(lab) as five:
        taking: Running[int] = greedy.start(speak, each, 2.0, sources)
        five.await_news(f"{NETWORK}: the bound of", 30)
        for client in (OTHER, GREEDY):  # a datagram may be lost on a busy machine
            eventually(lambda client=client: lab.client(client).udp_echo("hello").ok)  # type: ignore[misc]
        asking = f"destination={SERVER}&port=80&protocol=udp"
        told = lab.api.ask("GET", f"/ops/explain?client={NEIGHBOUR}&{asking}").body
        assert words in told["reason"]
        assert explained(lab, GREEDY)["doubts"] == []
        assert taking.result(60) < each * len(sources)


def test_many_destinations_of_one_socket_are_one_session(lab: Lab, greedy: JoinedNamespace) -> None:
    """A program that shares files has such sockets."""
    many = bound(lab, "tcp_of")
    assert greedy.run(speak_to_many, many) == 0
    assert problem(lab) == ""


def speak_to_many(number: int) -> int:
    """Send `number` datagrams from one socket, each to another port; return the number refused."""
    refused = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setsockopt(socket.IPPROTO_IP, _IP_RECVERR, 1)
        for port in range(20_000, 20_000 + number):
            try:
                opened.sendto(b"hello", (SERVER, port))
            except OSError:
                refused += 1
            time.sleep(0.0005)
    return refused


def test_a_nat_address_with_fifty_devices_reaches_no_bound(
    lab: Lab, greedy: JoinedNamespace
) -> None:
    """The household has fifty devices, some of which load pages."""
    browsing = greedy.start(connect, 400, ECHO, 3.0, b"x")
    talking = greedy.start(speak, 150, 3.0)
    asking = greedy.start(ask, 60, 2.0, 60)
    assert browsing.result() == 400
    assert talking.result() == 150
    assert asking.result() > 100
    assert problem(lab) == ""
    assert elements(lab, "set", "full_questions") == ""


# --- Queries. ---------------------------------------------------------------------------------


@contextmanager
def silent_resolvers(lab: Lab) -> Iterator[Callable[[], int]]:
    """Keep all of the internet's resolvers silent, and yield a counter of their queries by UDP."""
    rule = "meta l4proto udp udp dport 53 counter drop"
    chain = f"type filter hook prerouting priority -300\n{rule}\ntcp dport 53 drop"
    table = f"table ip outage {{\nchain pre {{\n{chain}\n}}\n}}\n"
    lab.internet.run("nft", "-f", "-", stdin=table)

    def count() -> int:
        listed = lab.internet.run("nft", "list", "table", "ip", "outage").stdout
        found = re.search(r"counter packets (\d+)", listed)
        assert found is not None
        return int(found[1])

    try:
        yield count
    finally:
        lab.internet.run("nft", "delete", "table", "ip", "outage")


ASKING_S: Final = 5.0


@pytest.mark.parametrize(
    ("way", "flows"),
    [(ask, 1), (ask, 300), (ask_by_tcp, 1), (ask_by_tcp, 40)],
    ids=["udp", "udp-flows", "tcp", "tcp-flows"],
)
def test_dns_queries_of_one_client_do_not_fill_the_engine(
    lab: Lab, greedy: JoinedNamespace, way: Callable[[int, float, int], int], flows: int
) -> None:
    words = f"{address(lab)}: more than 24 names a second are asked for"
    before = resident_mb(lab)
    with heard(lab) as five, silent_resolvers(lab):
        asking = greedy.start(way, 20_000, ASKING_S, flows)
        five.await_news(words, 5)
        assert is_served(lab, OTHER)
        told = lab.api.ask(
            "GET", f"/ops/explain?client={address(lab)}&destination=8.8.8.8&port=53&protocol=udp"
        ).body
        assert (told["is_blocked"], told["reason"]) == (True, problem(lab).partition(": ")[2])
        assert asking.result() > 10_000
        assert sum(resident_mb(lab)) - sum(before) < 40
    eventually(lambda: problem(lab) == "", 20)


@pytest.mark.parametrize("flows", [1, 300])
def test_dns_queries_forwarded_by_the_kernel_are_metered(lab: Lab, flows: int) -> None:
    with silent_resolvers(lab) as count:
        before = count()
        with JoinedNamespace(netns.namespace(lab.name, "client3")) as network:
            assert network.run(ask, 2000, ASKING_S, flows) > 5000
        # netd itself also asks, to see which resolvers answer.
        assert count() - before < OPEN_QUESTIONS + 24 * ASKING_S
        eventually(lambda: address(lab, DIRECT) in elements(lab, "set", "full_questions"))
        assert is_served(lab, DIRECT)


def test_connections_to_resolvers_are_limited_and_end_when_idle(
    lab: Lab, greedy: JoinedNamespace
) -> None:
    most = bound(lab, "dns_of")
    asked = question(b"www")
    framed = len(asked).to_bytes(2, "big") + asked
    words = [(word, ends) for word in (b"", b"\0", framed[:9], framed) for ends in (False, True)]
    # The resolvers were silent in the tests before.
    eventually(lambda: greedy.run(is_answered, framed), 30)
    after = greedy.run(ended, words, IDLE_S + 5)
    assert None not in after, after
    assert [each for each in after if each is not None and each > IDLE_S + 4] == []
    assert all(each is not None and each > IDLE_S - 1 for each in (after[0], after[6])), after
    # Half a query that continues to arrive ends, too, also behind a whole one.
    slow = greedy.run(ended, [(b"\0\xff", False), (framed, False)], IDLE_S + 5, b"\1" * 60)
    assert [each for each in slow if each is None or not IDLE_S - 1 < each < IDLE_S + 4] == []
    with heard(lab) as five:
        crowd = greedy.start(ended, [(b"", False)] * most, IDLE_S + 5)
        eventually(lambda: tracked(lab, 53) >= most, 10)
        assert greedy.run(is_refused)
        five.await_news(f"the bound of {most} connections to resolvers is reached", 5)
        assert is_served(lab, GREEDY)
        assert None not in crowd.result(30)
        eventually(lambda: not greedy.run(is_refused), 10)  # once the kernel's count has followed


def is_refused() -> bool:
    """True if a connection to a resolver is refused."""
    try:
        socket.create_connection((RESOLVER, 53), 5).close()
    except ConnectionRefusedError:
        return True
    return False
