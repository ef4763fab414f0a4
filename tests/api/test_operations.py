"""Overview, changes, settings, stop and start, why, previews and links."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.delays import Delay
from egressd.model.messages import (
    InstanceStatus,
    InterfaceStatus,
    LineStatus,
    Probe,
    RuleCount,
    Status,
)
from egressd.model.wording import NONE, as_sentence, say

if TYPE_CHECKING:
    import httpx

    from tests.support.api_device import Device


OPS = "http://device/ops"
SOCKS = {"server": "203.0.113.7", "port": 1080}


async def node(device: Device, name: str, group: str = "", **config: Any) -> int:
    body = {
        "name": name,
        "protocol": "socks5",
        "config_json": json.dumps(SOCKS | config),
        "group": group,
    }
    node_id: int = (await device.answer("POST", "/nodes", body))["id"]
    return node_id


async def rule(device: Device, ip: str, target: str, **more: Any) -> None:
    await device.answer("POST", "/rules", {"ip": ip, "target_node": target, **more})


async def get(device: Device, path: str) -> Any:
    response = await device.client.get(OPS + path)
    assert response.status_code == 200, response.text
    return response.json()


async def post(device: Device, path: str, body: Any) -> httpx.Response:
    return await device.client.post(OPS + path, json=body)


async def explained(device: Device, client: str, destination: str, **more: str) -> Any:
    query = "&".join(f"{k}={v}" for k, v in more.items())
    return await get(device, f"/explain?client={client}&destination={destination}&{query}")


async def test_the_encryption_of_a_line_is_coded(device: Device) -> None:
    encryption = say("with-weak-parts", encryption=say("mppe"), parts=("MPPE",))
    online = LineStatus(is_online=True, ip="10.9.0.2", state="online", encryption=encryption)
    device.bench.netd.shown = Status(state="running", revision=1, lines={"pptp_1": online})
    line = {"type": "pptp", "name": "pptp_1", "server": "s", "username": "u", "password": "p"}
    await device.answer("POST", "/vpn-lines", line)
    (listed,) = (await get(device, "/lines"))["data"]
    for seen in (listed, (await get(device, "/overview"))["lines"]["pptp_1"]):
        assert seen["encryption"] == "MPPE (RC4, 128 bits); weak: MPPE"
        assert seen["encryption_coded"] == {
            "code": "with-weak-parts",
            "values": {
                "encryption": {"code": "mppe", "values": {}, "text": "MPPE (RC4, 128 bits)"},
                "parts": ["MPPE"],
            },
            "text": "MPPE (RC4, 128 bits); weak: MPPE",
        }
        assert seen["reason_coded"] is None


async def test_the_overview_is_consistent(device: Device) -> None:
    device.bench.netd.shown = Status(
        state="running",
        revision=1,
        interfaces=(
            InterfaceStatus(
                name="wan1", ip="203.0.113.20", is_up=True, role="wan", received=7, sent=5
            ),
            InterfaceStatus(name="wan2", ip="", is_up=False, role="wan"),
        ),
        lines={
            "l2tp_1": LineStatus(is_online=False, state="waiting", reason=as_sentence("no answer"))
        },
        egress_problems={
            "DIRECT": NONE,
            "wan1": NONE,
            "wan2": say("interface-down", name="wan2"),
        },
        connections=3,
        problems=(as_sentence("something"),),
    )
    await node(device, "tokyo")
    line = {
        "type": "l2tp",
        "name": "l2tp_1",
        "server": "192.0.2.1",
        "username": "u",
        "password": "p",
        "secret": "",
    }
    await device.answer("POST", "/vpn-lines", line)
    gone = await node(device, "gone")
    for ip, target in (
        ("10.0.0.1", "tokyo"),
        ("10.0.0.2", "tokyo"),
        ("10.0.0.3", "Interface:wan1"),
        ("10.0.0.4", "Interface:wan2"),
        ("10.0.0.5", "Interface:l2tp_1"),
        ("10.0.0.6", "gone"),
    ):
        await rule(device, ip, target)
    await rule(device, "10.0.0.7", "tokyo", is_enabled=False)
    await device.answer("DELETE", f"/nodes/{gone}")
    seen = await get(device, "/overview")
    assert (seen["status"], seen["is_open"], seen["connections"]) == ("running", False, 3)
    assert seen["at"] == "2026-11-20T22:58:40.125Z"
    assert seen["counts"] == {
        "rules": 7,
        "enabled_rules": 6,
        "nodes": 1,
        "lines": 1,
        "online_lines": 0,
        "proxy_services": 0,
        "targets": 6,
        "failing_targets": 3,
    }
    assert (seen["interfaces"][0]["received"], seen["interfaces"][0]["sent"]) == (7, 5)
    assert seen["problems"] == [
        "1 client of Interface:l2tp_1 is blocked: the line l2tp_1 is offline: no answer",
        "1 client of Interface:wan2 is blocked: the interface wan2 is down",
        "1 client of gone is blocked: there is no node gone",
        "something",
    ]
    assert [one["text"] for one in seen["problems_coded"]] == seen["problems"]
    offline = seen["problems_coded"][0]["values"]["reason"]
    assert (offline["code"], offline["values"]["name"]) == ("line-offline", "l2tp_1")
    assert [one["text"] for one in seen["blocked"]] == seen["problems"][:3]
    assert {one["since"] for one in seen["blocked"]} == {"2026-11-20T22:58:40Z"}
    strangers = {
        "target": "REJECT",
        "is_blocked": True,
        "reason": "",
        "reason_coded": None,
        "seen": 0,
    }
    assert seen["unruled"] == strangers
    flows = {flow["target"]: flow for flow in seen["flows"]}
    assert (flows["tokyo"]["clients"], flows["tokyo"]["egresses"]) == (2, ["DIRECT"])
    assert [flows[t]["problem"] for t in ("tokyo", "Interface:wan1", "REJECT")] == ["", "", ""]
    assert flows["gone"]["problem"] == "there is no node gone"
    assert flows["Interface:wan2"]["problem"] == "the interface wan2 is down"
    assert flows["Interface:l2tp_1"]["problem"] == "the line l2tp_1 is offline: no answer"
    assert {flow["target"] for flow in seen["flows"][:3]} == {
        "gone",
        "Interface:wan2",
        "Interface:l2tp_1",
    }


async def test_the_overview_shows_the_rate_of_each_target(
    fresh_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = fresh_device
    await rule(device, "10.0.0.1", "DIRECT")
    (key,) = device.bench.ledger.state.rules
    # The next reading must not wait.
    monkeypatch.setattr("egressd.service.overview.READ_EVERY_S", 0.0)
    device.bench.netd.counted = {key: RuleCount(0, 0, 0, 0)}
    await get(device, "/overview")
    device.bench.netd.counted = {key: RuleCount(1000, 1, 9000, 6)}
    flows = {flow["target"]: flow for flow in (await get(device, "/overview"))["flows"]}
    up, down = flows["DIRECT"]["upload_bps"], flows["DIRECT"]["download_bps"]
    assert up > 0
    assert down == pytest.approx(9 * up, rel=0.01)


async def test_the_overview_is_available_without_netd(device: Device) -> None:
    device.bench.netd.is_away = True
    seen = await get(device, "/overview")
    assert seen["status"] == "restoring"
    assert seen["problems"]


async def test_changes_are_recorded_with_their_author(device: Device) -> None:
    await rule(device, "10.0.0.1", "DIRECT")
    session = device.client_at("192.168.8.5", token=None)
    cookie = {"cookie": "session=1"}
    await session.put(
        "http://device/svc/api/v1/whitelist",
        json={"domains": "a.test", "ips": "", "node": "DIRECT"},
        headers=cookie,
    )
    await device.call("POST", "/rules", {"ip": "bad", "target_node": "DIRECT"})
    await device.call("DELETE", "/rules/99")
    await get(device, "/overview")
    recorded = (await get(device, "/changes?limit=10"))["data"]
    assert [(r["who"], r["source"], r["what"], r["text"]) for r in recorded] == [
        ("session=1", "192.168.8.5", "PUT /svc/api/v1/whitelist", "whitelist saved"),
        ("token", "192.0.2.10", "POST /svc/api/v1/rules", "rule for 10.0.0.1 created"),
    ]
    told = [device.events.get_nowait() for _ in range(device.events.qsize())]
    assert [(e.topic, e.subject) for e in told if e] == [
        ("change", "rules"),
        ("change", "whitelist"),
    ]
    assert len((await get(device, "/changes?limit=1"))["data"]) == 1
    for limit in ("0", "1001", "x", "-1", "1.0"):
        response = await device.client.get(f"{OPS}/changes?limit={limit}")
        assert response.json()["error"].startswith("limit must be a whole number from 1 to 1000")


async def test_previews_and_reads_are_not_recorded(device: Device) -> None:
    await post(device, "/preview/rules", {"text": "10.0.0.1,DIRECT"})
    await device.client.get(f"{OPS}/settings")
    assert (await get(device, "/changes"))["data"] == []


async def test_settings_are_shown_and_replaced(device: Device) -> None:
    before = await get(device, "/settings")
    wanted = {**before, "unmanaged": "DIRECT", "check_interval_s": 60, "group_strategy": "sticky"}
    response = await device.client.put(f"{OPS}/settings", json=wanted)
    assert response.json() == {"msg": "settings saved"}
    assert await get(device, "/settings") == wanted
    bad = {**wanted, "unmanaged": "nobody", "check_interval_s": 4, "stopped": True}
    response = await device.client.put(f"{OPS}/settings", json=bad)
    assert response.status_code == 400
    for field in ("check_interval_s must be", "stopped is not a field"):
        assert field in response.json()["error"]
    del bad["stopped"]
    response = await device.client.put(f"{OPS}/settings", json=bad | {"check_interval_s": 5})
    assert response.json()["error"].startswith("unmanaged must be")


async def test_replaced_settings_have_the_tag_of_what_was_put(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: it was that of the settings by then, which another caller may have replaced while
    the members of a site followed: the next change with this tag undid that one unseen.
    """
    ledger = device.bench.ledger
    change = ledger.change

    async def followed(build: Any, **options: Any) -> Any:
        outcome = await change(build, **options)
        monkeypatch.undo()
        await device.client.put(url, json={**shown, "check_interval_s": 61})
        return outcome

    url = f"{OPS}/settings"
    shown = await get(device, "/settings")
    monkeypatch.setattr(ledger, "change", followed)
    tag = (await device.client.put(url, json={**shown, "check_interval_s": 60})).headers["etag"]
    late = await device.client.put(url, json=shown, headers={"if-match": tag})
    assert late.status_code == 412
    assert (await get(device, "/settings"))["check_interval_s"] == 61


async def test_settings_are_replaced_if_they_are_still_the_same(device: Device) -> None:
    url = "http://device/ops/settings"
    first = await device.client.get(url)
    body = first.json() | {"check_interval_s": 99}
    assert (await device.client.post("http://device/ops/stop", json={})).is_success
    saved = await device.client.put(url, json=body, headers={"if-match": first.headers["etag"]})
    assert saved.status_code == 200, "a stop changes none of these fields"
    late = await device.client.put(url, json=body, headers={"if-match": first.headers["etag"]})
    assert late.status_code == 412
    assert late.json() == {"error": "the settings have been changed since they were read"}
    now = await device.client.get(url)
    assert (now.json(), now.headers["etag"]) == (body, saved.headers["etag"])


async def test_stop_start_and_open_are_operations_with_confirmation(device: Device) -> None:
    await rule(device, "10.0.0.1", "DIRECT")
    refused = await device.client.post(f"{OPS}/stop")
    assert refused.json()["error"] == "body is missing: it must be a JSON object, {}"
    assert (await post(device, "/stop", {})).json()["msg"].startswith("stopped")
    assert device.bench.netd.plan.policy.stopped
    assert (await get(device, "/overview"))["status"] == "stopped"
    for body in ({}, {"confirm": "yes"}, {"confirm": True}):
        response = await post(device, "/open", body)
        assert response.status_code == 400
        assert "confirm" in response.json()["error"]
    assert device.bench.netd.plan.policy.stopped
    assert (await post(device, "/open", {"confirm": "open"})).json()["msg"].startswith("opened")
    seen = await get(device, "/overview")
    assert (seen["status"], seen["is_open"]) == ("stopped", True)
    assert (await post(device, "/start", {})).json()["msg"].startswith("started")
    seen = await get(device, "/overview")
    assert (seen["status"], seen["is_open"]) == ("running", False)
    assert not device.bench.netd.plan.policy.stopped


async def test_the_narrowest_enabled_rule_applies(device: Device) -> None:
    await node(device, "tokyo")
    await rule(device, "10.0.0.0/8", "DIRECT", comment="all", download_limit_kbps=9)
    await rule(device, "10.0.0.0/24", "tokyo", download_limit_kbps=5)
    await rule(device, "10.0.0.7", "REJECT", is_enabled=False)
    told = await explained(device, "10.0.0.7", "example.com")
    assert told["rule"]["ip"] == "10.0.0.0/24"
    assert [other["ip"] for other in told["other_rules"]] == ["10.0.0.0/8"]
    assert (told["target"], told["nodes"], told["egresses"]) == ("tokyo", ["tokyo"], ["DIRECT"])
    assert told["limits"] == {"rule": "10.0.0.0/24", "upload_kbps": 0, "download_kbps": 5}
    dns = {"server": "192.0.2.55", "further": ["192.0.2.57"], "way": "through the node"}
    assert told["dns"] | dns == told["dns"]
    assert told["dns"]["way_coded"]["code"] == "asked-by-node"
    assert not told["is_blocked"]
    assert any("rule 3 (10.0.0.7) is disabled" in step for step in told["steps"])
    told = await explained(device, "10.9.0.7", "example.com")
    assert (told["rule"]["comment"], told["dns"]["way"]) == ("all", "directly")
    told = await explained(device, "192.0.2.7", "example.com")
    assert (told["rule"], told["target"]) == (None, "REJECT")
    assert (told["is_blocked"], told["reason"]) == (True, "its target is REJECT")


@pytest.mark.parametrize(
    ("destination", "more", "entry"),
    [
        ("www.listed.test", {}, "listed.test"),
        ("listed.test", {"port": "8080"}, "listed.test"),
        ("listed.test", {"protocol": "udp"}, "listed.test"),
        ("unlisted.test", {}, ""),
        ("listed.test", {"port": "22"}, ""),
        ("listed.test", {"port": "80", "protocol": "udp"}, ""),
        ("bound.test", {"port": "9443"}, "https://bound.test:9443"),
        ("bound.test", {}, ""),
        ("198.51.100.77", {"port": "22"}, "198.51.100.0/24"),
        ("198.51.100.77", {"port": "53", "protocol": "udp"}, "198.51.100.0/24"),
        ("203.0.113.1", {}, ""),
    ],
)
async def test_the_explanation_follows_the_whitelist(
    device: Device, destination: str, more: dict[str, str], entry: str
) -> None:
    await node(device, "tokyo")
    listed = {
        "domains": "listed.test\nhttps://bound.test:9443",
        "ips": "198.51.100.0/24",
        "node": "tokyo",
    }
    await device.answer("PUT", "/whitelist", listed)
    await rule(device, "10.0.0.1", "Interface:wan1")
    told = await explained(device, "10.0.0.1", destination, **more)
    assert told["whitelist"]["entry"] == entry
    # DNS queries go the client's own way, to any resolver.
    is_redirected = bool(entry) and more.get("port") != "53"
    assert told["target"] == ("tokyo" if is_redirected else "Interface:wan1")
    assert any("DNS goes the client's own way" in s for s in told["steps"]) == (
        more.get("port") == "53"
    )
    stranger = await explained(device, "10.0.0.2", destination, **more)
    assert stranger["target"] == "REJECT"
    assert any("is for clients with a rule" in s for s in stranger["steps"]) == bool(entry)


async def test_clients_without_a_rule_have_a_separate_instance(device: Device) -> None:
    tokyo = await node(device, "tokyo")
    settings = await get(device, "/settings")
    await device.client.put(f"{OPS}/settings", json={**settings, "unmanaged": "tokyo"})

    async def told() -> tuple[str, str, str]:
        """Return the reasons for clients without a rule and with one, and those on the overview."""
        stranger = await explained(device, "10.0.0.2", "example.com")
        own = await explained(device, "10.0.0.1", "example.com")
        overview = await get(device, "/overview")
        (flow,) = [flow for flow in overview["flows"] if flow["target"] == "tokyo"]
        assert stranger["reason"] == overview["unruled"]["reason"]
        assert own["reason"] == flow["problem"]
        return stranger["reason"], own["reason"], "; ".join(overview["problems"])

    def seen(**problems: str) -> Status:
        instances = {
            key: InstanceStatus(problem=as_sentence(problem)) for key, problem in problems.items()
        }
        return Status(state="running", revision=1, instances=instances)

    await rule(device, "10.0.0.1", "tokyo")
    device.bench.netd.shown = seen(**{"default:0": "no memory", f"node:{tokyo}": ""})
    nobody = "clients without a rule are blocked: no memory"
    assert await told() == ("no memory", "", nobody)
    device.bench.netd.shown = seen(**{"default:0": "", f"node:{tokyo}": "no memory"})
    assert await told() == ("", "no memory", "1 client of tokyo is blocked: no memory")
    device.bench.netd.shown = seen(**{"default:0": "", f"node:{tokyo}": ""})
    assert await told() == ("", "", "")


async def test_failing_nodes_are_reported(device: Device) -> None:
    first, second, third = [await node(device, name, "hk") for name in ("one", "two", "three")]
    await rule(device, "10.0.0.1", "one")
    await rule(device, "10.0.0.2", "Group_hk")

    async def told(*failing: int) -> tuple[str, str]:
        """Return the overview's problems of a node and of its group."""
        reasons = {f"node:{number}": as_sentence(f"no answer of {number}") for number in failing}
        device.bench.netd.shown = Status(state="running", revision=1, failing=reasons)
        flows = {flow["target"]: flow for flow in (await get(device, "/overview"))["flows"]}
        return flows["one"]["problem"], flows["Group_hk"]["problem"]

    assert await told() == ("", "")
    assert await told(second, third) == ("", "")
    fails = f"its node fails: no answer of {first}"
    assert await told(first, third) == (fails, "")
    all_fail = f"all of its nodes fail: no answer of {first}"
    assert await told(first, second, third) == (fails, all_fail)
    answer = await explained(device, "10.0.0.1", "example.com")
    # Only a new attempt shows whether this still holds.
    assert (answer["is_blocked"], answer["reason"], answer["problem"]) == (True, fails, fails)
    assert answer["steps"][-1] == f"it is blocked: {fails}"
    assert answer["since"] == "2026-11-20T22:58:40Z"
    await told(third)
    assert (await explained(device, "10.0.0.1", "example.com"))["problem"] == ""


async def test_the_reason_of_a_blocked_client_is_explained(device: Device) -> None:
    device.bench.netd.shown = Status(
        state="running",
        revision=1,
        egress_problems={
            "wan1": say("interface-without-address", name="wan1"),
            "wan9": say("no-interface", name="wan9"),
        },
    )
    await node(device, "no-udp")
    gone = await node(device, "gone", "gone")
    reasons = {
        "gone": "there is no node gone",
        "Group_gone": "there is no group gone",
        "Interface:wan1": "the interface wan1 has no address",
        "Interface:wan9": "there is no interface wan9",
        "Interface:l2tp_9": "there is no line l2tp_9",
    }
    for number, target in enumerate(reasons, 1):
        await rule(device, f"10.0.0.{number}", target)
    await device.answer("DELETE", f"/nodes/{gone}")
    for number, reason in enumerate(reasons.values(), 1):
        told = await explained(device, f"10.0.0.{number}", "example.com")
        assert (told["is_blocked"], told["reason"]) == (True, reason)
    await rule(device, "10.0.0.50", "no-udp")
    told = await explained(device, "10.0.0.50", "example.com", protocol="udp")
    assert told["reason"].startswith("its node does not carry UDP")
    assert not (await explained(device, "10.0.0.50", "example.com"))["is_blocked"]
    await post(device, "/stop", {})
    told = await explained(device, "10.0.0.50", "example.com")
    assert told["reason"] == "an operator has stopped the device"
    await post(device, "/open", {"confirm": "open"})
    told = await explained(device, "10.0.0.1", "example.com")
    assert (told["target"], told["is_blocked"], told["rule"]) == ("DIRECT", False, None)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("client=x&destination=example.com", "client must be an IPv4 address"),
        ("client=::1&destination=example.com", "client must be an IPv4 address"),
        ("client=10.0.0.1&destination=a b", "destination must be a domain name or an IPv4"),
        ("client=10.0.0.1&destination=::1", "destination must be a domain name or an IPv4"),
        ("client=10.0.0.1&destination=a.test&port=0", "port must be a whole number"),
        ("client=10.0.0.1&destination=a.test&protocol=icmp", "protocol must be one of tcp, udp"),
        ("client=10.0.0.1", "destination is missing"),
    ],
)
async def test_an_invalid_query_is_refused(device: Device, query: str, problem: str) -> None:
    response = await device.client.get(f"{OPS}/explain?{query}")
    assert response.status_code == 400
    assert problem in response.json()["error"]


async def test_a_probe_uses_the_clients_egress(device: Device) -> None:
    await node(device, "slow", "hk")
    await node(device, "fast", "hk", server="203.0.113.8")
    await node(device, "dead", "hk", server="203.0.113.9")
    await rule(device, "10.0.0.1", "Group_hk")
    probes: list[Probe] = []

    def delay_of(probe: Probe) -> Delay:
        probes.append(probe)
        return {
            "slow": Delay(delay=90, page=b"fl=1\nip=203.0.113.7\nts=1.2.3"),
            "fast": Delay(delay=10, page=b'{"ip": "203.0.113.8"}'),
            "dead": Delay(delay=-1, error=as_sentence("timed out")),
        }[probe.name]

    device.bench.netd.delay_of = delay_of
    body = {"client": "10.0.0.1", "destination": "example.com", "url": "http://who.test/"}
    told = (await post(device, "/probe", body)).json()
    # The fastest path is not necessarily the client's path.
    assert (told["target"], told["way"], told["exit_ip"]) == ("Group_hk", "", "")
    assert (told["url"], told["in_force"]) == ("http://who.test/", True)
    assert [(way["name"], way["delay"]) for way in told["ways"]] == [
        ("fast", 10),
        ("slow", 90),
        ("dead", -1),
    ]
    assert told["ways"][1]["exit_ip"] == "203.0.113.7"
    assert {probe.path.mark for probe in probes} == {0x3000_0000}
    (group,) = device.bench.netd.plan.groups
    for taken, seen, delay in (("slow", "203.0.113.7", 90), ("dead", "", -1)):
        node_id = device.bench.ledger.state.node_by_name[taken]
        device.bench.netd.members = {group: f"node:{node_id}"}
        told = (await post(device, "/probe", body)).json()
        assert (told["way"], told["exit_ip"], told["delay"]) == (taken, seen, delay)
    device.bench.netd.plan.hosts["10.0.0.1"] = 1
    assert not (await post(device, "/probe", body)).json()["in_force"]


async def test_a_probe_by_a_kernel_routed_egress_has_its_mark(device: Device) -> None:
    device.bench.netd.shown = Status(
        state="running",
        revision=1,
        interfaces=(InterfaceStatus(name="wan1", ip="203.0.113.20", is_up=True, role="wan"),),
    )
    await rule(device, "10.0.0.1", "Interface:wan1")
    probes: list[Probe] = []

    def delay_of(probe: Probe) -> Delay:
        probes.append(probe)
        return Delay(delay=3, page=b"999.1.1.1 or 203.0.113.20")

    device.bench.netd.delay_of = delay_of
    told = (await post(device, "/probe", {"client": "10.0.0.1", "destination": "a.test"})).json()
    assert (told["exit_ip"], told["in_force"]) == ("203.0.113.20", True)
    assert probes[0].path.mark == device.bench.netd.plan.hosts["10.0.0.1"]


async def test_a_probe_for_a_blocked_client_is_refused(device: Device) -> None:
    response = await post(device, "/probe", {"client": "10.0.0.1", "destination": "a.test"})
    assert response.status_code == 400
    assert "there is no way to try: its target is REJECT" in response.json()["error"]


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("rules", {"text": "10.0.0.1,DIRECT\nbad,DIRECT\n10.0.0.2,REJECT", "replace": True}),
        ("nodes", {"type": "socks5", "text": "203.0.113.7,1080\nbad\n203.0.113.8,1080"}),
        ("vpn-lines", {"type": "pptp", "text": "a.test,u,p,pptp_1,\nbad\nb.test,u,p,pptp_2,"}),
        ("proxy-services", {"text": "a,wan1,18080,u,p\nbad\nb,wan1,18081,u,p", "replace": False}),
    ],
)
async def test_a_preview_shows_the_result_and_changes_nothing(
    device: Device, what: str, body: dict[str, Any]
) -> None:
    await rule(device, "10.9.9.9", "DIRECT")
    before = device.bench.ledger.state
    told = (await post(device, f"/preview/{what}", body)).json()
    assert (told["imported"], told["skipped"], told["bad"]) == (2, 1, 1)
    assert len(told["errors"]) == 1
    assert told["errors"][0].startswith("line 2: ")
    (bad,) = told["bad_rows"]
    details = "; ".join(error["detail"] for error in bad["errors"])
    assert (bad["line"], f"line 2: {details}") == (2, told["errors"][0])
    assert device.bench.ledger.state is before
    # The import itself has the same result.
    done = await device.answer("POST", f"/{what}/import", body)
    assert (done["imported"], done["skipped"]) == (2, 1)


async def test_a_preview_names_the_fields_and_codes_of_each_bad_row(device: Device) -> None:
    text = "10.0.0.1/8,unknown\n10.0.0.2,DIRECT\nbad"
    shown = (await post(device, "/preview/rules", {"text": text})).json()
    assert [
        (row["line"], [(error["pointer"], error["code"]) for error in row["errors"]])
        for row in shown["bad_rows"]
    ] == [(1, [("/ip", "ipv4-or-cidr"), ("/target_node", "target-missing")]), (3, [("", "other")])]
    node = '{"name": "a", "type": "ss", "server": "203.0.113.7", "port": 0, "cipher": "none"}'
    body = {"type": "others", "text": node}
    shown = (await post(device, "/preview/nodes", body)).json()
    (row,) = shown["bad_rows"]
    assert ("/port", "whole-number") in [(e["pointer"], e["code"]) for e in row["errors"]]


async def test_a_preview_counts_all_bad_rows_and_shows_the_first(device: Device) -> None:
    await rule(device, "10.0.0.1", "DIRECT")
    text = "\n".join(["10.0.0.1,DIRECT"] + ["bad"] * 1500)
    told = (await post(device, "/preview/rules", {"text": text})).json()
    assert (told["skipped"], told["bad"], len(told["errors"])) == (1501, 1500, 1000)
    assert len(told["bad_rows"]) == 1000


async def test_nodes_are_exported_as_links(device: Device) -> None:
    await node(device, "tokyo", username="u", password="p", **{"interface-name": "wan1"})
    (told,) = (await get(device, "/nodes/links"))["data"]
    assert told["name"] == "tokyo"
    assert told["link"].startswith("socks5://u:p@203.0.113.7:1080")
    assert told["lost"] == ["interface-name"]


@pytest.mark.slow
async def test_a_stream_sends_overviews_and_ends_with_its_session(fresh_device: Device) -> None:
    device = fresh_device
    sent: asyncio.Queue[Any] = asyncio.Queue()

    async def receive() -> Any:
        await asyncio.Event().wait()

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ops/events",
        "raw_path": b"/ops/events",
        "query_string": b"overview=1",
        "headers": [(b"cookie", b"session=1")],
        "client": ("192.168.8.5", 40000),
    }
    streaming = asyncio.ensure_future(device.app(scope, receive, sent.put))
    assert (await asyncio.wait_for(sent.get(), 5))["status"] == 200
    await asyncio.wait_for(sent.get(), 5)
    for _ in range(2):
        chunk = (await asyncio.wait_for(sent.get(), 5))["body"]
        assert chunk.startswith(b"event: overview\ndata: ")
        assert json.loads(chunk.removeprefix(b"event: overview\ndata: "))["status"] == "running"
    device.sessions.clear()
    await asyncio.wait_for(streaming, 5)


@pytest.mark.usefixtures("old_engine")
async def test_an_unsupported_option_of_several_nodes_is_one_problem(device: Device) -> None:
    link = (
        "vmess://b831381d-6324-4d53-ad4f-8cda48b30811@192.0.2.1:443?type=ws&path=%2F%3Fed%3D9#n{}"
    )
    body = {"type": "vlessvmess", "text": "\n".join(map(link.format, range(3))), "replace": False}
    told = (await post(device, "/preview/nodes", body)).json()
    assert [note.partition(":")[0] for note in told["notes"]] == ["line 1", "line 2", "line 3"]
    assert (await get(device, "/overview"))["problems"] == []
    await device.answer("POST", "/nodes/import", body)
    (problem,) = (await get(device, "/overview"))["problems"]
    assert problem.startswith("3 nodes: ws-opts.max-early-data has no effect")


async def test_a_preview_of_nodes_tells_the_fate_of_each_row(device: Device) -> None:
    before = "203.0.113.7,1080,u,p,one\n203.0.113.8,1080,u,p,two\n203.0.113.9,1080,u,p,three"
    await device.answer("POST", "/nodes/import", {"type": "socks5", "text": before})
    text = (
        "203.0.113.7,1080,u,p,one\n203.0.113.8,1081,u,secret,two\nbad\n"
        "203.0.113.5,1080,u,p,new\n203.0.113.6,1080,u,p,new"
    )
    body: dict[str, Any] = {"type": "socks5", "text": text}
    told = (await post(device, "/preview/nodes", body)).json()
    assert [(row["line"], row["fate"], row["name"], row["changed"]) for row in told["fates"]] == [
        (1, "same", "one", []),
        (2, "clash", "two", ["password", "port"]),
        (4, "added", "new", []),
        (5, "added", "new 2", []),
    ]
    assert "secret" not in str(told)
    assert told["removed"] == 0
    body = {**body, "replace": True, "group": "asia"}
    told = (await post(device, "/preview/nodes", body)).json()
    fates = [(row["fate"], row["changed"]) for row in told["fates"]]
    assert fates[:2] == [("changed", ["group"]), ("changed", ["password", "port", "group"])]
    assert (told["removed"], told["removed_names"]) == (1, ["three"])
    told = (await post(device, "/preview/nodes", {**body, "text": "bad"})).json()
    assert (told["removed"], told["removed_names"]) == (0, [])


async def test_a_preview_of_lines_tells_the_fate_of_each_row(device: Device) -> None:
    text = "h.test,u,p,s,l2tp_1\nh.test,u,p,s,l2tp_2"
    await device.answer("POST", "/vpn-lines/import", {"type": "l2tp", "text": text})
    text = "h.test,u,p,s,l2tp_1\nother.test,u,p,t,l2tp_2\nh.test,u,p,s,l2tp_3"
    told = (await post(device, "/preview/vpn-lines", {"type": "l2tp", "text": text})).json()
    assert [(row["fate"], row["name"], row["changed"]) for row in told["fates"]] == [
        ("same", "l2tp_1", []),
        ("changed", "l2tp_2", ["server", "secret"]),
        ("added", "l2tp_3", []),
    ]


@pytest.mark.parametrize(
    ("what", "text", "kind", "form"),
    [
        ("nodes", "trojan://a@203.0.113.1:443#one", "others", "links"),
        ("nodes", "203.0.113.1,1080,u,p,one", "socks5", "rows"),
        ("nodes", "hello", "others", ""),
        ("vpn-lines", "h.test,u,p,pptp_1", "pptp", "rows"),
    ],
)
async def test_the_form_of_a_text_is_recognised(
    device: Device, what: str, text: str, kind: str, form: str
) -> None:
    response = await post(device, f"/recognise/{what}", {"text": text})
    assert response.json() == {"type": kind, "form": form}
