"""Access to the API, and the order of its checks. Promise P7: without the token, no client reads or
changes anything.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from egressd.api.gate import TOKEN_INVALID, TOKEN_UNREADABLE

if TYPE_CHECKING:
    from tests.support.api_device import Device


PREFIX = "/svc/api/v1"


@pytest.fixture
def device(fresh_device: Device) -> Device:
    """Return a device that has not seen any wrong token yet."""
    return fresh_device


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
ENDPOINTS = {
    "/system/status": {"GET"},
    "/system/traffic": {"GET"},
    "/system/interfaces": {"GET"},
    "/system/interfaces-with-ip": {"GET"},
    "/nodes": {"GET", "POST"},
    "/nodes/7": {"PUT", "DELETE"},
    "/nodes/batch": {"DELETE", "PATCH"},
    "/nodes/import": {"POST"},
    "/nodes/delay": {"GET"},
    "/nodes/delay/all": {"GET"},
    "/vpn-lines": {"GET", "POST", "DELETE"},
    "/vpn-lines/l2tp/l2tp_1": {"PUT"},
    "/vpn-lines/status": {"PATCH"},
    "/vpn-lines/import": {"POST"},
    "/rules": {"GET", "POST"},
    "/rules/7": {"PUT", "DELETE"},
    "/rules/7/status": {"PATCH"},
    "/rules/batch": {"DELETE", "PATCH"},
    "/rules/batch/status": {"PATCH"},
    "/rules/batch/limits": {"PATCH"},
    "/rules/import": {"POST"},
    "/whitelist": {"GET", "PUT"},
    "/proxy-services": {"GET", "POST"},
    "/proxy-services/quota": {"GET"},
    "/proxy-services/7": {"PUT", "DELETE"},
    "/proxy-services/7/status": {"PATCH"},
    "/proxy-services/batch": {"DELETE"},
    "/proxy-services/batch/status": {"PATCH"},
    "/proxy-services/import": {"POST"},
}
NOT_ENDPOINTS = (
    "",
    "/",
    "/rules/",
    "//rules",
    "/rules//7",
    "/rules/7/",
    "/rules/7/other",
    "/Rules",
    "/%72ules",
    "/rules%2F7",
    "/rules/7%2Fstatus",
    "/rules/..",
    "/./rules",
    "/rules;x=1",
    "/rules/%ff",
    "/unknown",
    "/vpn-lines/l2tp",
    "/vpn-lines/l2tp/a%2Fb",
    "/token",
    "/openapi.json",
    "/docs",
)
ELSEWHERE_UNDER_ROOT = ("/svc", "/svc/", "/svc/api", "/svc/api/v2/rules", "//svc/api/v1/rules")


async def test_without_the_token_every_path_and_method_is_401(device: Device) -> None:
    stranger = device.client_at("192.0.2.99", token=None)
    paths = [PREFIX + path for path in (*ENDPOINTS, *NOT_ENDPOINTS)] + [*ELSEWHERE_UNDER_ROOT]
    for path in paths:
        for method in METHODS:
            status, document = await device.raw(method, path, token=None)
            assert status == 401, (method, path)
            assert document == {"error": "API Token invalid"}
    response = await stranger.get(f"http://device{PREFIX}/rules")
    assert response.headers["www-authenticate"] == "Bearer"
    assert device.admission.spent == 0


async def test_with_the_token_unspecified_endpoints_are_403(device: Device) -> None:
    for path in (*ENDPOINTS, *NOT_ENDPOINTS):
        for method in METHODS:
            if method in ENDPOINTS.get(path, ()):
                continue
            status, document = await device.raw(method, PREFIX + path)
            assert status == 403, (method, path)
            assert document == {"error": "API_ENDPOINT_NOT_ALLOWED"}
    for path in ELSEWHERE_UNDER_ROOT:
        assert await device.raw("GET", path) == (403, {"error": "API_ENDPOINT_NOT_ALLOWED"})
    assert device.admission.spent == 0


async def test_specified_endpoints_pass_the_gate(device: Device) -> None:
    for path, methods in ENDPOINTS.items():
        for method in methods:
            response = await device.call(method, path)
            assert response.status_code in (200, 400), (method, path, response.text)


async def test_a_literal_path_is_never_an_id(device: Device) -> None:
    response = await device.call("PUT", "/rules/batch", {})
    assert response.status_code == 403
    assert "id must be a whole number" in await device.problem("PUT", "/rules/batches", {})


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic {token}",
        "{token}",
        "Bearer {token} x",
        "Bearer {token}x",
        "Bearer x{token}",
        "Bearer {token},Bearer {token}",
        'Bearer "{token}"',
        "Bearer \t{token}",
        "Bearer {swapped}",
        "Bearer {cut}",
    ],
)
async def test_a_malformed_or_wrong_token_is_401(device: Device, header: str) -> None:
    token = device.token
    value = header.format(token=token, swapped=token.swapcase(), cut=token[:-1])
    response = await device.call("GET", "/rules", headers={"authorization": value})
    assert response.status_code == 401
    assert response.json() == {"error": "API Token invalid"}


async def test_the_scheme_is_read_in_either_case(device: Device) -> None:
    headers = {"authorization": f"bearer {device.token}"}
    assert (await device.call("GET", "/rules", headers=headers)).status_code == 200


async def test_two_tokens_count_as_none(device: Device) -> None:
    header = ("authorization", f"Bearer {device.token}")
    stranger = device.client_at("192.0.2.99", token=None)
    response = await stranger.get(f"http://device{PREFIX}/rules", headers=[header, header])
    assert response.status_code == 401


async def test_a_token_in_the_query_is_ignored(device: Device) -> None:
    stranger = device.client_at("192.0.2.99", token=None)
    url = f"http://device{PREFIX}/rules?token={device.token}&access_token={device.token}"
    assert (await stranger.get(url)).status_code == 401


async def test_a_token_is_invalid_after_a_reset(device: Device) -> None:
    assert (await device.call("GET", "/rules")).status_code == 200
    device.token = "another"
    assert (await device.call("GET", "/rules")).status_code == 401


async def test_with_an_unreadable_token_every_request_is_refused(device: Device) -> None:
    """The answer does not call the token wrong either: it may be the right one."""
    right, device.token = device.token, ""
    for path in ("/svc/api/v1/rules", "/svc/api/v1/unknown", "/ops/metrics"):
        for token, status in ((right, 500), ("x", 500), ("", 401), (None, 401)):
            answered, document = await device.raw("GET", path, token=token)
            assert answered == status
            assert document == {"error": TOKEN_UNREADABLE if status == 500 else TOKEN_INVALID}


async def test_the_license_is_checked_after_the_token_and_before_the_endpoint(
    device: Device,
) -> None:
    stranger = device.client_at("192.0.2.99", token="wrong")
    for text in ("API_ACCESS_REQUIRED", "API_TRIAL_QUOTA_EXHAUSTED"):
        device.admission.refused = text
        assert (await stranger.get(f"http://device{PREFIX}/rules")).status_code == 401
        for path in ("/rules", "/unknown", "/rules/"):
            response = await device.call("POST", path, {"not": "a rule"})
            assert response.status_code == 403
            assert response.json() == {"error": text}
    assert device.admission.spent == 0


async def test_only_calls_that_pass_the_gate_cost_a_trial_call(device: Device) -> None:
    device.admission.calls_left = 3
    assert (await device.call("GET", "/unknown")).status_code == 403
    assert (await device.call("GET", "/rules", headers={"authorization": ""})).status_code == 401
    assert (await device.call("GET", "/rules")).status_code == 200
    assert (await device.call("POST", "/rules", {})).status_code == 400
    assert (await device.call("DELETE", "/rules/99")).status_code == 200
    for path in ("/rules", "/unknown"):
        response = await device.call("GET", path)
        assert response.json() == {"error": "API_TRIAL_QUOTA_EXHAUSTED"}
    assert device.admission.spent == 3


async def test_the_last_trial_call_may_be_taken_by_a_concurrent_request(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.admission.calls_left = 0
    monkeypatch.setattr(device.admission, "refusal", lambda: None)
    response = await device.call("GET", "/rules")
    assert response.status_code == 403
    assert response.json() == {"error": "API_TRIAL_QUOTA_EXHAUSTED"}


async def test_a_trial_call_that_cannot_be_counted_is_500(device: Device) -> None:
    device.admission.broken = True
    response = await device.call("GET", "/rules")
    assert response.status_code == 500
    assert response.json() == {"error": "store the count of trial calls: disk full"}


async def test_wrong_tokens_slow_only_their_source(device: Device) -> None:
    guesser = device.client_at("192.0.2.66", token="wrong")
    url = f"http://device{PREFIX}/rules"
    started = time.perf_counter()
    for _ in range(16):
        assert (await guesser.get(url)).status_code == 401
    slowed_s = time.perf_counter() - started
    assert slowed_s > 0.2
    started = time.perf_counter()
    assert (await device.call("GET", "/rules")).status_code == 200
    neighbour = device.client_at("192.0.2.66")
    assert (await neighbour.get(url)).status_code == 200
    assert time.perf_counter() - started < slowed_s


async def test_a_flood_of_wrong_tokens_does_not_lock_out_the_right_token(
    device: Device,
) -> None:
    guesser = device.client_at("192.0.2.66", token="wrong")
    url = f"http://device{PREFIX}/rules"
    tries = [asyncio.create_task(guesser.get(url)) for _ in range(150)]
    same_place = asyncio.create_task(device.client_at("192.0.2.66").get(url))
    elsewhere = asyncio.create_task(device.call("GET", "/rules"))
    assert (await elsewhere).status_code == 200
    assert (await same_place).status_code == 200
    answered = [task.result() for task in tries if task.done()]
    assert {answer.status_code for answer in answered} == {401}
    assert any("retry-after" in answer.headers for answer in answered)
    for task in tries:
        task.cancel()
    await asyncio.gather(*tries, return_exceptions=True)


async def test_missing_tokens_are_not_throttled(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed: list[float] = []

    async def sleep(seconds: float) -> None:
        slowed.append(seconds)

    monkeypatch.setattr("egressd.api.gate.asyncio.sleep", sleep)
    for token, is_slowed in ((None, False), ("wrong", True)):
        client = device.client_at("192.0.2.66", token=token)
        for _ in range(20):
            assert (await client.get(f"http://device{PREFIX}/rules")).status_code == 401
        assert bool(slowed) is is_slowed


async def test_a_large_body_without_the_token_is_not_read(device: Device) -> None:
    stranger = device.client_at("192.0.2.99", token=None)
    url = f"http://device{PREFIX}/rules"
    response = await stranger.post(url, content=b"x" * 100_000)
    assert response.status_code == 401
    assert response.headers["connection"] == "close"
    assert "connection" not in (await stranger.post(url, content=b"x")).headers


@pytest.mark.parametrize("path", ["/ops", "/ops/", "/ops/metrics", "/ops/events", "/ops/unknown"])
async def test_operations_accept_the_token_or_a_session(device: Device, path: str) -> None:
    stranger = device.client_at("192.0.2.99", token=None)
    for method in ("GET", "POST", "DELETE"):
        response = await stranger.request(method, f"http://device{path}")
        assert response.status_code == 401
    if path == "/ops/events":
        return
    expected = 200 if path == "/ops/metrics" else 404
    url = f"http://device{path}"
    assert (await device.client.get(url)).status_code == expected
    assert (await stranger.get(url, headers={"cookie": "session=1"})).status_code == expected


@pytest.mark.parametrize("path", ["/ops/health", "/ops/docs", "/ops/openapi.json"])
async def test_three_operations_are_open_and_read_only(device: Device, path: str) -> None:
    stranger = device.client_at("192.0.2.99", token=None)
    assert (await stranger.get(f"http://device{path}")).status_code == 200
    assert (await stranger.post(f"http://device{path}")).status_code == 401


async def test_a_session_replaces_the_token_and_needs_no_license(device: Device) -> None:
    stranger = device.client_at("192.0.2.99", token=None)
    device.admission.refused = "API_ACCESS_REQUIRED"
    url = f"http://device{PREFIX}"
    headers = {"cookie": "session=1"}
    assert (await stranger.get(f"{url}/rules", headers=headers)).status_code == 200
    assert (await stranger.get(f"{url}/unknown", headers=headers)).status_code == 403
    assert (await stranger.post(f"{url}/rules", headers=headers)).status_code == 400
    assert device.admission.spent == 0
    device.sessions.clear()
    assert (await stranger.get(f"{url}/rules", headers=headers)).status_code == 401


async def test_other_paths_are_404_without_a_console(device: Device) -> None:
    for path in ("/", "/svcx", "/opsx", "/index.html"):
        response = await device.client.get(f"http://device{path}")
        assert response.status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        (
            "/nodes/99",
            {"name": "a", "protocol": "ss", "config_json": "{", "group": ""},
            "config_json",
        ),
        (
            "/rules/99",
            {
                "ip": "10.0.0.5/24",
                "mac": "",
                "comment": "",
                "is_enabled": True,
                "target_node": "DIRECT",
                "upload_limit_kbps": 0,
                "download_limit_kbps": 0,
            },
            "ip",
        ),
        (
            "/proxy-services/99",
            {
                "name": "a",
                "outbound_interface": "wan1",
                "port": 22,
                "username": "",
                "password": "",
                "is_enabled": True,
            },
            "port",
        ),
    ],
)
async def test_an_invalid_body_is_reported_before_a_missing_object(
    device: Device, path: str, body: dict[str, Any], field: str
) -> None:
    assert (await device.problem("PUT", path, body)).startswith(field)
