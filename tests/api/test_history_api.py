"""``/ops/history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from egressd.model.messages import LineStatus, RuleCount, Status
from egressd.model.wording import say
from tests.support.drafts import rule

if TYPE_CHECKING:
    from tests.support.api_device import Device

HISTORY = "/ops/history"
WINDOW = {"from": "2025-11-20T00:00:00Z", "to": "2025-11-21T00:00:00Z"}


async def record(device: Device) -> None:
    """Let two clients exchange bytes on 2025-11-20."""
    for ip in ("10.0.0.1", "10.0.0.2"):
        await device.bench.rules.create(rule(ip, "DIRECT"))
    for factor in (0, 1):
        device.bench.netd.counted = {
            1: RuleCount(1_234_567 * factor, 1, 30 * factor, 1),
            2: RuleCount(40 * factor, 1, 50 * factor, 1),
        }
        await device.history.read()


async def test_traffic_of_a_client_is_rounded_to_three_digits(device: Device) -> None:
    await record(device)
    answer = await device.client.get(f"{HISTORY}/traffic", params={"key": "10.0.0.1", **WINDOW})
    assert answer.json() == {
        **WINDOW,
        "by": "client",
        "key": "10.0.0.1",
        "step": "15m",
        "data": [{"at": "2025-11-20T22:45:00Z", "upload_bytes": 1_230_000, "download_bytes": 30}],
    }
    shown = await device.client.get(f"{HISTORY}/traffic", params={"key": "10.0.0.1"})
    assert shown.json()["data"] == answer.json()["data"]


async def test_top_lists_those_with_the_most_bytes_first(device: Device) -> None:
    await record(device)
    for by, keys in {"client": ["10.0.0.1", "10.0.0.2"], "target": ["DIRECT"]}.items():
        answer = await device.client.get(f"{HISTORY}/top", params={"by": by, **WINDOW})
        assert [row["key"] for row in answer.json()["data"]] == keys
    one = await device.client.get(f"{HISTORY}/top", params={"limit": "1", **WINDOW})
    assert len(one.json()["data"]) == 1


@pytest.mark.parametrize(
    ("params", "start", "end"),
    [
        ({"hours": "1", "to": "2025-11-21T00:00:00Z"}, "2025-11-20T23:00:00Z", None),
        ({"to": "2025-11-21T00:00:00Z"}, "2025-11-20T00:00:00Z", None),
        ({"hours": "48"}, "2025-11-18T22:58:41Z", "2025-11-20T22:58:41Z"),
    ],
)
async def test_a_window_ends_now_and_is_a_day_long_unless_asked_otherwise(
    device: Device, params: dict[str, str], start: str, end: str | None
) -> None:
    answer = (await device.client.get(f"{HISTORY}/top", params=params)).json()
    assert (answer["from"], answer["to"]) == (start, end or params["to"])


async def test_csv_is_answered_where_accept_asks_for_it(device: Device) -> None:
    await record(device)
    asks = {"accept": "text/csv"}
    answer = await device.client.get(f"{HISTORY}/top", params=WINDOW, headers=asks)
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.text == (
        "key,upload_bytes,download_bytes\r\n10.0.0.1,1234567,30\r\n10.0.0.2,40,50\r\n"
    )
    params = {"key": "10.0.0.2", "step": "1h", **WINDOW}
    answer = await device.client.get(f"{HISTORY}/traffic", params=params, headers=asks)
    assert answer.text.startswith("at,upload_bytes,download_bytes\r\n2025-11-20T22:00:00Z,40,50")


async def test_the_summary_counts_what_is_recorded(device: Device) -> None:
    await record(device)
    answer = await device.client.get(HISTORY)
    assert answer.json()["client"] == {"recorded": 2, "unrecorded": 0}
    assert answer.json()["target"] == {"recorded": 1, "unrecorded": 0}
    assert answer.json()["node"] == {"recorded": 0, "unrecorded": 0}


@pytest.mark.parametrize(
    ("path", "params", "error"),
    [
        ("traffic", {}, "key"),
        ("traffic", {"key": "x", "by": "node"}, "by must be one of"),
        ("traffic", {"key": "x", "step": "2m"}, "step must be one of"),
        ("traffic", {"key": "x", "from": "yesterday"}, "from must be a time in UTC"),
        ("top", {"from": WINDOW["to"], "to": WINDOW["from"]}, "from must be before to"),
        ("top", {"from": "2025-01-01T00:00:00Z"}, "from must be at most 31 days before to"),
        ("top", {"hours": "1000"}, "from must be at most 31 days before to"),
        ("top", {"hours": "0"}, "hours must be a whole number"),
        ("top", {"hours": "2", "from": WINDOW["from"]}, "from and hours must not both be given"),
        ("top", {"limit": "0"}, "limit must be a whole number"),
        ("nodes", {"hours": "1000"}, "from must be at most 31 days before to"),
        ("lines", {"hours": "1000"}, "from must be at most 31 days before to"),
        ("lines/sstp/x", {}, "type must be one of"),
        ("nodes/x", {"step": "2m"}, "step must be one of"),
        ("groups/x", {"from": WINDOW["to"], "to": WINDOW["from"]}, "from must be before to"),
    ],
)
async def test_bad_parameters_are_named(
    device: Device, path: str, params: dict[str, Any], error: str
) -> None:
    answer = await device.client.get(f"{HISTORY}/{path}", params=params)
    assert answer.status_code == 400
    assert error in answer.json()["error"]


ODD = "a/b c%"
"""The name of a node: paths have it encoded."""
LINE = {"type": "l2tp", "name": "l2tp_1", "server": "a.example", "username": "u", "password": "p"}


async def record_states(device: Device) -> None:
    """Let a line go down, a node fail and its group elect another one, within two minutes."""
    for name in (ODD, "b"):
        config = f'{{"server": "198.51.100.{ord(name[0])}", "port": 1080}}'
        body = {"name": name, "protocol": "socks5", "config_json": config, "group": "g"}
        await device.answer("POST", "/nodes", body)
    await device.answer("POST", "/rules", {"ip": "10.0.0.9", "target_node": "Group_g"})
    await device.answer("POST", "/vpn-lines", LINE)
    first, second = (f"node:{node.id}" for node in device.bench.nodes.list())
    netd, ledger = device.bench.netd, device.bench.ledger
    group = f"group:{ledger.state.numbers['Group_g']}"
    for failing, elected, is_online in (
        ((), first, True),
        ((first,), second, False),
        ((), second, True),
    ):
        netd.shown = Status(
            state="running",
            revision=0,
            lines={"l2tp_1": LineStatus(is_online=is_online)},
            failing=dict.fromkeys(failing, say("silent")),
            elected={group: elected},
            delays={first: 88} if not failing else {},
        )
        await device.history.read()
        device.now += 60
    device.now -= 60


TIMES = [f"2025-11-20T22:{minute}:40Z" for minute in ("58", "59")] + ["2025-11-20T23:00:40Z"]


async def test_a_nodes_history_has_delays_and_states(fresh_device: Device) -> None:
    device = fresh_device
    await record_states(device)
    answer = await device.client.get(f"{HISTORY}/nodes/{quote(ODD, safe='')}", params=WINDOW)
    assert answer.json() == {
        **WINDOW,
        "name": ODD,
        "step": "15m",
        "data": [
            {"at": "2025-11-20T22:45:00Z", "delay_ms": 88, "up_s": 60, "down_s": 20},
            {"at": "2025-11-20T23:00:00Z", "delay_ms": 88, "up_s": 0, "down_s": 40},
        ],
        "states": [
            {"from": TIMES[0], "to": TIMES[1], "state": "up"},
            {"from": TIMES[1], "to": TIMES[2], "state": "down"},
        ],
    }
    path = f"{HISTORY}/nodes/{quote(ODD, safe='')}"
    answer = await device.client.get(path, params=WINDOW, headers={"accept": "text/csv"})
    assert answer.text.splitlines() == [
        "at,delay_ms,up_s,down_s",
        "2025-11-20T22:45:00Z,88,60,20",
        "2025-11-20T23:00:00Z,88,0,40",
    ]
    everything = (await device.client.get(f"{HISTORY}/nodes", params=WINDOW)).json()
    assert (everything["step"], len(everything["slots"])) == ("1h", 24)
    assert everything["slots"][-2:] == ["2025-11-20T22:00:00Z", "2025-11-20T23:00:00Z"]
    one, other = everything["data"]
    assert (one["name"], one["delays"][-2:], one["up_s"], one["down_s"]) == (ODD, [88, 88], 60, 60)
    assert (other["name"], {*other["delays"]}, other["up_s"]) == ("b", {None}, 120)


async def test_a_lines_history_has_its_states(fresh_device: Device) -> None:
    device = fresh_device
    await record_states(device)
    states = [
        {"from": TIMES[0], "to": TIMES[1], "state": "up"},
        {"from": TIMES[1], "to": TIMES[2], "state": "down"},
    ]
    known = {"type": "l2tp", "name": "l2tp_1", "up_s": 60, "down_s": 60, "states": states}
    path = f"{HISTORY}/lines/l2tp/l2tp_1"
    answer = await device.client.get(path, params=WINDOW)
    assert answer.json() == {**WINDOW, **known}
    assert (await device.client.get(f"{HISTORY}/lines", params=WINDOW)).json()["data"] == [known]
    answer = await device.client.get(path, params=WINDOW, headers={"accept": "text/csv"})
    assert answer.text.splitlines()[:2] == ["from,to,state", f"{TIMES[0]},{TIMES[1]},up"]


async def test_a_groups_history_has_the_elected_nodes(fresh_device: Device) -> None:
    device = fresh_device
    await record_states(device)
    answer = await device.client.get(f"{HISTORY}/groups/g", params=WINDOW)
    assert answer.json() == {
        **WINDOW,
        "name": "g",
        "up_s": 120,
        "down_s": 0,
        "states": [
            {"from": TIMES[0], "to": TIMES[1], "state": "up", "node": ODD},
            {"from": TIMES[1], "to": TIMES[2], "state": "up", "node": "b"},
        ],
    }
    asks = {"accept": "text/csv"}
    answer = await device.client.get(f"{HISTORY}/groups/g", params=WINDOW, headers=asks)
    assert answer.text.splitlines()[2] == f"{TIMES[1]},{TIMES[2]},up,b"


@pytest.mark.parametrize("path", ["nodes/x", "lines/pptp/x", "groups/x"])
async def test_a_part_that_is_not_recorded_has_no_states(device: Device, path: str) -> None:
    answer = await device.client.get(f"{HISTORY}/{path}", params=WINDOW)
    assert (answer.status_code, answer.json()["states"]) == (200, [])


async def test_one_that_is_not_recorded_has_no_slots(device: Device) -> None:
    answer = await device.client.get(f"{HISTORY}/traffic", params={"key": "10.9.9.9", **WINDOW})
    assert answer.json()["data"] == []
