"""Proxy services with real clients: each leaves by its own interface, or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from egressd.lab.host import Host
from egressd.lab.lab import Lab
from egressd.lab.netns import exec_argv
from egressd.lab.spec import LAN_ADDRESS, LabSpec
from tests.lab import socks
from tests.lab.device_state import SERVER, eventually

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
    lab.router.run("nft", "flush", "set", "inet", "egressd", "guessers")
    lab.router.run("nft", "flush", "set", "inet", "egressd", "guesses")


def exits(lab: Lab) -> dict[str, str]:
    """Interface -> the address that the world should see."""
    return {wan.interface: wan.address for wan in lab.wans}


def add(lab: Lab, port: int, interface: str = "wan1", **fields: object) -> int:
    """A service that asks for the lab's password, unless told otherwise; its id."""
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
) -> str:
    """The address that a server saw curl at, or curl's exit status."""
    argv = ["curl", "-sk", "-m", "5", "-x", f"{scheme}://{proxy}:{port}"]
    argv += ["-U", user] if user else []
    done = host.run(*argv, url, check=False)
    try:
        return str(json.loads(done.stdout)["ip"])
    except ValueError:
        return f"curl: {done.returncode}"


def datagram(
    host: Host, port: int, *, user: str = USER, password: str = PASSWORD, proxy: str = ""
) -> str:
    """The address that an echo server saw a datagram come from, or what came in its way."""
    argv = [proxy or str(LAN_ADDRESS), str(port), user, password, SERVER, "7"]
    return host.run(sys.executable, str(Path(socks.__file__)), *argv).stdout.strip()


@pytest.mark.parametrize("interface", ["wan1", "wan3"])
def test_every_way_in_leaves_by_the_interface(lab: Lab, interface: str) -> None:
    add(lab, 1080, interface)
    client = lab.client(1).host
    there = exits(lab)[interface]
    assert curl(client, 1080) == there
    assert curl(client, 1080, scheme="socks5", url=f"https://{SERVER}/") == there
    assert curl(client, 1080, url="http://www.test/") == there
    assert curl(client, 1080, scheme="http") == there
    assert curl(client, 1080, scheme="http", url=f"https://{SERVER}/") == there
    assert datagram(client, 1080) == there


def test_a_hundred_services_on_four_interfaces(lab: Lab) -> None:
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


def test_an_interface_that_is_down_refuses(lab: Lab) -> None:
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
        assert lab.internet.seen(since=mark) == []
        assert curl(client, 1081) == lab.wan(1).address
    finally:
        wan.restore()
    eventually(lambda: curl(client, 1080) == wan.address)
    assert datagram(client, 1080) == wan.address


def test_an_interface_that_does_not_exist_refuses_until_it_does(lab: Lab) -> None:
    add(lab, 1080, "wan9")
    assert curl(lab.client(1).host, 1080).startswith("curl:")
    assert datagram(lab.client(1).host, 1080).startswith(("TimeoutError", "Refused"))


def test_the_routers_own_servers_are_not_reached_through_a_service(lab: Lab) -> None:
    add(lab, 1080)
    client = lab.client(1).host
    for address in ("127.0.0.1", str(LAN_ADDRESS), lab.wan(1).address):
        assert curl(client, 1080, url=f"http://{address}:8787/ops/health").startswith("curl:")


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
def test_who_guesses_passwords_has_to_wait(lab: Lab, scheme: str) -> None:
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
def test_with_a_password_whoever_has_it_may_connect(lab: Lab, number: int) -> None:
    add(lab, 1080, "wan3")
    proxy = lab.wan(number).address
    assert curl(lab.internet, 1080, proxy=proxy) == exits(lab)["wan3"]
    assert curl(lab.internet, 1080, proxy=proxy, scheme="http") == exits(lab)["wan3"]
    assert datagram(lab.internet, 1080, proxy=proxy) == exits(lab)["wan3"]


def test_an_edit_cuts_nobody_on_another_service(lab: Lab) -> None:
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
        # Both at once, each on the other's port:
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


def test_a_port_that_somebody_has_is_refused(lab: Lab) -> None:
    listen = (
        "import socket; s = socket.create_server(('127.0.0.1', 1090)); print(flush=True); input()"
    )
    argv = exec_argv(lab.router.namespace, [sys.executable, "-c", listen])
    reasons = {22: "SSH", 8787: "the API", 20_000: "the engine", 1090: "another program"}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None
        listener.stdout.readline()
        for port, reason in reasons.items():
            body = {"name": "x", "outbound_interface": "wan1", "port": port}
            answer = lab.api.ask("POST", "/svc/api/v1/proxy-services", body)
            assert answer.status == 400
            assert reason in answer.body["error"]
        listener.kill()
    add(lab, 1090)
    assert curl(lab.client(1).host, 1090) == exits(lab)["wan1"]
