"""``/ops/connections``."""

from __future__ import annotations

from socket import IPPROTO_TCP, IPPROTO_UDP
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.connections import TrackedConnection
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_DIRECT,
    MARK_UNMANAGED,
    SNIFF_REJECT,
    asker_mark,
    egress_mark,
    flow_mark,
    inbound_number,
    node_mark,
    sniffer_mark,
)

if TYPE_CHECKING:
    from tests.support.api_device import Device

NODE = {
    "name": "hk",
    "protocol": "socks5",
    "config_json": '{"server": "203.0.113.7", "port": 1080}',
}
PATH = "/ops/connections"
CLIENT = "10.0.0.5"


def flow(number: int, mark: int = MARK_DIRECT, **fields: Any) -> TrackedConnection:
    given = {
        "protocol": IPPROTO_TCP,
        "state": "open",
        "is_inbound": False,
        "client_port": 50_000,
        "far": "203.0.113.80",
        "far_port": 443,
        "sent": 1,
        "received": 2,
        "age_s": 3,
        **fields,
    }
    return TrackedConnection(id=number, mark=mark, **given)


async def test_the_first_connections_are_listed_with_the_number_of_all(device: Device) -> None:
    flows = [flow(7), flow(8, protocol=IPPROTO_UDP, sent=None, age_s=None), flow(9, protocol=132)]
    device.bench.netd.flows[CLIENT] = flows
    found = (await device.client.get(PATH, params={"client": f" {CLIENT}"})).json()
    assert found["total"] == 3
    assert found["data"][0] == {
        "id": 7,
        "protocol": "tcp",
        "state": "open",
        "is_inbound": False,
        "client_port": 50_000,
        "ip": "203.0.113.80",
        "port": 443,
        "exit": "DIRECT",
        "kind": "direct",
        "via": "",
        "sent": 1,
        "received": 2,
        "age_s": 3,
    }
    assert (found["data"][1]["protocol"], found["data"][1]["sent"]) == ("udp", None)
    for client in ("10.0.0.0/24", "tv", ""):
        answer = await device.client.get(PATH, params={"client": client})
        assert answer.status_code == 400, client


@pytest.mark.parametrize(
    ("mark", "exit_", "kind", "via"),
    [
        (flow_mark(MARK_DIRECT, 5), "DIRECT", "direct", ""),
        (flow_mark(MARK_ASKED_DIRECTLY, 5), "DIRECT", "dns", ""),
        (flow_mark(egress_mark(1), 5), "wan7", "interface", ""),
        (egress_mark(99), "", "interface", ""),
        (egress_mark(inbound_number(0)), "", "interface", ""),
        (asker_mark(0), "DIRECT", "dns", ""),
        (asker_mark(1), "wan7", "dns", ""),
        (sniffer_mark(0), "DIRECT", "inspected", ""),
        (sniffer_mark(1), "wan7", "inspected", ""),
        (sniffer_mark(SNIFF_REJECT), "", "unknown", ""),
        (node_mark(1), "hk", "node", "DIRECT"),
        (node_mark(2), "", "unknown", ""),
        (MARK_UNMANAGED, "REJECT", "unknown", ""),
    ],
)
async def test_an_exit_is_named_by_the_mark(
    device: Device, mark: int, exit_: str, kind: str, via: str
) -> None:
    await device.answer("POST", "/nodes", NODE)
    await device.answer("POST", "/rules", {"ip": CLIENT, "target_node": "Interface:wan7"})
    device.bench.netd.flows[CLIENT] = [flow(7, mark)]
    (row,) = (await device.client.get(PATH, params={"client": CLIENT})).json()["data"]
    assert (row["exit"], row["kind"], row["via"]) == (exit_, kind, via)


async def test_clients_without_a_rule_leave_by_the_default_target(device: Device) -> None:
    await device.answer("POST", "/nodes", {**NODE, "group": "asia"})
    device.bench.netd.flows[CLIENT] = [flow(7, MARK_UNMANAGED)]
    for target, kind in (("hk", "node"), ("Group_asia", "group")):
        before = (await device.client.get("/ops/settings")).json()
        answer = await device.client.put("/ops/settings", json={**before, "unmanaged": target})
        assert answer.status_code == 200, answer.json()
        (row,) = (await device.client.get(PATH, params={"client": CLIENT})).json()["data"]
        assert (row["exit"], row["kind"]) == (target.removeprefix("Group_"), kind)


async def test_one_connection_is_closed_and_then_all(device: Device) -> None:
    device.bench.netd.flows[CLIENT] = [flow(number) for number in range(4)]
    one = await device.client.delete(f"{PATH}/2", params={"client": CLIENT})
    assert one.json() == {"msg": f"1 connection of {CLIENT} closed", "closed": 1, "left": 0}
    gone = await device.client.delete(f"{PATH}/2", params={"client": CLIENT})
    assert gone.json() == {"error": f"{CLIENT} has no connection 2 any more"}
    some = await device.client.delete(PATH, params={"client": CLIENT})
    assert some.json() == {
        "msg": f"2 connections of {CLIENT} closed; 1 more is open",
        "closed": 2,
        "left": 1,
    }
    last = await device.client.delete(PATH, params={"client": CLIENT})
    assert last.json()["msg"] == f"1 connection of {CLIENT} closed"
    assert (await device.client.delete(f"{PATH}/x", params={"client": CLIENT})).status_code == 400


async def test_without_netd_nothing_is_listed(device: Device) -> None:
    device.bench.netd.is_away = True
    answer = await device.client.get(PATH, params={"client": CLIENT})
    assert answer.status_code == 500
    assert "netd" in answer.json()["error"]
