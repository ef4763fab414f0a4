"""One client's sockets are ended among others', in a real TPROXY listener."""

import errno
import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import IPv4Address

import pytest

from egressd.netd.kernel import sockets
from egressd.netd.kernel.sockets import ClientSocket
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

OUTSIDE = "198.51.100.1"
ROUTER = "10.1.0.1"
GOODBYE = b"bye"
"""The message after which the proxy and the API close the connection."""
MOVED, OTHER = "10.1.0.2", "10.1.0.3"
PROXY_PORT, API_PORT = 20_000, 8080
_IP_TRANSPARENT = 19

Networks = tuple[Namespace, Namespace]


def serve() -> None:
    """Echo on the TPROXY listener and on the router's API port, until killed."""
    proxy = socket.socket()
    proxy.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
    proxy.bind(("127.0.0.1", PROXY_PORT))
    proxy.listen()
    api = socket.create_server((ROUTER, API_PORT))
    listeners = [proxy, api]
    open_: list[socket.socket] = []
    while True:
        for ready in select.select(listeners + open_, [], [])[0]:
            if ready in listeners:
                open_.append(ready.accept()[0])
                continue
            try:
                data = ready.recv(64).removesuffix(GOODBYE)
                ready.sendall(data)
            except OSError:
                data = b""
            if not data:
                open_.remove(ready)
                ready.close()


def until_served() -> None:
    """Wait for the listeners."""
    for _ in range(200):
        try:
            socket.create_connection((ROUTER, API_PORT), timeout=2).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
    raise TimeoutError


@pytest.fixture
def networks() -> Iterator[Networks]:
    """Yield clients in one namespace, and a router with an echoing proxy in the other."""
    with Namespace() as clients, Namespace() as router:
        clients.cable("eth0", router, "lan0")
        clients.shell(f"""
            ip address add {MOVED}/24 dev eth0
            ip address add {OTHER}/24 dev eth0
            ip route add default via {ROUTER}
        """)
        router.shell(f"""
            ip address add {ROUTER}/24 dev lan0
            ip rule add fwmark 1 lookup 100
            ip route add local default dev lo table 100
            nft -f - <<END
            table ip proxy {{
                chain pre {{
                    type filter hook prerouting priority mangle; policy accept;
                    ip daddr {OUTSIDE} meta mark set 1
                    ip daddr {OUTSIDE} tcp dport 1-65535 tproxy to 127.0.0.1:{PROXY_PORT}
                }}
            }}
END
        """)
        router.start(serve)
        clients.run(until_served)
        yield clients, router


def talk(deaths: int) -> dict[str, bool]:
    """Keep four connections busy until `deaths` of them have ended and a little longer, and return
    which are alive.
    """
    ways = {
        "moved": (MOVED, OUTSIDE, 80),
        "moved again": (MOVED, OUTSIDE, 443),
        "moved to the router": (MOVED, ROUTER, API_PORT),
        "other": (OTHER, OUTSIDE, 80),
    }
    connections = {
        name: socket.create_connection((target, port), timeout=5, source_address=(source, 0))
        for name, (source, target, port) in ways.items()
    }
    alive = dict.fromkeys(connections, True)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for name, connection in connections.items():
            if not alive[name]:
                continue
            try:
                connection.sendall(b"ping")
                alive[name] = connection.recv(4) == b"ping"
            except ConnectionError:
                alive[name] = False
        if list(alive.values()).count(False) >= deaths:
            end = min(end, time.monotonic() + 0.3)
        time.sleep(0.01)
    return alive


def listed(clients: list[str]) -> list[ClientSocket]:
    return list(sockets.of_clients(clients))


def until_there(router: Namespace, clients: list[str], count: int) -> list[ClientSocket]:
    for _ in range(500):
        if len(found := router.run(listed, clients)) == count:
            return found
        time.sleep(0.01)
    pytest.fail(f"{len(found)} sockets, not {count}")


def until_in_state(router: Namespace, state: str, count: int) -> None:
    """Wait for `count` connections of the first client in a state, by its name in ss(8)."""
    for _ in range(500):
        if router.shell(f"ss -Htn state {state}").count(MOVED) == count:
            return
        time.sleep(0.01)
    pytest.fail(f"the router has not {count} connections in {state}")


def test_only_connections_of_the_moved_clients_end(networks: Networks) -> None:
    clients, router = networks
    talker = clients.start(talk, 2)
    found = until_there(router, [MOVED, OTHER], 4)
    of_moved = {s.local for s in found if str(s.remote[0]) == MOVED}
    assert of_moved == {
        (IPv4Address(OUTSIDE), 80),
        (IPv4Address(OUTSIDE), 443),
        (IPv4Address(ROUTER), API_PORT),
    }
    ended = router.run(sockets.destroy_clients, [MOVED], [IPv4Address(ROUTER)])
    assert ended == 2
    assert talker.result() == {
        "moved": False,
        "moved again": False,
        "moved to the router": True,
        "other": True,
    }


def test_a_client_can_be_a_network(networks: Networks) -> None:
    clients, router = networks
    talker = clients.start(talk, 4)
    until_there(router, [MOVED, OTHER], 4)
    assert len(router.run(listed, ["10.1.0.0/31"])) == 0
    assert len(router.run(listed, ["10.1.0.3-10.1.0.9"])) == 1
    assert len(router.run(listed, [f"10.1.0.{n}" for n in range(3, 250, 2)])) == 1
    assert router.run(sockets.destroy_clients, ["10.1.0.0/29"], [], lambda c: c == OTHER) == 3
    assert router.run(sockets.destroy_clients, ["10.1.0.0/29"], []) == 1
    assert not any(talker.result().values())


def test_a_closed_connection_kept_by_the_client_is_ignored(networks: Networks) -> None:
    """The kernel keeps one for 60 s in FIN_WAIT2 (tcp_fin_timeout, tcp(7)), without a tcp_info."""
    clients, router = networks

    def keep() -> None:
        places = ((OUTSIDE, 53), (OUTSIDE, 80), (ROUTER, API_PORT))
        with ExitStack() as opened:
            for word in (b"ping", GOODBYE):
                for place in places:
                    connection = socket.create_connection(place, 5, source_address=(MOVED, 0))
                    opened.enter_context(connection).sendall(word)
            time.sleep(60)

    def found() -> tuple[int, int, int]:
        own = [IPv4Address(ROUTER)]
        asking = len(sockets.askers(own))
        calling = len(sockets.callers([API_PORT]))
        return asking, calling, sockets.count_by_client(own).total()

    clients.start(keep)
    until_in_state(router, "fin-wait-2", 3)
    assert router.run(found) == (1, 1, 1)


def test_a_connection_that_both_sides_have_closed_is_not_counted(networks: Networks) -> None:
    """It stays in LAST_ACK as long as the client does not acknowledge the proxy's end."""
    clients, router = networks

    def keep() -> None:
        with ExitStack() as opened:
            open_, closed = (
                opened.enter_context(socket.create_connection((OUTSIDE, 80), 5)) for _ in range(2)
            )
            for each in (open_, closed):
                each.sendall(b"ping")
                assert each.recv(4) == b"ping"
            closed.shutdown(socket.SHUT_WR)
            time.sleep(60)

    router.shell("""
        nft add chain ip proxy out '{ type filter hook output priority 0; }'
        nft add rule ip proxy out tcp sport 80 tcp flags '&' fin == fin drop
    """)
    clients.start(keep)
    until_in_state(router, "last-ack", 1)
    assert router.run(sockets.count_by_client, [IPv4Address(ROUTER)]).total() == 1


@pytest.mark.parametrize("others", [range(0), range(2000, 2100)])
def test_only_connections_to_the_routers_own_ports_are_ended(
    networks: Networks, others: range
) -> None:
    clients, router = networks
    talker = clients.start(talk, 1)
    until_there(router, [MOVED, OTHER], 4)
    assert router.run(sockets.destroy_callers, {80, *others}) == 0
    assert router.run(sockets.destroy_callers, {API_PORT, *others}) == 1
    assert talker.result() == {
        "moved": True,
        "moved again": True,
        "moved to the router": False,
        "other": True,
    }


def test_connected_udp_sockets_are_ended(networks: Networks) -> None:
    _, router = networks

    def body() -> tuple[int, int]:
        outcomes = []
        for client in (MOVED, OTHER):
            reply = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            reply.setsockopt(socket.SOL_IP, _IP_TRANSPARENT, 1)
            reply.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reply.bind((OUTSIDE, 53))
            reply.connect((client, 5353))
            outcomes.append(reply)
        ended = sockets.destroy_clients([MOVED], [IPv4Address(ROUTER)])
        broken = 0
        for reply in outcomes:
            reply.setblocking(False)
            try:
                reply.recv(1)
            except BlockingIOError:
                pass
            except ConnectionAbortedError:
                broken += 1
        return ended, broken

    assert router.run(body) == (1, 1)


def test_connections_between_the_routers_programs_continue(networks: Networks) -> None:
    _, router = networks

    def body() -> int:
        with (
            socket.create_server(("127.0.0.1", 9000)) as server,
            socket.create_connection(server.getsockname()) as one,
            server.accept()[0] as other,
        ):
            ended = sockets.destroy_clients(["0.0.0.0/0"], [IPv4Address(ROUTER)])
            one.sendall(b"ping")
            assert other.recv(4) == b"ping"
        return ended

    assert router.run(body) == 0


def test_only_stalled_connections_to_the_given_ends_are_ended(networks: Networks) -> None:
    """Past fault: a stalled TCP connection that all clients of a node share kept the node dead for
    long after an outage.
    """
    _, router = networks

    def body() -> tuple[list[int], list[int]]:
        with ExitStack() as opened:
            for port in (443, 8443):
                opened.enter_context(socket.create_server(("127.0.0.1", port)))
            stalled, idle, other = (
                opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                for port in (443, 443, 8443)
            )
            router.shell("""
                nft add table ip silence
                nft add chain ip silence input '{ type filter hook input priority 0; }'
                nft add rule ip silence input iifname lo tcp dport '{ 443, 8443 }' drop
            """)
            for sender in (stalled, other):
                sender.sendall(b"ping")
            time.sleep(1)

            def end(uid: int, patience_s: float) -> int:
                return sockets.destroy_stalled(
                    {443, 8443}, lambda _, port: port == 443, uid, patience_s
                )

            ended = [end(os.getuid() + 1, 0), end(os.getuid(), 60), end(os.getuid(), 0)]
            errors = [
                each.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                for each in (stalled, idle, other)
            ]
        return ended, errors

    assert router.run(body) == ([0, 0, 1], [errno.ECONNABORTED, 0, 0])


def test_2_000_sockets_are_ended_quickly(networks: Networks) -> None:
    _, router = networks
    router.shell("ip address add 10.9.0.1/16 dev lo")

    def body() -> tuple[float, float]:
        server = socket.create_server(("10.9.255.1", 9000), backlog=4096)
        kept = []
        for number in range(2000):
            client = socket.socket()
            client.bind((f"10.9.{number // 250}.{number % 250 + 1}", 0))
            client.connect(("10.9.255.1", 9000))
            kept += [client, server.accept()[0]]
        began = time.perf_counter()
        assert sockets.destroy_clients(["10.9.0.7"], []) == 1
        one = time.perf_counter()
        assert sockets.destroy_clients(["10.9.1.0/24"], []) == 250
        many = time.perf_counter()
        assert len(kept) == 4000
        return one - began, many - one

    one, many = router.run(body)
    assert one < 0.1
    assert many < 0.5
