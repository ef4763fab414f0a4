"""Proxy services with real clients: each leaves by its own interface, or not at all."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd.netd.kernel import open_files
from egressd.planner.bounds import bounds_of
from egressd.planner.registry import MARK_PAST, MARK_SIGNED_IN
from egressd_lab import netns
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.lab.five import heard, overview
from tests.support.device import SERVER, asked, clear, elements, eventually, send
from tests.support.netns import JoinedNamespace
from tests.support.programs import socks

pytestmark = pytest.mark.lab

USER, PASSWORD = "lab", "open-sesame"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(wans=4, nodes=())) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _no_services(lab: Lab) -> Iterator[None]:
    yield
    ids = [service["id"] for service in lab.api.get("/proxy-services")["data"]]
    lab.api.delete("/proxy-services/batch", {"ids": ids})
    for name in ("guessers", "guesses", "callers", "tries", "strangers", "strangers_of_networks"):
        lab.router.run("nft", "flush", "set", "inet", "egressd", name)


def exits(lab: Lab) -> dict[str, str]:
    """Return interface -> the address that servers should see."""
    return {wan.interface: wan.address for wan in lab.wans}


def add(lab: Lab, port: int, interface: str = "wan1", **fields: object) -> int:
    """Add a service with the lab's password, or with other fields, and return its id."""
    body = {
        "name": f"s{port}",
        "outbound_interface": interface,
        "port": port,
        "username": USER,
        "password": PASSWORD,
        "is_enabled": True,
    }
    number: int = lab.api.post("/proxy-services", body | fields)["id"]
    return number


def curl(
    host: Host,
    port: int,
    *,
    scheme: str = "socks5h",
    user: str = f"{USER}:{PASSWORD}",
    url: str = f"http://{SERVER}/",
    proxy: str = str(LAN_ADDRESS),
    source: str = "",
    seconds: int = 5,
) -> str:
    """Return the address that a server saw curl at, or curl's exit status."""
    argv = ["curl", "-sk", "-m", str(seconds), "-x", f"{scheme}://{proxy}:{port}"]
    argv += ["--interface", source] if source else []
    argv += ["-U", user] if user else []
    done = host.run(*argv, url, check=False)
    try:
        return str(json.loads(done.stdout)["ip"])
    except ValueError:
        return f"curl: {done.returncode}"


def datagram(
    host: Host, port: int, *, user: str = USER, password: str = PASSWORD, proxy: str = ""
) -> str:
    """Return the address that an echo server saw a datagram come from, or an error."""
    argv = [proxy or str(LAN_ADDRESS), str(port), user, password, SERVER, "7"]
    return host.run(sys.executable, str(Path(socks.__file__)), *argv).stdout.strip()


def connected(host: Host, port: int = 1080, proxy: str = "") -> socket.socket:
    """Return a connection to a service on which no data was sent yet."""
    connection = host.socket(proxy or str(LAN_ADDRESS), port)
    connection.settimeout(3)
    return connection


@contextmanager
def signed_in(
    host: Host, *, password: str = PASSWORD, proxy: str = "", port: int = 1080
) -> Iterator[socket.socket]:
    """Yield a connection to a service that expects the request next."""
    with connected(host, port, proxy) as connection:
        socks.negotiate(connection, USER if password else "", password)
        yield connection


def by_relay(host: Host, relay: tuple[str, int], options: int = 0) -> str:
    """Return the address that an echo server saw a datagram come from, by another client's relay.

    `options`: octets of IP options in its header.
    """
    argv = [relay[0], str(relay[1]), *([str(options)] if options else []), SERVER, "7"]
    return host.run(sys.executable, str(Path(socks.__file__)), *argv).stdout.strip()


@contextmanager
def listening(host: Host, port: int, address: str = "") -> Iterator[None]:
    """Run a web server on that host, at all of its addresses or at one."""
    server = f"""
import http.server
server = http.server.HTTPServer(("{address}", {port}), http.server.SimpleHTTPRequestHandler)
print("ready", flush=True)
server.serve_forever()
"""
    argv = exec_argv(host.namespace, [sys.executable, "-c", server])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            yield
        finally:
            program.kill()


REFUSED = "TimeoutError: timed out"


def refused(relay: tuple[str, int], *hosts: Host, options: int = 0) -> bool:
    """True if another client's relay serves none of these hosts."""
    with ThreadPoolExecutor(len(hosts)) as pool:
        return {*pool.map(lambda host: by_relay(host, relay, options), hosts)} == {REFUSED}


@pytest.mark.parametrize("interface", ["wan1", "wan3"])
def test_every_protocol_of_a_service_leaves_by_its_interface(lab: Lab, interface: str) -> None:
    add(lab, 1080, interface)
    client = lab.client(1).host
    there = exits(lab)[interface]
    assert curl(client, 1080) == there
    assert curl(client, 1080, scheme="socks5", url=f"https://{SERVER}/") == there
    assert curl(client, 1080, url="http://www.test/") == there
    assert curl(client, 1080, scheme="http") == there
    assert curl(client, 1080, scheme="http", url=f"https://{SERVER}/") == there
    assert datagram(client, 1080) == there


def test_a_hundred_services_each_leave_by_their_interface(lab: Lab) -> None:
    names = list(exits(lab))
    ports = {31_000 + n: names[n % len(names)] for n in range(100)}
    rows = [f"{name},{port},{USER},{PASSWORD}" for port, name in ports.items()]
    answer = lab.api.post("/proxy-services/import", {"text": "\n".join(rows), "replace": True})
    assert answer["imported"] == 100
    assert lab.api.get("/proxy-services/quota") == {"quota": 1000, "used": 100}
    client = lab.client(1).host
    with ThreadPoolExecutor(4) as pool:
        seen = dict(zip(ports, pool.map(lambda port: curl(client, port), ports), strict=True))
        heard = dict(zip(ports, pool.map(lambda port: datagram(client, port), ports), strict=True))
    assert seen == heard == {port: exits(lab)[name] for port, name in ports.items()}


def test_a_service_on_an_interface_that_is_down_refuses(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    add(lab, 1081, "wan1")
    client, wan = lab.client(1).host, lab.wan(2)
    assert curl(client, 1080) == wan.address
    wan.lower()
    try:
        eventually(lambda: curl(client, 1080) != wan.address)
        mark = lab.internet.mark()
        begun = time.monotonic()
        assert curl(client, 1080).startswith("curl:")
        assert curl(client, 1080, scheme="http") != wan.address
        assert time.monotonic() - begun < 2
        assert datagram(client, 1080) == "TimeoutError: timed out"
        assert asked(lab, mark) == []
        assert curl(client, 1081) == lab.wan(1).address
    finally:
        wan.restore()
    eventually(lambda: curl(client, 1080) == wan.address)
    assert datagram(client, 1080) == wan.address


def test_a_service_on_a_missing_interface_refuses_until_it_exists(lab: Lab) -> None:
    add(lab, 1080, "wan9")
    assert curl(lab.client(1).host, 1080).startswith("curl:")
    assert datagram(lab.client(1).host, 1080).startswith(("TimeoutError", "Refused"))


def test_the_routers_own_servers_are_not_reached_through_a_service(lab: Lab) -> None:
    add(lab, 1080)
    client = lab.client(1).host
    urls = [
        f"http://{address}:8787/ops/health"
        for address in ("127.0.0.1", str(LAN_ADDRESS), lab.wan(1).address)
    ]
    with ThreadPoolExecutor(len(urls)) as pool:
        answers = [*pool.map(lambda url: curl(client, 1080, url=url), urls)]
    assert all(answer.startswith("curl:") for answer in answers)


def test_no_service_gives_access_to_the_lan_or_the_router(lab: Lab) -> None:
    """Past fault: a proxy service with `lo` or a LAN as its interface opened the router's own
    servers, or the LAN, to its callers.
    """
    client = lab.client(1)
    with pytest.raises(Failed, match="outbound_interface must not be lo"):
        add(lab, 1080, "lo")
    add(lab, 1081, "lan0")
    server = f"http://{client.address}:8000/"
    with listening(client.host, 8000):
        near = ["curl", "-s", "-m", "2", server]
        assert lab.client(2).host.run(*near, check=False).returncode == 0
        by_service = ["-x", f"socks5h://{lab.wan(1).address}:1081", "-U", f"{USER}:{PASSWORD}"]
        assert lab.internet.run(*near, *by_service, check=False).returncode != 0


def test_a_service_whose_port_is_in_use_is_reported_and_recovers(lab: Lab) -> None:
    """Past fault: a service with a port of the ephemeral range could lose it to any connection of
    the router. The kernel now reserves such ports.
    """
    add(lab, 43750)
    assert curl(lab.client(1).host, 43750) == exits(lab)["wan1"]
    reserved = "/proc/sys/net/ipv4/ip_local_reserved_ports"
    assert "43750" in lab.router.run("cat", reserved).stdout
    lab.api.ask("POST", "/ops/stop", {})
    with listening(lab.router, 43750):
        assert lab.api.ask("POST", "/ops/start", {}).status == 200
        (problem,) = lab.api.ask("GET", "/ops/overview").body["problems"]
        assert problem.startswith("the proxy service s43750 does not run: ")
        assert problem.endswith("address already in use")
    eventually(lambda: curl(lab.client(1).host, 43750) == exits(lab)["wan1"], 40)
    eventually(lambda: lab.api.ask("GET", "/ops/overview").body["problems"] == [], 40)


def test_a_wrong_password_is_refused(lab: Lab) -> None:
    add(lab, 1080)
    client = lab.client(1).host
    assert curl(client, 1080, user=f"{USER}:wrong") == "curl: 97"
    assert curl(client, 1080, user="nobody:x") == "curl: 97"
    assert curl(client, 1080, user="") == "curl: 97"
    assert curl(client, 1080, user=f"{USER}:wrong", scheme="http").startswith("curl:")
    assert datagram(client, 1080, password="wrong") == "Refused: password"
    assert curl(client, 1080) == exits(lab)["wan1"]


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
def test_wrong_passwords_block_the_client_for_a_while(lab: Lab, scheme: str) -> None:
    add(lab, 1080)
    add(lab, 1081)
    guesser, other = lab.client(1).host, lab.client(2).host
    with guesser.socket(str(LAN_ADDRESS), 1080) as held:
        held.settimeout(5)
        socks.negotiate(held, USER, PASSWORD)
        socks.request(held, socks.CONNECT, SERVER, 7)
        held.recv(100)
        answers = [curl(guesser, 1080, user=f"{USER}:{n}", scheme=scheme) for n in range(25)]
        assert answers.count("curl: 7") >= 10  # no connection
        assert curl(guesser, 1080) == curl(guesser, 1081) == "curl: 7"
        assert curl(other, 1080) == exits(lab)["wan1"]
        held.sendall(b"still here\n")
        assert held.recv(100) == b"still here\n"
    waiting = lab.router.run("nft", "list", "set", "inet", "egressd", "guessers").stdout
    assert lab.client(1).address in waiting
    assert "expires" in waiting


def test_without_a_password_only_the_lan_may_connect(lab: Lab) -> None:
    add(lab, 1080, username="", password="")
    for wan in lab.wans[:2]:
        assert curl(lab.internet, 1080, user="", proxy=wan.address) == "curl: 7"
        assert curl(lab.internet, 1080, user="", scheme="http", proxy=wan.address) == "curl: 7"
    client = lab.client(1).host
    assert curl(client, 1080, user="") == exits(lab)["wan1"]
    assert curl(client, 1080, user="", scheme="http") == exits(lab)["wan1"]
    assert datagram(client, 1080, user="", password="") == exits(lab)["wan1"]


@pytest.mark.parametrize("number", [1, 2])
def test_with_the_password_any_host_may_connect(lab: Lab, number: int) -> None:
    add(lab, 1080, "wan3")
    proxy = lab.wan(number).address
    assert curl(lab.internet, 1080, proxy=proxy) == exits(lab)["wan3"]
    assert curl(lab.internet, 1080, proxy=proxy, scheme="http") == exits(lab)["wan3"]
    assert datagram(lab.internet, 1080, proxy=proxy) == exits(lab)["wan3"]


def test_an_edit_cuts_no_connection_of_another_service(lab: Lab) -> None:
    edited, kept = add(lab, 1080), add(lab, 1081)
    assert edited != kept
    client = lab.client(1).host
    body = {
        "name": "s1080",
        "outbound_interface": "wan2",
        "port": 1080,
        "username": USER,
        "password": "another",
        "is_enabled": True,
    }
    with client.socket(str(LAN_ADDRESS), 1081) as held:
        held.settimeout(5)
        socks.negotiate(held, USER, PASSWORD)
        socks.request(held, socks.CONNECT, SERVER, 7)
        held.recv(100)
        lab.api.put(f"/proxy-services/{edited}", body)
        assert curl(client, 1080, user=f"{USER}:another") == exits(lab)["wan2"]
        assert curl(client, 1080) == "curl: 97"
        # Change both at once, each to the other's port:
        rows = f"s1080,wan2,1081,{USER},another\ns1081,wan1,1080,{USER},{PASSWORD}"
        held.sendall(b"still here\n")
        assert held.recv(100) == b"still here\n"
    lab.api.post("/proxy-services/import", {"text": rows, "replace": True})
    assert curl(client, 1081, user=f"{USER}:another") == exits(lab)["wan2"]
    assert curl(client, 1080) == exits(lab)["wan1"]
    for enabled in (False, True):
        lab.api.patch(f"/proxy-services/{edited}/status", {"is_enabled": enabled})
        refused = curl(client, 1081, user=f"{USER}:another").startswith("curl:")
        assert refused != enabled


def test_a_port_in_use_is_refused(lab: Lab) -> None:
    reasons = {22: "SSH", 8787: "the API", 20_000: "the engine", 1090: "another program"}
    with listening(lab.router, 1090, "127.0.0.1"):
        for port, reason in reasons.items():
            body = {"name": "x", "outbound_interface": "wan1", "port": port}
            answer = lab.api.ask("POST", "/svc/api/v1/proxy-services", body)
            assert answer.status == 400
            assert reason in answer.body["error"]
    add(lab, 1090)
    assert curl(lab.client(1).host, 1090) == exits(lab)["wan1"]


@pytest.mark.parametrize("at", ["lan", "wan"])
@pytest.mark.parametrize("password", [PASSWORD, ""])
def test_an_association_serves_only_the_client_that_requested_it(
    lab: Lab, password: str, at: str
) -> None:
    add(lab, 1080, "wan2", password=password, username=USER if password else "")
    owner = lab.client(1).host
    proxy = str(LAN_ADDRESS) if at == "lan" else lab.wan(1).address
    with signed_in(owner, password=password, proxy=proxy) as control:
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
        mark = lab.internet.mark()
        assert refused(relay, lab.client(2).host, lab.internet)
        assert asked(lab, mark) == []
        assert by_relay(owner, relay) == exits(lab)["wan2"]
        assert refused(relay, lab.client(2).host)


@pytest.mark.parametrize("options", [4, 20, 40])
def test_ip_options_do_not_open_an_association_to_others(lab: Lab, options: int) -> None:
    add(lab, 1080, "wan2")
    owner = lab.client(1).host
    with signed_in(owner) as control:
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
        mark = lab.internet.mark()
        assert refused(relay, lab.client(2).host, options=options)
        assert asked(lab, mark) == []
        assert by_relay(owner, relay, options) == exits(lab)["wan2"]


def test_an_outside_clients_association_serves_only_that_client(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    with signed_in(lab.internet, proxy=lab.wan(2).address) as control:
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
        assert refused(relay, lab.client(1).host)
        assert by_relay(lab.internet, relay) == exits(lab)["wan2"]


@pytest.mark.parametrize("password", [PASSWORD, ""])
def test_a_pipelined_association_serves_only_its_client(lab: Lab, password: str) -> None:
    add(lab, 1080, "wan2", password=password, username=USER if password else "")
    owner = lab.client(1).host
    greeting, name, word = b"\x05\x01\x00", USER.encode(), password.encode()
    if password:
        greeting = b"\x05\x01\x02\x01" + bytes([len(name)]) + name + bytes([len(word)]) + word
    with connected(owner) as control:
        control.sendall(greeting + b"\x05\x03\x00\x01\0\0\0\0\0\0")
        answer = b""
        while len(answer) < (14 if password else 12):
            answer += control.recv(64)
        relay = socket.inet_ntoa(answer[-6:-2]), int.from_bytes(answer[-2:], "big")
        assert refused(relay, lab.client(2).host)
        assert by_relay(owner, relay) == exits(lab)["wan2"]


def test_associations_do_not_depend_on_rules_for_the_client(lab: Lab) -> None:
    add(lab, 1080, "wan1")
    owner = lab.client(1).host
    send(lab, 1, "Interface:wan2")
    with signed_in(owner) as control, signed_in(owner) as tunnel:
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
        assert by_relay(owner, relay) == exits(lab)["wan1"]
        send(lab, 1, "Interface:wan1")
        time.sleep(3)  # the rest of the client's flows is removed
        marks = lab.router.run("conntrack", "-L", "-p", "tcp", "--dport", "1080").stdout
        assert f"mark={MARK_SIGNED_IN}" in marks
        assert f"mark={MARK_PAST}" in marks
        socks.request(tunnel, socks.CONNECT, SERVER, 7)
        assert refused(relay, lab.client(2).host)
        assert by_relay(owner, relay) == exits(lab)["wan1"]
    clear(lab)


def test_a_connection_to_a_service_is_not_listed_and_not_closed(lab: Lab) -> None:
    """Past fault: closing all connections of a client took the mark from those that it had with
    proxy services, and their packets waited for ever.
    """
    add(lab, 1080)
    client = f"/ops/connections?client={lab.client(1).address}"
    with signed_in(lab.client(1).host) as tunnel:
        socks.request(tunnel, socks.CONNECT, SERVER, 7)
        assert lab.api.ask("GET", client).body == {"total": 0, "data": []}
        assert lab.api.ask("DELETE", client).body["closed"] == 0
        tunnel.sendall(b"hello")
        assert exits(lab)["wan1"] in tunnel.recv(100).decode()


def test_the_port_of_a_relay_belongs_to_its_latest_owner(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    former, latter = lab.client(1).host, lab.client(2).host
    before = lab.router.run("sysctl", "-n", "net.ipv4.ip_local_port_range").stdout.split()
    lab.router.sysctl("net/ipv4/ip_local_port_range", "45000 45007")
    try:
        with signed_in(former) as control:
            relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
            assert by_relay(former, relay) == exits(lab)["wan2"]
        for _ in range(200):
            with signed_in(latter) as control:
                if socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0) == relay:
                    assert refused(relay, former)
                    assert by_relay(latter, relay) == exits(lab)["wan2"]
                    return
        pytest.fail("it got another port each time")
    finally:
        lab.router.sysctl("net/ipv4/ip_local_port_range", " ".join(before))


def known_relays(lab: Lab) -> set[int]:
    """Return the ports that the kernel takes for relays, those of earlier ones included."""
    listed = elements(lab, "map", "relay_ports").split(",")
    return {int(one.partition(":")[0], 0) for one in listed if one}


def test_other_sockets_receive_datagrams_from_all_hosts(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    before = known_relays(lab)
    with signed_in(lab.client(1).host) as control:
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
    with signed_in(lab.client(1).host) as tunnel:
        _, other = socks.request(tunnel, socks.CONNECT, SERVER, 7)
        # A far end cannot announce a relay.
        tunnel.sendall(b"\x05\x00\x00\x01\x7f\0\0\x01\xc8\x01\n")
        tunnel.recv(100)
        relays = known_relays(lab)
    assert relay[1] in relays
    assert not {other, 0xC801} & (relays - before)
    hear = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM);"
        f"s.bind(('0.0.0.0', {relay[1]})); print(flush=True); print(s.recv(9).decode(), flush=True)"
    )
    say = f"import socket; s = socket.socket(type=2); s.sendto(b'hello', {relay!r})"
    argv = exec_argv(lab.router.namespace, [sys.executable, "-c", hear])
    known = elements(lab, "set", "associations")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        lab.client(2).host.run(sys.executable, "-c", say)
        assert listener.stdout.readline() == "hello\n"
    after = elements(lab, "set", "associations")
    assert known.count("expires") == after.count("expires")


def is_served(connection: socket.socket, *, is_signed_in: bool) -> bool:
    """True if the service continues with a client."""
    try:
        if not is_signed_in:
            socks.negotiate(connection, USER, PASSWORD)
        socks.request(connection, socks.CONNECT, SERVER, 7)
    except (OSError, socks.Refused):
        return False
    return True


@pytest.mark.parametrize("end", ["delete", "disable", "password", "interface", "stop"])
def test_nothing_remains_of_a_deleted_service(lab: Lab, end: str) -> None:
    """Past fault: proxy services continued while the device was stopped."""
    send(lab, 3, "Interface:wan2")  # keeps wan2 an egress
    number = add(lab, 1080, "wan2")
    kept = add(lab, 1081, "wan2")
    client = lab.client(1).host
    body = {
        "name": "s1080",
        "outbound_interface": "wan1" if end == "interface" else "wan2",
        "port": 1080,
        "username": USER,
        "password": "another" if end == "password" else PASSWORD,
        "is_enabled": end != "disable",
    }
    with (
        connected(client) as silent,
        signed_in(client) as half,
        signed_in(client) as control,
        signed_in(client, port=1081) as other,
    ):
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
        others = socks.request(other, socks.ASSOCIATE, "0.0.0.0", 0)
        if end == "delete":
            lab.api.delete(f"/proxy-services/{number}")
        elif end == "stop":
            assert lab.api.ask("POST", "/ops/stop", {}).status == 200
        else:
            lab.api.put(f"/proxy-services/{number}", body)
        mark = lab.internet.mark()
        assert by_relay(client, relay) == "ConnectionRefusedError: [Errno 111] Connection refused"
        for connection in (silent, half):
            assert not is_served(connection, is_signed_in=connection is half)
        assert asked(lab, mark) == []
        if end == "stop":
            assert lab.api.ask("POST", "/ops/start", {}).status == 200
            with signed_in(client) as again:
                assert is_served(again, is_signed_in=True)
        else:
            assert by_relay(client, others) == exits(lab)["wan2"]
    lab.api.delete(f"/proxy-services/{kept}")
    clear(lab)


def test_wrong_passwords_on_earlier_connections_are_limited(lab: Lab) -> None:
    add(lab, 1080)
    guesser = lab.client(1).host
    judged = 0
    with signed_in(guesser) as asking, ExitStack() as opened:
        held = [opened.enter_context(connected(guesser)) for _ in range(60)]
        for number, connection in enumerate(held):
            try:
                socks.negotiate(connection, USER, f"guess{number}")
            except socks.Refused as refused:
                judged += str(refused) == "password"
            except OSError:
                pass
        socks.request(asking, socks.CONNECT, SERVER, 7)
        asking.recv(100)
        asking.sendall(b"still here\n")
        assert asking.recv(100) == b"still here\n"
    assert 10 <= judged <= 20


@pytest.mark.parametrize("at", ["lan", "wan"])
def test_concurrent_wrong_passwords_are_limited(lab: Lab, at: str) -> None:
    """All guesses are on their way before the first is answered."""
    add(lab, 1080)
    guesser = lab.client(1).host
    proxy = str(LAN_ADDRESS) if at == "lan" else lab.wan(1).address
    told = []
    with ExitStack() as opened:
        held = [opened.enter_context(connected(guesser, proxy=proxy)) for _ in range(40)]
        for number, connection in enumerate(held):
            with suppress(OSError):
                connection.sendall(b"\x05\x01\x02\x01\x01x\x02%02d" % number)
        for connection in held:
            with suppress(OSError):
                answer = b""
                while len(answer) < 4 and (part := connection.recv(64)):
                    answer += part
                told.append(answer[2:])
    assert 10 <= told.count(b"\x01\x01") <= 20


def test_wrong_passwords_in_any_version_of_http_count(lab: Lab) -> None:
    add(lab, 1080)
    judged = 0
    for _ in range(25):
        with suppress(OSError, Failed), connected(lab.client(1).host) as connection:
            connection.sendall(
                b"CONNECT 203.0.113.10:80 HTTP/1.0\r\nProxy-Authorization: Basic eDp5\r\n\r\n"
            )
            judged += connection.recv(64).startswith(b"HTTP/1.0 407")
    assert 10 <= judged <= 20


def test_a_user_without_a_password_does_not_stop_the_service(lab: Lab) -> None:
    lab.api.post("/proxy-services/import", {"text": f"wan1,1080,{USER}"})
    for scheme in ("http", "socks5h"):
        for number in (1, 2):
            proxy = lab.wan(number).address
            answer = curl(lab.internet, 1080, user=f"{USER}:", scheme=scheme, proxy=proxy)
            assert answer == "curl: 7"
    assert curl(lab.client(1).host, 1080, user=f"{USER}:", scheme="http") == exits(lab)["wan1"]


TAKER = """
import os, socket, sys, time
os.setresuid(65534, 65534, 65534)
print("ready", flush=True)
while True:
    for address in ("", "127.0.0.1"):
        with socket.socket() as sock:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                sock.bind((address, int(sys.argv[1])))
                print("taken", flush=True)
            except OSError:
                pass
    time.sleep(0.001)
"""
"""A program of a user without rights, which takes a port as soon as it is free."""


def has_another(lab: Lab, part: str, ended: list[int]) -> bool:
    return not {*lab.device.pids(part)} <= {*ended}


def test_no_other_user_gets_the_port_of_a_service_during_restarts(lab: Lab) -> None:
    add(lab, 1080)
    argv = exec_argv(lab.router.namespace, [sys.executable, "-c", TAKER, "1080"])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as taker:
        try:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "ready\n"
            for part in ("egressd.app netd", "engine.worker", "egressd.app api"):
                for pid in (ended := lab.device.pids(part)):
                    os.kill(pid, signal.SIGKILL)
                eventually(partial(has_another, lab, part, ended), 30)
                lab.device.wait_healthy()
                eventually(lambda: curl(lab.client(1).host, 1080) == exits(lab)["wan1"], 30)
        finally:
            taker.kill()
        assert taker.stdout.read() == ""


# --- Bounds on one client. --------------------------------------------------------------------

HANDSHAKE_S = 10.0
"""Seconds in which a client must sign in, or its connection is ended."""
LATE_S = 2.0
STRANGERS = 60
"""Connections without a login that one source may open at once."""
STRANGERS_OF_A_NETWORK = 120
"""Connections without a login that all sources in a /24 may open at once."""
OTHER_SOURCE = "8.8.8.8"
"""Another address on the internet."""


def open_all(host: Host, number: int, proxy: str, *words: bytes) -> dict[socket.socket, bytes]:
    """Return the accepted connections of `number`, each with its first word: one of `words`, in
    turn.
    """
    found = {}
    for word, _ in zip(itertools.cycle(words), range(number), strict=False):
        with suppress(OSError, Failed):
            connection = connected(host, proxy=proxy)
            connection.sendall(word)
            found[connection] = word
    return found


def ended(connections: dict[socket.socket, bytes], seconds: float) -> list[float]:
    """Send each connection its bytes repeatedly, and return the seconds until each was ended, up
    to `seconds`.
    """
    begun, left = time.monotonic(), dict(connections)
    after = []
    while left and time.monotonic() < begun + seconds:
        for connection, trickle in left.items():
            if trickle:
                with suppress(OSError):
                    connection.send(trickle)
        for connection in select.select(left, [], [], 0.2)[0]:
            with suppress(OSError):
                if connection.recv(64):
                    continue
            after.append(time.monotonic() - begun)
            del left[connection]
    return after


UNFINISHED = {
    b"": b"",
    b"\x05": b"",
    b"\x05\xff": b"\x07",
    b"CONNECT 203.0.113.10:80 HTTP/1.1\r\nHost: 203.": b"",
    b"GET http://203.0.113.10/ HTTP/1.1\r\n": b"a",
}
"""First word -> what follows again and again: each is a login that is never finished."""


def test_unauthenticated_connections_time_out_and_lock_out_no_one_else(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    add(lab, 1081, "wan2", username="", password="")
    proxy, there = lab.wan(1).address, exits(lab)["wan2"]
    with heard(lab) as five, ExitStack() as opened:
        connections = open_all(lab.internet, 200, proxy, *UNFINISHED)
        for connection in connections:
            opened.enter_context(connection)
        assert STRANGERS <= len(connections) < STRANGERS + 20
        five.await_news("connections to the proxy service s1080 do not sign in", 3)
        (source,) = [r["source"] for r in overview(lab)["reached"] if r["kind"] == "strangers"]
        assert source == lab.wan(1).gateway
        assert any(problem.startswith(f"{source}: ") for problem in overview(lab)["problems"])
        for client in (1, 2):
            assert curl(lab.client(client).host, 1080) == there
            assert curl(lab.client(client).host, 1081, user="") == there
        assert curl(lab.internet, 1080, proxy=proxy, source=OTHER_SOURCE) == there
        trickles = {connection: UNFINISHED[word] for connection, word in connections.items()}
        after = ended(trickles, HANDSHAKE_S + LATE_S)
        assert len(after) == len(connections)
        assert min(after) > HANDSHAKE_S - LATE_S
        five.await_news(f"over: {source}: ", 30)
    assert not any(source in problem for problem in overview(lab)["problems"])


def test_unauthenticated_connections_of_a_network_are_limited_together(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    proxy, there = lab.wan(1).address, exits(lab)["wan2"]
    sources = [f"203.0.114.{number}" for number in range(1, 101)]
    with JoinedNamespace(netns.namespace(lab.name, "internet")) as internet, heard(lab) as five:
        internet.shell("\n".join(f"ip address add {each}/32 dev lo" for each in sources))
        try:
            calling = internet.start(call, sources * 4, proxy)
            five.await_news("connections to the proxy service s1080 do not sign in", 5)
            told = {r["source"] for r in overview(lab)["reached"] if r["kind"] == "strangers"}
            assert told
            assert told <= {*sources}
            assert curl(lab.client(1).host, 1080) == there
            assert curl(lab.internet, 1080, proxy=proxy, source=OTHER_SOURCE) == there
            assert STRANGERS_OF_A_NETWORK <= calling.result() < STRANGERS_OF_A_NETWORK + 20
        finally:
            internet.shell("\n".join(f"ip address delete {each}/32 dev lo" for each in sources))


def call(sources: list[str], proxy: str) -> int:
    """Connect from each source, send nothing, and return the number that is not refused."""
    with ExitStack() as opened:
        calls = []
        for source in sources:
            with suppress(ConnectionError):
                made = socket.create_connection((proxy, 1080), 3, (source, 0))
                calls.append(opened.enter_context(made))
        return len(calls) - len(select.select(calls, [], [], 1)[0])


def test_a_lan_client_that_does_not_authenticate_locks_out_no_other(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    idle = lab.client(1)
    with heard(lab) as five, ExitStack() as opened:
        connections = open_all(idle.host, 200, str(LAN_ADDRESS), b"\x05\x02")
        for connection in connections:
            opened.enter_context(connection)
        words = f"{idle.address}: connections to the proxy service s1080 do not sign in"
        five.await_news(words, 5)
        assert curl(lab.client(2).host, 1080) == exits(lab)["wan2"]
        assert len(ended(dict.fromkeys(connections, b""), HANDSHAKE_S + LATE_S)) == len(connections)


@pytest.mark.parametrize("at", ["lan", "wan"])
@pytest.mark.parametrize("command", [socks.CONNECT, socks.ASSOCIATE])
def test_an_authenticated_client_has_a_limited_number_of_tunnels(
    lab: Lab, command: int, at: str
) -> None:
    """They are idle: tunnels without data, and associations without datagrams."""
    add(lab, 1080, "wan2")
    there = exits(lab)["wan2"]
    proxy = str(LAN_ADDRESS) if at == "lan" else lab.wan(1).address
    taker = "client1" if at == "lan" else "internet"
    source = lab.client(1).address if at == "lan" else lab.wan(1).gateway
    most = bounds_of(open_files.limit(lab.device.pids("egressd.netd.engine.worker")[0])).callers
    with JoinedNamespace(netns.namespace(lab.name, taker)) as network, heard(lab) as five:
        taking = network.start(hold, most + 50, proxy, command, 4.0)
        words = f"{source}: the bound of {most} connections to proxy services is reached"
        five.await_news(words, 60)
        assert curl(lab.client(2).host, 1080) == there
        assert curl(lab.internet, 1080, proxy=lab.wan(1).address, source=OTHER_SOURCE) == there
        assert network.run(hold, 1, proxy, command, 0.1) == 0
        assert taking.result(60) == most
        five.await_news(f"over: {words}", 30)
        assert "an engine worker may have open" not in five.logged()


def hold(number: int, proxy: str, command: int, seconds: float) -> int:
    """Open `number` tunnels, or associations, and return the number that is granted and lasts."""
    with ExitStack() as opened:
        granted = []
        for _ in range(number):
            with suppress(OSError, socks.Refused):
                control = opened.enter_context(socket.create_connection((proxy, 1080), 3))
                socks.negotiate(control, USER, PASSWORD)
                socks.request(control, command, SERVER, 7)
                granted.append(control)
        time.sleep(seconds)
        return sum(map(is_open, granted))


def is_open(connection: socket.socket) -> bool:
    """True if it has not ended. Data from its far end is read."""
    connection.setblocking(False)
    try:
        while connection.recv(2048):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_an_authenticated_client_is_served_beside_others_at_its_address(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    proxy, there = lab.wan(1).address, exits(lab)["wan2"]
    assert curl(lab.internet, 1080, proxy=proxy) == there
    with ExitStack() as opened:
        for connection in open_all(lab.internet, 200, proxy, b""):
            opened.enter_context(connection)
        assert curl(lab.internet, 1080, proxy=proxy) == there


@pytest.mark.parametrize("scheme", ["socks5h", "http"])
def test_many_concurrent_calls_are_served(lab: Lab, scheme: str) -> None:
    """A browser connects like this."""
    add(lab, 1080, "wan2")
    proxy, there = lab.wan(1).address, exits(lab)["wan2"]
    callers = [(lab.client(1).host, str(LAN_ADDRESS)), (lab.internet, proxy)] * 40
    with ThreadPoolExecutor(len(callers)) as pool:
        seen = pool.map(lambda each: curl(each[0], 1080, proxy=each[1], scheme=scheme), callers)
    assert {*seen} == {there}


def test_a_slow_answer_is_waited_for(lab: Lab) -> None:
    add(lab, 1080, "wan2")
    add(lab, 1081, "wan2", username="", password="")
    client = lab.client(1).host
    assert curl(client, 1080) == exits(lab)["wan2"]
    server = f"""
import http.server, time
class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep({HANDSHAKE_S + LATE_S})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"ip": "slow"}}')
server = http.server.ThreadingHTTPServer(("{SERVER}", 8999), Slow)
print("ready", flush=True)
server.serve_forever()
"""
    argv = exec_argv(lab.internet.namespace, [sys.executable, "-c", server])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            url = f"http://{SERVER}:8999/"
            ways = [("http", 1080), ("http", 1081), ("socks5h", 1080)]
            with ThreadPoolExecutor(len(ways)) as pool:
                said = pool.map(
                    lambda way: curl(client, way[1], scheme=way[0], url=url, seconds=20), ways
                )
            assert [*said] == ["slow"] * len(ways)
        finally:
            program.kill()


@pytest.mark.parametrize("at", ["lan", "wan"])
@pytest.mark.parametrize("has_signed_in", [False, True])
def test_a_burst_of_passwords_is_not_evaluated(lab: Lab, at: str, has_signed_in: bool) -> None:
    """A correct guess among them is refused like the wrong ones, and causes no work."""
    add(lab, 1080, "wan2")
    guesser = lab.client(1).host if at == "lan" else lab.internet
    proxy = str(LAN_ADDRESS) if at == "lan" else lab.wan(1).address
    if has_signed_in:
        assert curl(guesser, 1080, proxy=proxy) == exits(lab)["wan2"]
    mark = lab.internet.mark()
    words = [f"x{number:0{len(PASSWORD) - 1}d}" for number in range(200)]
    words[50] = PASSWORD
    request = b"\x05\x01\x00\x01" + socket.inet_aton(SERVER) + (7).to_bytes(2, "big")
    said: dict[int, bytes] = {}
    with ExitStack() as opened:
        held = {}
        for number in range(len(words)):
            with suppress(OSError, Failed):
                held[number] = opened.enter_context(connected(guesser, proxy=proxy))
        for number, connection in held.items():
            credentials = bytes([1, len(USER)]) + USER.encode()
            credentials += bytes([len(words[number])]) + words[number].encode()
            with suppress(OSError):
                connection.sendall(b"\x05\x01\x02" + credentials + request)
        for number, connection in held.items():
            said[number] = b""
            # A client whose last packet of the TCP handshake was dropped learns of the end when it
            # sends again: 12.8 s after the first time, at the fifth.
            connection.settimeout(2 * HANDSHAKE_S)
            with suppress(ConnectionError):
                while part := connection.recv(64):
                    said[number] += part
    told = [number for number, answer in said.items() if answer]
    assert len(told) == 10
    assert all(said[number] == b"\x05\x02\x01\x01" for number in told)
    assert said[50] == b""
    assert asked(lab, mark) == []


def test_services_have_a_separate_worker(lab: Lab) -> None:
    add(lab, 1080)
    add(lab, 1081)
    asking = ["ss", "-Htlnp", "sport", ">=", ":1080", "sport", "<=", ":1081"]
    listening = lab.router.run(*asking).stdout
    (holder,) = {*map(int, re.findall(r"pid=(\d+)", listening))}
    workers = {
        pid: Path(f"/proc/{pid}/cmdline").read_text()
        for pid in lab.device.pids("egressd.netd.engine.worker")
    }
    assert len(workers) > 1
    assert [pid for pid, words in workers.items() if "worker-0.sock" in words] == [holder]
