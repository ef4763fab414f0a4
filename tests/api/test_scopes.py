"""Scoped tokens at the gate: each endpoint, called with each scope."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from egressd.api.app import ROUTERS
from egressd.api.gate import NOT_ALLOWED
from egressd.model.tokens import COVERED_BY, Need
from tests.api.scopes import document_of, endpoints, filled, token_of

if TYPE_CHECKING:
    from tests.support.api_device import Device

SCOPES = (*get_args(Need), "rotate:Group_hk")

# The scopes that cover an endpoint, written down apart from the code's table.
COVERING: dict[str, set[str]] = {
    "read": {"read", "write", "admin"},
    "write": {"write", "admin"},
    "admin": {"admin"},
    "metrics": {"metrics", "read", "write", "admin"},
    "events": {"events", "read", "write", "admin"},
}
ADMIN = {
    ("post", "/ops/restore"),
    ("post", "/ops/stop"),
    ("post", "/ops/start"),
    ("post", "/ops/open"),
    ("post", "/ops/changes/{revision}/undo"),
    ("post", "/ops/trial"),
    ("post", "/ops/trial/confirm"),
    ("post", "/ops/trial/revert"),
    ("get", "/ops/tokens"),
    ("post", "/ops/tokens"),
    ("get", "/ops/tokens/{id}"),
    ("delete", "/ops/tokens/{id}"),
}
"""Endpoints that concern all clients, or that give rights."""
OWN = {
    "/ops/metrics": "metrics",
    "/ops/events": "events",
    "/ops/events/latest": "events",
}
"""Endpoints with a scope of their own."""
OPEN = {"/ops/health", "/ops/docs", "/ops/openapi.json"}
SECRET = {("get", "/ops/backup"), ("get", "/ops/nodes/links")}
"""Endpoints of no use without passwords: a scope that hides these does not cover them."""


async def answered(device: Device, method: str, path: str, token: str) -> tuple[int, bytes]:
    """Return the status of a call, and the body unless it is a stream."""
    client = device.client_at("192.0.2.10", token)
    if path == "/ops/events":
        await device.events.put(None)  # which ends the stream
    response = await client.request(method.upper(), f"http://device{filled(path)}")
    return response.status_code, response.content


def test_each_endpoint_declares_its_scope() -> None:
    undeclared = [
        endpoint.path
        for router in ROUTERS
        for endpoint in router.endpoints
        if not endpoint.is_declared
    ]
    assert undeclared == []


async def test_the_document_names_the_scope_of_each_endpoint(device: Device) -> None:
    for method, path, security in endpoints(await document_of(device)):
        if security == []:
            assert path in OPEN or path.startswith("/ops/rotate/{key}")
            continue
        ((need,),) = (scheme["token"] for scheme in security)
        if path.startswith("/svc/api/v1"):
            assert need == ("read" if method == "get" else "write"), (method, path)
        elif (method, path) in ADMIN:
            assert need == "admin", (method, path)
        elif (method, path) in SECRET or method != "get":
            assert need == "write", (method, path)
        else:
            assert need == OWN.get(path, "read"), (method, path)


@pytest.mark.parametrize("scope", SCOPES)
async def test_a_scope_opens_what_it_covers_and_nothing_else(device: Device, scope: str) -> None:
    token = await token_of(device, scope)
    opened = 0
    for method, path, security in endpoints(await document_of(device)):
        status, body = await answered(device, method, path, token)
        is_refused = status == 403 and NOT_ALLOWED.encode() in body
        needs = security[0]["token"][0] if security else None
        is_covered = needs is None or scope in COVERING[needs]
        assert is_refused is not is_covered, (method, path, status)
        assert status != 401, (method, path)
        opened += is_covered
    assert opened == {"metrics": 7, "events": 8, "rotate:Group_hk": 6}.get(scope, opened)
    assert opened >= 6


async def test_scopes_cover_the_needs_of_the_table() -> None:
    assert {need: {*scopes} for need, scopes in COVERED_BY.items()} == COVERING


async def test_several_scopes_cover_what_each_of_them_does(device: Device) -> None:
    token = await token_of(device, "metrics", "events")
    for path, status in (("/ops/metrics", 200), ("/ops/events", 200), ("/ops/overview", 403)):
        assert (await answered(device, "get", path, token))[0] == status


async def test_a_stream_with_overviews_takes_the_scope_read(fresh_device: Device) -> None:
    device = fresh_device
    for scope, status in (("events", 403), ("read", 200)):
        client = device.client_at("192.0.2.10", await token_of(device, scope))
        if status == 200:
            await device.events.put(None)  # which ends the stream
        response = await client.get("http://device/ops/events?overview=1")
        assert response.status_code == status, scope


async def test_the_license_is_checked_before_the_scope(device: Device) -> None:
    client = device.client_at("192.0.2.10", await token_of(device, "read"))
    url = "http://device/svc/api/v1/rules"
    device.admission.refused = "API_ACCESS_REQUIRED"
    assert (await client.post(url, json={})).json() == {"error": "API_ACCESS_REQUIRED"}
    device.admission.refused = None
    spent = device.admission.spent
    assert (await client.post(url, json={})).json() == {"error": NOT_ALLOWED}
    assert device.admission.spent == spent
    assert (await client.get(url)).status_code == 200
    assert device.admission.spent == spent + 1
