"""Health, metrics, events, request ids and the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message, Receive, Scope, Send

from egressd import __version__
from egressd.api.observe import Observe, RequestMetrics
from egressd.model.delays import Delay
from egressd.model.messages import (
    Event,
    InstanceStatus,
    InterfaceStatus,
    LineStatus,
    Probe,
    RuleCount,
    Status,
)
from egressd.model.times import utc_seconds
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.service.overview import TimedBackups
from tests.support.api_device import SECOND

if TYPE_CHECKING:
    from tests.support.api_device import Device

    Logged = list[MutableMapping[str, Any]]


async def metrics(device: Device) -> dict[str, float]:
    """Return samples by name and labels: ``name{a=b}``."""
    text = (await device.client.get("http://device/ops/metrics")).text
    return {
        sample.name + "".join(f"{{{k}={v}}}" for k, v in sorted(sample.labels.items())): float(
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.parametrize(
    ("state", "is_away", "status", "code"),
    [
        ("running", False, "running", 200),
        ("restoring", False, "restoring", 503),
        ("running", True, "restoring", 503),
    ],
)
async def test_health_follows_the_state_of_netd(
    device: Device, state: str, is_away: bool, status: str, code: int
) -> None:
    device.bench.netd.shown = Status(state=state, revision=0)
    device.bench.netd.is_away = is_away
    response = await device.client_at("192.0.2.99", token=None).get("http://device/ops/health")
    assert response.status_code == code
    assert response.json() == {"status": status}


async def test_metrics_describe_the_device(fresh_device: Device) -> None:
    device = fresh_device
    online = LineStatus(is_online=True, ip="10.9.0.2")
    device.bench.netd.shown = Status(
        state="running",
        revision=0,
        lines={"l2tp_1": online},
        egress_problems={"gone0": say("no-interface", name="gone0")},
        connections=12,
        tracked=15,
        tracked_max=262_144,
        workers=2,
        instances={key: InstanceStatus(problem=NONE) for key in ("node:1", "node:2", "group:1")},
        memory=5000,
        problems=(say("table-nearly-full", n=15, limit=16),),
    )
    for ip in ("10.0.0.5", "10.0.0.6"):
        await device.answer("POST", "/rules", {"ip": ip, "target_node": "DIRECT"})
    await device.answer("POST", "/rules", {"ip": "10.0.0.7", "target_node": "Interface:gone0"})
    for name in ("l2tp_1", "l2tp_2"):
        body = {"type": "l2tp", "name": name, "server": "a.example", "username": "u"}
        await device.answer("POST", "/vpn-lines", body | {"password": "p"})
    seen = await metrics(device)
    assert seen["egressd_up"] == 1
    assert seen["egressd_connections"] == 12
    assert seen["egressd_connection_table_entries"] == 15
    assert seen["egressd_connection_table_limit"] == 262_144
    assert seen["egressd_engine_workers"] == 2
    assert seen["egressd_engine_instances"] == 3
    assert seen["egressd_memory_bytes"] == 6000
    assert seen["egressd_revision"] == device.bench.ledger.revision
    assert seen["egressd_configured{kind=rules}"] == 3
    assert seen["egressd_targets_failing"] == 1
    problems = (await device.client.get("http://device/ops/overview")).json()["problems"]
    assert seen["egressd_problems"] == len(problems) == 2
    assert seen["egressd_configured{kind=lines}"] == 2
    assert seen["egressd_lines_online"] == 1


@pytest.mark.parametrize(
    ("last_success", "problem", "failing", "time"),
    [
        ("2026-11-20T03:00:04Z", NONE, 0, 1_795_143_604),
        ("2026-11-20T03:00:04Z", say("timed-backup-late", folder="/mnt"), 1, 1_795_143_604),
        ("", say("timed-backup-late", folder="/mnt"), 1, 0),
    ],
)
async def test_metrics_of_timed_backups(
    fresh_device: Device, last_success: str, problem: Sentence, failing: int, time: int
) -> None:
    fresh_device.timed_backups = TimedBackups(
        folder="/mnt",
        every_h=24,
        keep=14,
        last_success=last_success,
        next_run="2026-11-21T03:00:00Z",
        problem=problem,
    )
    seen = await metrics(fresh_device)
    assert seen["egressd_timed_backup_failing"] == failing
    assert seen["egressd_timed_backup_last_success_timestamp_seconds"] == time


async def test_metrics_of_each_line_target_and_interface(fresh_device: Device) -> None:
    device = fresh_device
    odd = 'a"b\\c'
    device.bench.netd.shown = Status(
        state="running",
        revision=0,
        lines={
            "l2tp_1": LineStatus(is_online=True, ip="10.9.0.2"),
            "l2tp_4": LineStatus(is_online=False, state="standby"),
        },
        egress_problems={"gone0": say("no-interface", name="gone0")},
        interfaces=(
            InterfaceStatus(name=odd, ip="", is_up=True, role="wan", received=2**53, sent=7),
        ),
    )
    for ip, target in (
        ("10.0.0.5", "DIRECT"),
        ("10.0.0.6", "DIRECT"),
        ("10.0.0.7", "Interface:gone0"),
    ):
        await device.answer("POST", "/rules", {"ip": ip, "target_node": target})
    body: dict[str, Any] = {"type": "l2tp", "server": "a.example", "username": "u", "password": "p"}
    for name in ("l2tp_1", "l2tp_2", "l2tp_3", "l2tp_4"):
        await device.answer("POST", "/vpn-lines", body | {"name": name})
    body |= {"port": 1702, "secret": "s", "interface": "wan1", "comment": ""}
    body |= {"name": "l2tp_3", "dns_profile": "auto", "dns_servers": [], "is_enabled": False}
    await device.answer("PUT", "/vpn-lines/l2tp/l2tp_3", body)
    seen = await metrics(device)
    lines = {name: value for name, value in seen.items() if name.startswith("egressd_line_up")}
    assert lines == {"egressd_line_up{line=l2tp_1}": 1, "egressd_line_up{line=l2tp_2}": 0}
    targets = {name: value for name, value in seen.items() if name.startswith("egressd_target_")}
    assert targets == {
        "egressd_target_up{target=DIRECT}": 1,
        "egressd_target_up{target=Interface:gone0}": 0,
        "egressd_target_clients{target=DIRECT}": 2,
        "egressd_target_clients{target=Interface:gone0}": 1,
    }
    exchanged = f"egressd_interface_bytes_total{{direction=%s}}{{interface={odd}}}{{role=wan}}"
    assert seen[exchanged % "received"] == 2**53
    assert seen[exchanged % "sent"] == 7
    assert seen["egressd_netd_up"] == 1
    assert seen[f"egressd_build_info{{engine=}}{{version={__version__}}}"] == 1
    assert seen["egressd_start_time_seconds"] > 1_700_000_000
    assert seen["process_start_time_seconds"] > 0


async def test_a_scrape_asks_netd_for_its_status_once(
    fresh_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    netd = fresh_device.bench.netd
    answers: list[Status] = []
    status = netd.status

    async def counted() -> Status:
        answers.append(await status())
        return answers[-1]

    monkeypatch.setattr(netd, "status", counted)
    assert (await metrics(fresh_device))["egressd_up"] == 1
    assert len(answers) == 1


async def test_exits_have_their_address_and_those_that_share_it(fresh_device: Device) -> None:
    device = fresh_device
    for number, name in enumerate(("a", "b", "c"), 1):
        place = f'{{"server": "198.51.100.{number}", "port": 1080}}'
        body = {"name": name, "protocol": "socks5", "config_json": place}
        await device.answer("POST", "/nodes", body)
        await device.answer("POST", "/rules", {"ip": f"10.0.0.{number}", "target_node": name})
    pages = {node.id: b"ip=203.0.113.7\nloc=JP\n" for node in device.bench.nodes.list()[:2]}

    def answered(probe: Probe) -> Delay:
        page = pages.get(int(probe.name.removeprefix("node:"))) if "node" in probe.name else None
        late = Delay(delay=-1, error=as_sentence("late"))
        return late if page is None else Delay(delay=9, page=page)

    device.bench.netd.delay_of = answered
    await device.exits.ask_due(lambda: 0.0)
    seen = {name: value for name, value in (await metrics(device)).items() if "_exit_" in name}
    info = "egressd_exit_info{country=JP}{ip=203.0.113.7}{kind=node}{target=%s}"
    assert {name: value for name, value in seen.items() if "info" in name} == {
        info % "a": 1,
        info % "b": 1,
    }
    failing = {target: seen[f"egressd_exit_failing{{target={target}}}"] for target in "abc"}
    assert failing == {"a": 0, "b": 0, "c": 1}
    assert seen["egressd_exit_shared_with{target=a}"] == 1
    assert seen["egressd_exit_changed_timestamp_seconds{target=b}"] == utc_seconds(SECOND)
    assert "egressd_exit_shared_with{target=c}" not in seen


async def test_delays_are_those_of_nodes_that_answer(fresh_device: Device) -> None:
    for name in ("a", "b"):
        body = {"name": name, "protocol": "socks5", "config_json": PLACE, "group": "g"}
        await fresh_device.answer("POST", "/nodes", body)
    first, _ = fresh_device.bench.nodes.list()
    measured = {f"node:{first.id}": 250, "node:99": 7}
    fresh_device.bench.netd.shown = Status(state="running", revision=0, delays=measured)
    seen = await metrics(fresh_device)
    delays = {name: value for name, value in seen.items() if "node_delay" in name}
    assert delays == {f"egressd_node_delay_seconds{{node={first.name}}}": 0.25}


PLACE = '{"server": "198.51.100.1", "port": 1080}'
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


async def test_a_scraper_that_knows_openmetrics_gets_it(fresh_device: Device) -> None:
    device = fresh_device
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    (rule,) = device.bench.rules.list()
    device.bench.netd.shown = Status(state="running", revision=0, refused={"api": 7})
    device.bench.netd.counted = {rule.id: RuleCount(1, 2, 3, 4)}
    found: dict[str, dict[str, str]] = {}
    for accept, parse in (
        (f"{OPEN_METRICS},text/plain;version=0.0.4;q=0.5", open_families),
        ("text/plain", text_string_to_metric_families),
    ):
        answer = await device.client.get("http://device/ops/metrics", headers={"accept": accept})
        assert answer.headers["content-type"].startswith(accept.partition(",")[0])
        assert "_created" not in answer.text
        families = [*parse(answer.text)]
        found[accept] = {family.name: family.type for family in families}
        values = {sample.name: sample.value for family in families for sample in family.samples}
        assert values["egressd_refused_total"] == 7
        assert values["egressd_rule_packets_total"] == 4
    first, second = found.values()
    assert first == second
    assert first["egressd_rule_bytes"] == "counter"


async def test_unknown_metrics_are_left_out(fresh_device: Device) -> None:
    fresh_device.bench.netd.is_away = True
    left_out = [name for name in await metrics(fresh_device) if "backup" in name or "limit" in name]
    assert left_out == []


async def test_counters_of_rules_are_exact(fresh_device: Device) -> None:
    device = fresh_device
    for ip in ("10.0.0.5", "10.0.0.0/24"):
        await device.answer("POST", "/rules", {"ip": ip, "target_node": "DIRECT"})
    first, second = [rule.id for rule in device.bench.rules.list()]
    device.bench.netd.counted = {
        first: RuleCount(2**53, 2, 3, 4),
        second: RuleCount(5, 6, 7, 8),
        second + 1: RuleCount(1, 1, 1, 1),  # of a rule that was deleted meanwhile
    }
    answer = (await device.client.get("http://device/ops/counters")).json()
    assert answer["data"]["10.0.0.5"] == {
        "upload_bytes": 2**53,
        "upload_packets": 2,
        "download_bytes": 3,
        "download_packets": 4,
    }
    assert sorted(answer["data"]) == ["10.0.0.0/24", "10.0.0.5"]
    seen = await metrics(device)
    samples = {name: value for name, value in seen.items() if name.startswith("egressd_rule_")}
    assert samples == {
        "egressd_rule_bytes_total{direction=upload}{rule=10.0.0.5}": 2**53,
        "egressd_rule_bytes_total{direction=download}{rule=10.0.0.5}": 3,
        "egressd_rule_packets_total{direction=upload}{rule=10.0.0.5}": 2,
        "egressd_rule_packets_total{direction=download}{rule=10.0.0.5}": 4,
        "egressd_rule_bytes_total{direction=upload}{rule=10.0.0.0/24}": 5,
        "egressd_rule_bytes_total{direction=download}{rule=10.0.0.0/24}": 7,
        "egressd_rule_packets_total{direction=upload}{rule=10.0.0.0/24}": 6,
        "egressd_rule_packets_total{direction=download}{rule=10.0.0.0/24}": 8,
    }


async def test_metrics_show_that_the_data_plane_is_away(fresh_device: Device) -> None:
    fresh_device.bench.netd.is_away = True
    seen = await metrics(fresh_device)
    assert seen["egressd_up"] == seen["egressd_netd_up"] == 0
    assert (await fresh_device.client.get("http://device/ops/counters")).status_code == 500


async def test_metrics_of_requests_have_a_limited_set_of_labels(fresh_device: Device) -> None:
    device = fresh_device
    for path in ("/rules/1", "/rules/2", "/never/1", "/never/2"):
        await device.call("DELETE", path)
    for method in ("BREW", "WHEN"):
        await device.raw(method, "/svc/api/v1/rules")
    seen = await metrics(device)
    count = "egressd_http_requests_total"
    rules = "/svc/api/v1/rules/{id}"
    assert seen[f"{count}{{endpoint={rules}}}{{method=DELETE}}{{status=200}}"] == 2
    assert seen[f"{count}{{endpoint=unknown}}{{method=DELETE}}{{status=403}}"] == 2
    assert seen[f"{count}{{endpoint=unknown}}{{method=OTHER}}{{status=403}}"] == 2
    timed = f"egressd_http_request_seconds_count{{endpoint={rules}}}{{method=DELETE}}"
    assert seen[timed] == 2


async def test_events_are_sent_to_a_listener(fresh_device: Device) -> None:
    chunks: asyncio.Queue[Message] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/ops/events",
        "raw_path": b"/ops/events",
        "query_string": b"overview=0",
        "headers": [(b"authorization", f"Bearer {fresh_device.token}".encode())],
        "client": ("192.0.2.10", 40000),
    }
    listening = asyncio.ensure_future(fresh_device.app(scope, receive, chunks.put))
    start = await asyncio.wait_for(chunks.get(), 2)
    assert start["status"] == 200
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    told = Event(
        topic="line", subject="l2tp_1", text="is online", code="online", values={"ip": "10.9.0.2"}
    )
    await fresh_device.events.put(told)
    body = b""
    while b"data: " not in body:
        body += (await asyncio.wait_for(chunks.get(), 2))["body"]
    assert json.loads(body.partition(b"data: ")[2]) == {
        "topic": "line",
        "subject": "l2tp_1",
        "text": "is online",
        "code": "online",
        "values": {"ip": "10.9.0.2"},
    }
    gone.set()
    await asyncio.wait_for(listening, 2)


async def test_a_valid_request_id_is_kept_and_another_replaced(device: Device) -> None:
    given = [(await device.call("GET", "/rules")).headers["x-request-id"] for _ in range(2)]
    assert given[0] != given[1]
    for kept in ("abc-123", "A.b_c"):
        response = await device.call("GET", "/unknown", headers={"x-request-id": kept})
        assert response.headers["x-request-id"] == kept
    for replaced in ("", "a b", "a" * 65, "<script>"):
        response = await device.call("GET", "/rules", headers={"x-request-id": replaced})
        assert response.headers["x-request-id"] not in ("", replaced)


async def test_answers_have_nosniff_and_changes_no_store(device: Device) -> None:
    response = await device.call("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


async def test_requests_are_logged_without_secrets(device: Device, logged: Logged) -> None:
    line = {"type": "l2tp", "name": "l2tp_1", "server": "a.example", "username": "u"}
    body = line | {"password": "hush-hush", "secret": "more-hush"}
    await device.call("POST", f"/vpn-lines?token={device.token}", body)
    await device.call("POST", "/vpn-lines", body | {"port": "x"})
    await device.call("GET", "/rules")
    await device.call("GET", "/rules", headers={"authorization": "Bearer wrong-but-secret"})
    entries = [entry for entry in logged if entry["event"] == "request"]
    assert [(e["method"], e["status"], e["log_level"]) for e in entries] == [
        ("POST", 200, "info"),
        ("POST", 400, "info"),
        ("GET", 200, "debug"),
        ("GET", 401, "debug"),
    ]
    assert entries[0]["path"] == "/svc/api/v1/vpn-lines"
    assert entries[0]["source"] == "192.0.2.10"
    for secret in (device.token, "hush", "wrong-but-secret"):
        assert secret not in repr(logged)


async def test_an_unforeseen_error_is_500_and_detailed_in_the_log_only(
    device: Device, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("an inner detail")

    monkeypatch.setattr(device.bench.rules, "delete", fail)
    response = await device.call("DELETE", "/rules/1")
    assert response.status_code == 500
    assert set(response.json()) == {"error"}
    assert "inner detail" not in response.text
    (entry,) = [entry for entry in logged if "unexpected" in entry["event"]]
    assert "an inner detail" in entry["traceback"]
    assert device.token not in repr(entry)


async def test_the_openapi_document_needs_no_token(device: Device) -> None:
    response = await device.client_at("192.0.2.99", token=None).get(
        "http://device/ops/openapi.json"
    )
    assert response.headers["content-type"] == "application/json"
    assert response.json()["openapi"].startswith("3.1")


async def test_the_application_supports_the_lifespan_protocol(device: Device) -> None:
    said = iter(["lifespan.startup", "lifespan.shutdown"])
    heard: list[str] = []

    async def receive() -> Message:
        return {"type": next(said)}

    async def send(message: Message) -> None:
        heard.append(message["type"])

    await device.app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
    assert heard == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_websocket_is_closed(device: Device) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/svc/api/v1/rules", "headers": []}
    await device.app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_an_interrupted_answer_is_left_to_the_server(
    logged: Logged,
) -> None:
    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("too late to say so")

    observed = Observe(breaks, RequestMetrics(CollectorRegistry()))
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(RuntimeError, match="too late"):
        await observed(scope, nobody, send)
    assert len(sent) == 1
    assert any("too late to say so" in entry.get("traceback", "") for entry in logged)


async def nobody() -> Message:
    raise AssertionError("nothing is read")
