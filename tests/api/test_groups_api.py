"""``/ops/groups``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from egressd.model.messages import Status
from egressd.model.wording import as_sentence
from egressd.planner.compile import group_key
from tests.support.drafts import line, rule

if TYPE_CHECKING:
    from tests.support.api_device import Device

GROUPS = "/ops/groups"
ASKS = {"accept": "application/problem+json"}
PLAIN: dict[str, Any] = {
    "strategy": "",
    "members": [],
    "weights": {},
    "filter": "",
    "check_url": "",
    "check_interval_s": 10,
    "tolerance_ms": 50,
    "failback": "at_once",
    "on_switch": "keep",
    "rotate_every_s": 0,
}
WANS = {"members": ["Interface:wan1", "Interface:wan2"]}


async def send(device: Device, method: str, path: str, body: Any = None, tag: str = "") -> Any:
    headers = {**ASKS, "if-match": tag} if tag else ASKS
    more = {} if body is None else {"json": body}
    return await device.client.request(method, GROUPS + path, headers=headers, **more)


async def made(device: Device, name: str, **fields: Any) -> Any:
    response = await send(device, "POST", "", {"name": name, **fields})
    assert response.status_code == 201, response.text
    return response


async def faults(device: Device, name: str, **fields: Any) -> list[tuple[str, str]]:
    response = await send(device, "PUT", f"/{name}", PLAIN | fields)
    assert response.status_code == 400, response.text
    return [(each["pointer"], each["code"]) for each in response.json()["errors"]]


def settings(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in PLAIN}


async def test_a_group_is_made_shown_changed_and_deleted(device: Device) -> None:
    await device.bench.add_node("tokyo")
    fields = {
        "strategy": "spread",
        "members": ["Interface:wan2", "tokyo", "DIRECT"],
        "weights": {"tokyo": 3},
        "filter": "^paris",
        "check_url": "http://example.com/",
        "check_interval_s": 5,
        "tolerance_ms": 0,
        "failback": 5,
        "on_switch": "drain",
        "rotate_every_s": 0,
    }
    response = await made(device, "office", **fields)
    assert response.headers["location"] == f"{GROUPS}/office"
    answer = response.json()
    assert answer.pop("msg") == "group office created"
    assert answer.pop("msg_coded")["code"] == "created"
    assert answer.pop("revision") == device.bench.ledger.revision
    assert settings(answer) == fields
    shown = await send(device, "GET", "/office")
    assert (shown.json(), shown.headers["etag"]) == (answer, response.headers["etag"])
    assert (await send(device, "GET", "")).json()["data"] == [answer]
    brief = (await send(device, "GET", "?resolved=false")).json()["data"]
    assert brief == [answer | {"resolved": []}]
    changed = await send(device, "PATCH", "/office", {"failback": "never"})
    assert settings(changed.json()) == fields | {"failback": "never"}
    assert changed.json()["msg"] == "group office saved"
    deleted = await send(device, "DELETE", "/office")
    assert (deleted.status_code, deleted.json()["msg"]) == (200, "group office deleted")
    assert (await send(device, "GET", "/office")).status_code == 404
    assert not device.bench.state.groups


async def test_a_put_makes_settings_and_replaces_them(device: Device) -> None:
    first = await send(device, "PUT", "/office", PLAIN | WANS)
    assert (first.status_code, first.json()["has_settings"]) == (201, True)
    second = await send(device, "PUT", "/office", PLAIN | {"strategy": "sticky"})
    assert (second.status_code, second.json()["members"]) == (200, [])
    assert second.json()["created_at"] == first.json()["created_at"]
    again = await send(device, "POST", "", {"name": "office"})
    assert (again.status_code, again.json()["errors"][0]["code"]) == (409, "name-taken")


async def test_a_name_may_have_any_form_that_nodes_give_groups(device: Device) -> None:
    name = "HK / 香港"
    response = await made(device, name, **WANS)
    assert response.headers["location"] == f"{GROUPS}/{quote(name, safe='')}"
    assert (await device.client.get(response.headers["location"])).json()["name"] == name


async def test_a_group_of_nodes_has_the_settings_of_the_device(device: Device) -> None:
    await device.bench.add_node("tokyo", group="asia")
    row = (await send(device, "GET", "/asia")).json()
    assert (row["has_settings"], row["check_interval_s"], row["created_at"]) == (False, 30, "")
    assert (row["strategy"], row["strategy_in_force"]) == ("", "urltest")
    assert [each["target"] for each in row["resolved"]] == ["tokyo"]
    assert (await send(device, "DELETE", "/asia")).status_code == 404
    changed = (await send(device, "PATCH", "/asia", {"strategy": "fallback"})).json()
    assert settings(changed) == settings(row) | {"strategy": "fallback"}
    assert changed["has_settings"]


async def test_members_come_in_order_and_each_once(device: Device) -> None:
    for name, group in (("tokyo", "asia"), ("paris", ""), ("osaka", "asia"), ("lima", "")):
        await device.bench.add_node(name, group=group)
    await made(device, "europe", members=["paris", "Interface:wan1"])
    await made(device, "all", members=["lima", "Group_asia", "Group_europe"], filter="i")
    row = (await send(device, "GET", "/all")).json()
    assert [each["target"] for each in row["resolved"]] == [
        "lima", "tokyo", "osaka", "paris", "Interface:wan1",
    ]  # fmt: skip
    await device.bench.nodes.delete(device.bench.state.node_by_name["lima"])
    row = (await send(device, "GET", "/all")).json()
    assert (row["missing"], row["resolved"][0]["target"]) == (["lima"], "tokyo")


async def test_members_have_their_health(device: Device) -> None:
    node = await device.bench.add_node("tokyo", group="asia")
    other = await device.bench.add_node("osaka", group="asia")
    await made(device, "asia", members=["Interface:wan1", "DIRECT"])
    netd = device.bench.netd
    number = device.bench.state.numbers["Group_asia"]
    netd.shown = Status(
        state="running",
        revision=0,
        elected={f"group:{number}": f"node:{node.id}"},
        delays={f"node:{node.id}": 84},
        failing={f"node:{other.id}": as_sentence("it refuses")},
        egress_problems={"wan1": as_sentence("it has no address")},
    )
    row = (await send(device, "GET", "/asia")).json()
    found = {
        each["target"]: (each["is_alive"], each["delay_ms"], each["is_current"], each["reason"])
        for each in row["resolved"]
    }
    assert found == {
        "Interface:wan1": (False, None, False, "it has no address"),
        "DIRECT": (None, None, False, ""),
        "tokyo": (True, 84, True, ""),
        "osaka": (False, None, False, "it refuses"),
    }


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"strategy": "best"}, ("/strategy", "one-of")),
        ({"members": ["REJECT"]}, ("/members/0", "group-member")),
        ({"members": ["Group_"]}, ("/members/0", "group-member")),
        ({"members": ["DIRECT", "nobody"]}, ("/members/1", "group-member-missing")),
        ({"members": ["Group_nobody"]}, ("/members/0", "group-member-missing")),
        ({"members": ["Interface:lo"]}, ("/members/0", "interface-loopback")),
        ({"members": ["DIRECT", "DIRECT"]}, ("/members/1", "group-member-twice")),
        ({"members": ["Group_g"]}, ("/members", "relay-circle")),
        ({"members": "DIRECT"}, ("/members", "takes")),
        ({"weights": {"DIRECT": 2}, **WANS}, ("/weights", "weights-without-spread")),
        ({"rotate_every_s": 60}, ("/rotate_every_s", "rotation-without-sticky")),
        (
            {"weights": {"DIRECT": 2}, "strategy": "spread"},
            ("/weights/DIRECT", "weight-of-no-member"),
        ),
        ({"weights": {"DIRECT": 101}}, ("/weights/DIRECT", "whole-number")),
        ({"weights": []}, ("/weights", "group-weights")),
        ({"filter": "(a"}, ("/filter", "name-filter")),
        ({"filter": "a" * 501}, ("/filter", "string")),
        ({"check_url": "ftp://x"}, ("/check_url", "url")),
        ({"check_url": "http://u:p@x/"}, ("/check_url", "url")),
        ({"check_interval_s": 4}, ("/check_interval_s", "whole-number")),
        ({"tolerance_ms": 10_001}, ("/tolerance_ms", "whole-number")),
        *(
            ({"failback": value}, ("/failback", "failback-form"))
            for value in (0, 1441, -1, True, "5", 1.5, None)
        ),
        ({"on_switch": "stop"}, ("/on_switch", "one-of")),
    ],
)
async def test_a_fault_names_its_field(
    device: Device, fields: dict[str, Any], found: tuple[str, str]
) -> None:
    assert await faults(device, "g", **fields) == [found]
    assert not device.bench.state.groups


async def test_one_answer_has_every_fault(device: Device) -> None:
    found = await faults(device, "a,b", members=["REJECT", "nobody"], filter="[")
    assert found == [
        ("/name", "comma"),
        ("/members/0", "group-member"),
        ("/filter", "name-filter"),
        ("/members/1", "group-member-missing"),
    ]


async def test_groups_lead_in_no_circle_and_are_four_deep_at_most(device: Device) -> None:
    await made(device, "a", members=["DIRECT"])
    for name, inner in (("b", "a"), ("c", "b"), ("d", "c")):
        await made(device, name, members=[f"Group_{inner}"])
    assert await faults(device, "e", members=["Group_d"]) == [("/members", "group-depth")]
    assert await faults(device, "a", members=["Group_d"]) == [("/members", "relay-circle")]
    await device.bench.add_node("tokyo", group="asia")
    await made(device, "x", members=["Group_asia"])
    assert await faults(device, "a", members=["Group_x"]) == [("/members", "group-depth")]
    assert (await send(device, "PUT", "/b", PLAIN | {"members": ["Group_asia"]})).is_success


async def test_a_group_of_interfaces_serves_rules_alone(device: Device) -> None:
    await made(device, "wans", **WANS)
    await made(device, "both", members=["Group_wans"])
    for method, path, body, pointer in (
        ("PUT", "/ops/whitelist", {"domains": "", "ips": "", "node": "Group_both"}, "/node"),
        (
            "PUT",
            "/ops/settings",
            {**(await device.client.get("/ops/settings")).json(), "unmanaged": "Group_wans"},
            "/unmanaged",
        ),
    ):
        answer = await device.client.request(method, path, json=body, headers=ASKS)
        assert answer.status_code == 400, path
        (found,) = answer.json()["errors"]
        assert (found["pointer"], found["code"]) == (pointer, "group-not-of-nodes")
    await device.bench.rules.create(rule("10.0.0.5", "Group_both"))
    assert (await send(device, "GET", "/both")).json()["rules"] == 1


@pytest.mark.parametrize("user", ["unmanaged", "whitelist"])
async def test_a_group_in_use_gets_no_interface(device: Device, user: str) -> None:
    await device.bench.add_node("tokyo", group="asia")
    await made(device, "upper", members=["Group_asia"])
    if user == "whitelist":
        await device.bench.whitelist.put("example.com", "", "Group_upper")
    else:
        saved = (await device.client.get("/ops/settings")).json()
        body = saved | {"unmanaged": "Group_upper"}
        assert (await device.client.put("/ops/settings", json=body)).is_success
    assert await faults(device, "asia", **WANS) == [("/members", "group-in-use")]
    assert await faults(device, "upper", **WANS) == [("/members", "group-in-use")]
    assert (await send(device, "PATCH", "/upper", {"filter": "tokyo"})).status_code == 200


async def test_weights_go_with_their_members(device: Device) -> None:
    weights = {"Interface:wan1": 3, "Interface:wan2": 2}
    await made(device, "wans", strategy="spread", weights=weights, **WANS)
    row = (await send(device, "PATCH", "/wans", {"members": ["Interface:wan1"]})).json()
    assert row["weights"] == {"Interface:wan1": 3}
    row = (await send(device, "PATCH", "/wans", {"strategy": "sticky"})).json()
    assert row["weights"] == {}


async def test_a_change_of_an_earlier_version_is_refused(device: Device) -> None:
    first = (await made(device, "wans", **WANS)).headers["etag"]
    second = await send(device, "PATCH", "/wans", {"failback": 1}, first)
    assert second.status_code == 200
    for method, body in (("PATCH", {}), ("PUT", PLAIN), ("DELETE", None)):
        assert (await send(device, method, "/wans", body, first)).status_code == 412
    deleted = await send(device, "DELETE", "/wans", tag=second.headers["etag"])
    assert deleted.status_code == 200


async def test_an_answer_names_rules_of_a_group_without_members(device: Device) -> None:
    await made(device, "wans", **WANS)
    await device.bench.rules.create(rule("10.0.0.5", "Group_wans"))
    said = (await send(device, "PATCH", "/wans", {"members": []})).json()["msg"]
    assert "1 rule is blocked, as the group wans has no members" in said
    await send(device, "PATCH", "/wans", WANS)
    said = (await send(device, "DELETE", "/wans")).json()["msg"]
    assert "1 rule is blocked, as there is no group wans" in said


async def test_a_change_is_recorded_published_and_undone(device: Device) -> None:
    await made(device, "wans", **WANS)
    event = device.events.get_nowait()
    assert event is not None
    assert (event.topic, event.subject) == ("change", "groups")
    await send(device, "PATCH", "/wans", {"members": ["DIRECT"]})
    (last, *_) = (await device.client.get("/ops/changes")).json()["data"]
    assert last["what"] == "PATCH /ops/groups/wans"
    shown = (await device.client.get(f"/ops/changes/{last['revision']}")).json()
    (changed,) = shown["objects"]
    assert (changed["kind"], changed["name"]) == ("group", "wans")
    assert [field["name"] for field in changed["fields"]] == ["members"]
    undone = await device.client.post(f"/ops/changes/{last['revision']}/undo", json={})
    assert undone.status_code == 200, undone.text
    assert (await send(device, "GET", "/wans")).json()["members"] == WANS["members"]


async def test_an_undo_does_not_give_the_whitelist_an_interface(device: Device) -> None:
    await device.bench.add_node("tokyo", group="asia")
    await device.bench.whitelist.put("example.com", "", "Group_asia")
    revision = device.bench.ledger.revision
    await device.bench.whitelist.put("example.com", "", "DIRECT")
    await made(device, "asia", **WANS)
    undone = await device.client.post(f"/ops/changes/{revision + 1}/undo", json={}, headers=ASKS)
    assert undone.status_code == 409
    assert "the whitelist uses the group asia" in undone.text


async def test_a_rename_moves_members_and_weights(device: Device) -> None:
    node = await device.bench.add_node("tokyo")
    made_line = (await device.bench.lines.create(line("l2tp_1"))).value
    members = ["tokyo", "Interface:l2tp_1", "DIRECT"]
    await made(device, "g", strategy="spread", members=members, weights={"tokyo": 3})
    await device.client.patch(f"/ops/nodes/{node.id}", json={"name": "osaka"})
    await device.client.patch(f"/ops/lines/{made_line.id}", json={"name": "l2tp_2"})
    row = (await send(device, "GET", "/g")).json()
    assert row["members"] == ["osaka", "Interface:l2tp_2", "DIRECT"]
    assert row["weights"] == {"osaka": 3}
    assert row["missing"] == []


async def test_groups_need_the_scopes_read_and_write(device: Device) -> None:
    for scope, allowed in (("read", {"GET"}), ("write", {"GET", "PUT", "DELETE"})):
        secret, _ = await device.tokens.create(scope, [scope], None, "a test")
        for method, body in (("GET", None), ("PUT", PLAIN | WANS), ("DELETE", None)):
            headers = {"authorization": f"Bearer {secret}"}
            answer = await device.client.request(
                method, f"{GROUPS}/wans", json=body, headers=headers
            )
            assert (answer.status_code == 403) == (method not in allowed), (scope, method)


async def test_clients_of_a_sticky_group_are_rotated(device: Device) -> None:
    await device.bench.add_node("tokyo")
    await made(device, "asia", members=["tokyo", "Interface:wan1"])
    await device.bench.rules.create(rule("10.0.0.5", "Group_asia"))
    await device.bench.rules.create(rule("10.0.0.6", "DIRECT"))
    key = group_key(device.bench.state, "Group_asia")

    async def rotated(client: str | None, name: str = "asia") -> tuple[int, str]:
        answer = await send(device, "POST", f"/{name}/rotate", {"client": client})
        return answer.status_code, answer.json().get("msg") or answer.json()["detail"]

    status, said = await rotated(None)
    assert status == 400
    assert "must be sticky" in said
    changed = {"strategy": "sticky", "rotate_every_s": 60}
    assert (await send(device, "PATCH", "/asia", changed)).status_code == 200
    assert device.bench.netd.plan.groups[key].rotate_every_s == 60
    assert await rotated(None) == (200, "2 clients have another member of group asia")
    answer = await send(device, "POST", "/asia/rotate", {"client": "10.0.0.5"})
    assert (answer.json()["clients"], answer.json()["member"]) == (1, "tokyo")
    assert device.bench.netd.rotations == [(key, None), (key, "10.0.0.5")]
    assert (await rotated("10.0.0.6"))[0] == 400
    assert (await rotated(None, "nowhere"))[0] == 404
    await made(device, "wans", strategy="sticky", **WANS)
    assert await rotated(None, "wans") == (400, "no client of a rule goes by group wans")
