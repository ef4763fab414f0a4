"""Groups with interfaces and nodes as members: every packet leaves by a member, in its order."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, clear, eventually, rule, send
from tests.support.fast_path import takes_it, talk

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
CHECK: Final = f"{WEB}generate_204"
GATEWAY: Final = "10.77.0.1"
INTERVAL_S: Final = 5
"""Seconds between checks, the fewest that a group takes."""
STEPS: Final = 12
SOON_S: Final = 3.0 * INTERVAL_S
WANS: Final = ("Interface:wan2", "Interface:wan1")


@pytest.fixture(scope="module")
def shared(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=3, nodes=("ss",))) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    add_nodes(shared)
    yield shared
    for number in (1, 2):
        shared.wan(number).restore()
    clear(shared)
    for group in shared.api.ask("GET", "/ops/groups").body["data"]:
        if group["has_settings"]:
            shared.api.ask("DELETE", f"/ops/groups/{group['name']}")


def make(lab: Lab, *members: str, **more: Any) -> None:
    """Make the settings of the group g, or change them."""
    body = {"members": members, "check_url": CHECK, "check_interval_s": INTERVAL_S}
    body |= {"strategy": "fallback", **more}
    made = lab.api.ask("POST", "/ops/groups", {"name": "g", **body})
    if made.status != 201:
        made = lab.api.ask("PATCH", "/ops/groups/g", body)
    assert made.status in (200, 201), made.body


def seen(lab: Lab, client: int = 1) -> str:
    """Return the source address of a client's HTTP request, or its error."""
    reply = lab.client(client).http(WEB, timeout=2)
    return reply.seen or reply.error


@contextmanager
def silent(lab: Lab, wan: int) -> Iterator[None]:
    """Let nothing pass beyond a WAN's next hop, whose link stays up."""
    lab.wan(wan).silence()
    try:
        yield
    finally:
        lab.wan(wan).speak()


def test_clients_of_a_group_of_wans_take_the_fast_path(lab: Lab) -> None:
    make(lab, *WANS)
    send(lab, 1, "Group_g")
    assert seen(lab) == lab.wan(2).address
    held = lab.client(1).connect()
    assert takes_it(lab, 1, held)
    make(lab, *reversed(WANS))
    eventually(lambda: seen(lab) == lab.wan(1).address, SOON_S)
    assert takes_it(lab, 1, held), "an open connection stays with its WAN"
    anew = lab.client(1).connect()
    assert takes_it(lab, 1, anew)
    held.close()
    anew.close()


@pytest.mark.parametrize("on_switch", ["cut", "drain"])
def test_open_connections_fare_as_the_group_says(lab: Lab, on_switch: str) -> None:
    make(lab, *WANS, on_switch=on_switch)
    send(lab, 1, "Group_g")
    assert seen(lab) == lab.wan(2).address
    held = lab.client(1).connect()
    talk(held)
    make(lab, *reversed(WANS), on_switch=on_switch)
    eventually(lambda: seen(lab) == lab.wan(1).address, SOON_S)
    assert held.exchange("after the switch", timeout=2).ok == (on_switch == "drain")
    held.close()


@pytest.mark.parametrize("on_switch", ["keep", "cut"])
def test_a_rotated_client_leaves_by_another_member_and_no_other_moves(
    lab: Lab, on_switch: str
) -> None:
    make(lab, *WANS, strategy="sticky", on_switch=on_switch)
    for client in (1, 2):
        send(lab, client, "Group_g")
    before = {client: seen(lab, client) for client in (1, 2)}
    assert set(before.values()) == {lab.wan(1).address, lab.wan(2).address}
    held = {client: lab.client(client).connect() for client in (1, 2)}
    for connection in held.values():
        talk(connection)
    answer = lab.api.ask("POST", "/ops/groups/g/rotate", {"client": lab.client(1).address})
    assert (answer.status, answer.body["clients"]) == (200, 1)
    assert seen(lab, 1) == before[2] == seen(lab, 2)
    if on_switch == "cut":
        eventually(lambda: not held[1].exchange("after the turn", timeout=1).ok)
    else:
        assert held[1].exchange("after the turn").ok
    assert held[2].exchange("after the turn").ok
    for connection in held.values():
        connection.close()
    assert lab.api.ask("POST", "/ops/groups/g/rotate", {}).body["clients"] == 2
    assert seen(lab, 1) == seen(lab, 2) == before[1]


def test_clients_that_go_back_are_cut_and_no_others(lab: Lab) -> None:
    """Past fault: `on_switch` = `cut` cut no client of a member that others stayed with."""
    make(lab, *WANS, strategy="spread", on_switch="cut")
    own = {1: lab.wan(1).address, 2: lab.wan(2).address, 3: lab.wan(2).address}
    for client in own:
        send(lab, client, "Group_g")

    def leave_by(exits: dict[int, str]) -> bool:
        return {client: seen(lab, client) for client in exits} == exits

    eventually(lambda: leave_by(own), SOON_S)
    lab.wan(2).unplug()
    eventually(lambda: leave_by(dict.fromkeys(own, lab.wan(1).address)), SOON_S)
    held = {client: lab.client(client).connect() for client in own}
    for connection in held.values():
        talk(connection)
    lab.wan(2).restore()
    eventually(lambda: leave_by(own), SOON_S)
    eventually(lambda: not any(held[n].exchange("after", timeout=1).ok for n in (2, 3)))
    assert held[1].exchange("undisturbed").ok
    for connection in held.values():
        connection.close()


def test_p2_a_wan_whose_way_is_lost_is_left_within_an_interval(lab: Lab) -> None:
    make(lab, *WANS, failback="at_once")
    send(lab, 1, "Group_g")
    eventually(lambda: seen(lab) == lab.wan(2).address, SOON_S)
    with silent(lab, 2):
        took = eventually(lambda: seen(lab) == lab.wan(1).address, SOON_S)
        assert took < INTERVAL_S + 3 + 2, took
    eventually(lambda: seen(lab) == lab.wan(2).address, SOON_S)


def test_p2_a_wan_that_is_unplugged_is_left_at_once(lab: Lab) -> None:
    make(lab, *WANS, failback="never")
    send(lab, 1, "Group_g")
    eventually(lambda: seen(lab) == lab.wan(2).address, SOON_S)
    lab.wan(2).unplug()
    eventually(lambda: seen(lab) == lab.wan(1).address, INTERVAL_S)
    lab.wan(2).restore()
    eventually(lambda: _has_delay(lab, WANS[0]), SOON_S)
    assert seen(lab) == lab.wan(1).address, "it never goes back by itself"


def _has_delay(lab: Lab, member: str) -> bool:
    resolved = lab.api.ask("GET", "/ops/groups/g").body["resolved"]
    return any(each["target"] == member and each["delay_ms"] is not None for each in resolved)


def test_p1_a_group_whose_members_are_all_gone_blocks(lab: Lab) -> None:
    make(lab, "Interface:wan2")
    send(lab, 1, "Group_g")
    assert seen(lab) == lab.wan(2).address
    token = new_token()
    lab.wan(2).unplug()
    with lab.internet.capture() as capture:
        capture.prove()
        assert lab.client(1).udp_echo(token, timeout=1).error
        assert lab.client(1).http(WEB, timeout=1).error
        assert capture.interfaces_of(token) == set()
        assert lab.client(1).dns("site.lab.test", GATEWAY, timeout=1).error


def test_p1_a_mixed_group_leaves_by_its_members_alone_while_they_die(lab: Lab) -> None:
    """The other WAN, by which the node is dialled, sees no packet of the client's own."""
    (node,) = lab.nodes.values()
    members = [node.name, WANS[0]]
    make(lab, *members)
    send(lab, 1, "Group_g")
    rule(lab, f"{lab.client(2).address}/31", "Group_g")
    ways = {node.address, lab.wan(2).address}
    eventually(lambda: seen(lab) == node.address, SOON_S)
    tokens = {number: new_token() for number in (1, 2)}
    floods = [lab.client(n).flood(token, rate=1000) for n, token in tokens.items()]
    draw = random.Random(7)
    with lab.internet.capture() as capture:
        capture.prove()
        for _ in range(STEPS):
            match draw.choice(("node", "wan", "order")):
                case "node" if node.program.running:
                    node.program.kill()
                case "node":
                    lab.start_node(node)
                case "wan":
                    lab.wan(2).unplug()
                    _see_that_it_leaves_by(lab, ways)
                    lab.wan(2).restore()
                case _:
                    make(lab, *draw.sample(members, 2))
            _see_that_it_leaves_by(lab, ways)
        for flood in floods:
            assert flood.stop().sent > 0
        for token in tokens.values():
            flows = capture.flows(token)
            assert {flow.source for flow in flows} <= ways
            assert lab.wan(1).far not in {flow.interface for flow in flows}
    if not node.program.running:
        lab.start_node(node)
    make(lab, *members)
    eventually(lambda: seen(lab, 1) == seen(lab, 2) == node.address, SOON_S)


def _see_that_it_leaves_by(lab: Lab, ways: Collection[str]) -> None:
    for client in (1, 2):
        reply = lab.client(client).http(WEB, timeout=1)
        assert reply.error or reply.seen in ways
