"""Subscriptions: lists of a real server that come by the chosen target, and lies of all kinds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any, Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.lists import NAME, PORT, ListServer, entry, list_server

pytestmark = pytest.mark.lab

LISTS: Final = "/ops/subscriptions"
NODES: Final = ("socks5", "http")
NUMBERS: Final = itertools.count(1)
SOON_S: Final = 60.0


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=NODES)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        yield lab


@pytest.fixture(scope="module")
def server(lab: Lab) -> Iterator[ListServer]:
    with list_server(lab) as server:
        yield server


@pytest.fixture
def clean(lab: Lab) -> Iterator[None]:
    """Remove all subscriptions with their nodes afterwards, and the rules: a new node gets no name
    that a rule names.
    """
    yield
    for rule in lab.api.get("/rules")["data"]:
        lab.api.delete(f"/rules/{rule['id']}")
    for each in lab.api.ask("GET", LISTS).body["data"]:
        lab.api.ask("DELETE", f"{LISTS}/{each['id']}?nodes=true")


def subscribed(lab: Lab, via: str = "DIRECT", host: str = NAME, **fields: Any) -> tuple[int, str]:
    """Make a subscription that is fetched by hand; return its id and its path."""
    path = f"/list-{next(NUMBERS)}"
    body = {"name": path, "url": f"http://{host}:{PORT}{path}", "via": via, "is_enabled": False}
    answer = lab.api.ask("POST", LISTS, body | fields)
    assert answer.status == 201, answer.body
    return int(answer.body["id"]), path


def refreshed(lab: Lab, number: int) -> dict[str, Any]:
    answer = lab.api.ask("POST", f"{LISTS}/{number}/refresh", {})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.body
    return found


def stored(lab: Lab) -> dict[str, Any]:
    return {each["name"]: each for each in lab.api.get("/nodes")["data"]}


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("via", ["DIRECT", "Interface:wan2", "socks5"])
def test_a_list_and_its_name_come_by_the_target_alone(
    lab: Lab, server: ListServer, via: str
) -> None:
    ways = {
        "DIRECT": lab.wan(1).address,
        "Interface:wan2": lab.wan(2).address,
        "socks5": lab.nodes["socks5"].address,
    }
    server.serve(entry(lab, "a", "socks5"), entry(lab, "b", "http"))
    number, path = subscribed(lab, via)
    mark = lab.internet.mark()
    assert refreshed(lab, number)["refreshed"]["added"] == 2
    assert server.callers(path) == {ways[via]}
    asked = {each.source for each in lab.internet.seen(since=mark, text=NAME)}
    assert asked == {ways[via]}
    send(lab, 1, "a")
    assert lab.client(1).tcp_echo("hello", SERVER).seen == lab.nodes["socks5"].address


@pytest.mark.usefixtures("clean")
def test_a_list_whose_target_is_dead_comes_by_nothing(lab: Lab, server: ListServer) -> None:
    server.serve(entry(lab, "a", "socks5"))
    number, path = subscribed(lab, "http")
    node = lab.nodes["http"]
    with ExitStack() as mend:
        mend.callback(node.program.start)
        node.program.stop(10)
        mark = lab.internet.mark()
        found = refreshed(lab, number)
        assert not found["is_refreshed"]
        assert found["reason"]
        assert server.callers(path) == set()
        assert lab.internet.seen(since=mark, text=NAME) == []


@pytest.mark.usefixtures("clean")
def test_a_changed_node_cuts_its_own_clients_alone(lab: Lab, server: ListServer) -> None:
    server.serve(entry(lab, "a", "socks5"), entry(lab, "b", "http"))
    number, _ = subscribed(lab)
    refreshed(lab, number)
    send(lab, 1, "a")
    send(lab, 2, "b")
    with (
        closing(lab.client(1).connect()) as changed,
        closing(lab.client(2).connect()) as other,
    ):
        assert changed.exchange("before").ok
        assert other.exchange("before").ok
        server.serve(entry(lab, "a", "socks5", udp=True), entry(lab, "b", "http"))
        found = refreshed(lab, number)
        assert {each["name"]: each["fate"] for each in found["nodes"]} == {
            "a": "changed",
            "b": "same",
        }
        assert not changed.exchange("after", timeout=3).ok
        assert other.exchange("after").ok
    assert lab.client(1).tcp_echo("hello", SERVER).seen == lab.nodes["socks5"].address


@pytest.mark.usefixtures("clean")
def test_a_used_node_that_is_gone_blocks_and_comes_back(lab: Lab, server: ListServer) -> None:
    server.serve(entry(lab, "a", "socks5"), entry(lab, "b", "http"))
    number, _ = subscribed(lab)
    refreshed(lab, number)
    send(lab, 1, "a")
    send(lab, 2, "b")
    assert lab.client(1).tcp_echo("hello", SERVER).ok
    with lab.internet.capture() as capture:
        capture.prove()
        server.serve(entry(lab, "b", "http"))
        found = refreshed(lab, number)
        assert {each["name"]: each["fate"] for each in found["nodes"]} == {
            "a": "kept",
            "b": "same",
        }
        mark = lab.internet.mark()
        assert not lab.client(1).tcp_echo("gone", SERVER, timeout=3).ok
        assert lab.internet.seen(since=mark, text="gone") == []
        assert lab.client(2).tcp_echo("hello", SERVER).ok
    problems = lab.api.ask("GET", "/ops/overview").body["problems"]
    assert any("gone from the list" in str(each) for each in problems)
    server.serve(entry(lab, "a", "socks5"), entry(lab, "b", "http"))
    refreshed(lab, number)
    eventually(lambda: lab.client(1).tcp_echo("back", SERVER).ok)


LIES: Final[dict[str, dict[str, Any]]] = {
    "empty": {"body": ""},
    "500": {"status": 500, "body": "no"},
    "html": {"body": "<!DOCTYPE html><html><body>Log in</body></html>"},
    "100 MB": {"body": "proxies:\n", "size": 100 << 20},
    "a bomb": {"zeros": 200 << 20, "is_packed": True},
    "cut short": {"body": "proxies:\n", "headers": {"Content-Length": "5000"}},
    "to the loopback": {"status": 302, "headers": {"Location": "http://127.0.0.1:8787/"}},
    "to the box": {"status": 302, "headers": {"Location": f"http://{LAN_ADDRESS}:8787/"}},
    "to a name of the box": {"status": 302, "headers": {"Location": "http://box.example:8787/"}},
    "to a file": {"status": 302, "headers": {"Location": "file:///etc/passwd"}},
    "to itself": {"status": 302, "headers": {"Location": "/x"}},
    "another's nodes only": {"body": "socks5://10.77.0.9:1080#lan"},
}


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_changes_nothing(lab: Lab, server: ListServer, lie: str) -> None:
    lab.internet.put_name("box.example", str(LAN_ADDRESS))
    server.serve(entry(lab, "a", "socks5"))
    number, _ = subscribed(lab)
    refreshed(lab, number)
    send(lab, 1, "a")
    before = stored(lab)
    server.answer(**LIES[lie])
    with closing(lab.client(1).connect()) as connection:
        found = refreshed(lab, number)
        assert not found["is_refreshed"]
        assert found["reason"]
        assert stored(lab) == before
        assert connection.exchange("after").ok
    row = lab.api.ask("GET", f"{LISTS}/{number}").body
    assert row["last"]["error"] == found["reason"]


@pytest.mark.usefixtures("clean")
def test_a_server_that_never_answers_is_given_up(lab: Lab, server: ListServer) -> None:
    server.answer(is_silent=True)
    number, _ = subscribed(lab)
    assert "no answer within 30 s" in refreshed(lab, number)["reason"]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("via", ["DIRECT", "Interface:wan2"])
def test_a_name_that_turns_to_the_lan_or_the_box_leads_nowhere(
    lab: Lab, server: ListServer, via: str
) -> None:
    server.serve(entry(lab, "a", "socks5"))
    number, _ = subscribed(lab, via, "turns.example")
    neighbour = lab.client(2).address
    # The box dials this one itself: the kernel lets the engine's sockets reach it.
    near = lab.nodes["socks5"].draft() | {"name": "near"}
    config = json.loads(near["config_json"]) | {"server": neighbour}
    lab.api.post("/nodes", near | {"config_json": json.dumps(config)})
    with ExitStack() as mend:
        mend.callback(lambda: lab.api.delete(f"/nodes/{stored(lab)['near']['id']}"))
        for address in (
            neighbour,
            lab.client(1).address,
            str(LAN_ADDRESS),
            lab.wan(1).address,
            "127.0.0.1",
            "192.168.77.1",
        ):
            lab.internet.put_name("turns.example", address)
            with lab.router.capture("lan0") as capture, lab.internet.capture() as outside:
                capture.prove()
                found = refreshed(lab, number)
                assert not found["is_refreshed"], address
                assert found["reason"]
                assert [each for each in capture.flows(protocol="tcp") if each.port == PORT] == []
                beyond = outside.flows(destination=address, protocol="tcp")
                assert [each for each in beyond if each.port == PORT] == []
    # The positive control: it is fetched once the name leads to the server.
    lab.internet.put_name("turns.example", SERVER)
    eventually(lambda: refreshed(lab, number)["is_refreshed"], SOON_S)


@pytest.mark.usefixtures("clean")
def test_the_clock_fetches_and_the_command_line_shows(lab: Lab, server: ListServer) -> None:
    server.serve(
        entry(lab, "timed", "socks5"), **{"Subscription-Userinfo": "download=50; total=100"}
    )
    url = f"http://{NAME}:{PORT}/by-the-clock"
    lab.device.run("subscriptions", "add", "seller", url, "--via", "Interface:wan2")
    eventually(lambda: "timed" in stored(lab), SOON_S)
    assert server.callers("/by-the-clock") == {lab.wan(2).address}
    (row,) = json.loads(lab.device.run("subscriptions", "list", "--json"))
    assert (row["name"], row["nodes"], row["quota"]["used"]) == ("seller", 1, 50)
    assert "by-the-clock" not in json.dumps(row)
    assert "50 %" in lab.device.run("subscriptions", "list")
    number = str(row["id"])
    server.serve(entry(lab, "later", "http"))
    assert "nothing is changed yet" in lab.device.run(
        "subscriptions", "refresh", number, "--dry-run"
    )
    assert {*stored(lab)} == {*NODES, "timed"}
    assert "1 added" in lab.device.run("subscriptions", "refresh", number)
    assert {*stored(lab)} == {*NODES, "later"}
    lab.device.run("subscriptions", "delete", number, "--nodes")
    assert {*stored(lab)} == {*NODES}
