"""``/ops/tokens``: tokens are made, shown once, used, expire and are deleted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.times import utc_text
from egressd.model.tokens import TOKENS_MAX
from egressd.service.tokens import digest_of

if TYPE_CHECKING:
    from collections.abc import Collection

    import httpx

    from tests.support.api_device import Device

URL = "http://device/ops/tokens"
PROBLEM = {"accept": "application/problem+json"}


async def made(device: Device, **fields: Any) -> dict[str, Any]:
    """Make a token, and return the answer."""
    response = await device.client.post(URL, json={"name": "a", "scopes": ["read"], **fields})
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


def bearer(device: Device, token: str) -> httpx.AsyncClient:
    return device.client_at("192.0.2.77", token)


async def test_a_token_is_shown_once_and_kept_as_a_digest(device: Device) -> None:
    later = utc_text(device.now + 3600)
    response = await device.client.post(
        URL, json={"name": "grafana", "scopes": ["read", "metrics", "read"], "expires_at": later}
    )
    answer = response.json()
    assert response.headers["location"] == f"/ops/tokens/{answer['id']}"
    secret = answer.pop("token")
    assert (answer.pop("link"), answer.pop("msg")) == ("", "token grafana created")
    assert answer == {
        "id": answer["id"],
        "name": "grafana",
        "scopes": ["read", "metrics"],
        "created_at": utc_text(device.now),
        "created_by": "token",
        "expires_at": later,
        "is_expired": False,
        "last_used_at": "",
    }
    for path in ("", f"/{answer['id']}"):
        shown = await device.client.get(URL + path)
        assert secret not in shown.text
        assert shown.json() == (answer if path else {"data": [answer]})
    (stored,) = await device.token_store.tokens()
    assert stored.digest == digest_of(secret.encode())
    assert secret not in repr(stored)


async def test_a_token_without_expiry_stays(device: Device) -> None:
    answer = await made(device)
    assert answer["expires_at"] == ""
    device.now += 10 * 366 * 86_400
    assert (await bearer(device, answer["token"]).get("http://device/ops/overview")).is_success


async def test_its_use_is_shown_and_seldom_written(device: Device) -> None:
    answer = await made(device)
    client = bearer(device, answer["token"])
    store = device.token_store
    before = store.writes
    for _ in range(20):
        device.now += 10
        assert (await client.get("http://device/svc/api/v1/rules")).is_success
    shown = (await device.client.get(f"{URL}/{answer['id']}")).json()
    assert shown["last_used_at"] == utc_text(device.now)
    await asyncio.sleep(0)
    assert store.writes == before + 1
    await device.tokens.close()
    assert store.stored[answer["id"]].last_used_at == int(device.now)


@pytest.mark.parametrize("prefix", ["/svc/api/v1/rules", "/ops/overview"])
async def test_an_expired_token_is_invalid(device: Device, prefix: str) -> None:
    answer = await made(device, expires_at=utc_text(device.now + 60))
    client = bearer(device, answer["token"])
    assert (await client.get(f"http://device{prefix}")).is_success
    device.now += 60
    response = await client.get(f"http://device{prefix}")
    assert (response.status_code, response.json()) == (401, {"error": "API Token invalid"})
    (shown,) = (await device.client.get(URL)).json()["data"]
    assert shown["is_expired"] is True


@pytest.mark.parametrize("expires_at", ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z"])
async def test_no_token_expires_in_the_past(device: Device, expires_at: str) -> None:
    """Past fault: one that was to expire when Unix time began never expired."""
    body = {"name": "a", "scopes": ["read"], "expires_at": expires_at}
    response = await device.client.post(URL, json=body, headers=PROBLEM)
    (error,) = response.json()["errors"]
    assert (response.status_code, error["pointer"], error["code"]) == (
        400,
        "/expires_at",
        "time-to-come",
    )


async def test_a_deleted_token_is_invalid_at_once(device: Device) -> None:
    answer = await made(device)
    client = bearer(device, answer["token"])
    assert (await client.get("http://device/svc/api/v1/rules")).is_success
    deleted = await device.client.delete(f"{URL}/{answer['id']}")
    assert deleted.json() == {"msg": "token a deleted", "id": answer["id"]}
    assert (await client.get("http://device/svc/api/v1/rules")).status_code == 401
    assert (await device.client.get(URL)).json() == {"data": []}


async def test_the_device_s_own_token_goes_on_beside_them(device: Device) -> None:
    await made(device, scopes=["admin"])
    assert (await device.call("GET", "/rules")).is_success
    device.token = "another"
    assert (await device.call("GET", "/rules")).status_code == 401


@pytest.mark.parametrize("headers", [{}, PROBLEM])
async def test_an_unknown_token_is_404(device: Device, headers: dict[str, str]) -> None:
    for method in ("GET", "DELETE"):
        response = await device.client.request(method, f"{URL}/1f2e3d4c", headers=headers)
        assert response.status_code == 404
        text = response.json()["detail" if headers else "error"]
        assert text == "there is no token 1f2e3d4c"


async def test_a_name_belongs_to_one_token(device: Device) -> None:
    await made(device)
    response = await device.client.post(URL, json={"name": "a", "scopes": ["events"]})
    assert response.status_code == 409
    assert response.json() == {"error": "name must not be another's: there is a token a already"}


async def test_a_name_holds_nothing_that_is_not_seen(device: Device) -> None:
    """The record of changes names the token, and would show it as another one."""
    for name in ("graf\u202eana", "grafana\u200b"):
        body = {"name": name, "scopes": ["write"]}
        response = await device.client.post(URL, json=body, headers=PROBLEM)
        (error,) = response.json()["errors"]
        assert (response.status_code, error["pointer"]) == (400, "/name")
        assert error["code"] == "name-unseen-character"
    assert (await device.client.get(URL)).json() == {"data": []}


async def test_there_is_a_bound_on_tokens(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egressd.service.tokens.TOKENS_MAX", 2)
    assert TOKENS_MAX > 2
    await made(device, name="a")
    await made(device, name="b")
    response = await device.client.post(URL, json={"name": "c", "scopes": ["read"]})
    assert response.status_code == 409
    assert response.json() == {"error": "there may be at most 2 tokens: delete some first"}


async def test_a_refusal_names_every_fault_and_makes_no_token(device: Device) -> None:
    body = {"name": " a", "scopes": ["read", "root"], "expires_at": "tomorrow", "id": 1}
    response = await device.client.post(URL, json=body, headers=PROBLEM)
    assert response.status_code == 400
    errors = response.json()["errors"]
    assert {error["pointer"]: error["code"] for error in errors} == {
        "/name": "outer-white-space",
        "/scopes/1": "token-scope",
        "/expires_at": "utc-time",
        "/id": "unknown-field",
    }
    for scopes in ([], ["rotate:"], ["rotate:a\nb"], "read", ["READ"], ["x"] * 33):
        response = await device.client.post(URL, json={"name": "a", "scopes": scopes})
        assert response.status_code == 400, scopes
    past = {"name": "a", "scopes": ["read"], "expires_at": utc_text(device.now)}
    response = await device.client.post(URL, json=past)
    assert response.json() == {"error": "expires_at must be in the future"}
    assert (await device.client.get(URL)).json() == {"data": []}


async def test_a_rotation_is_its_token_s_only_scope(device: Device) -> None:
    for others in (["read"], ["rotate:Group_b"]):
        body = {"name": "a", "scopes": ["rotate:Group_a", *others]}
        response = await device.client.post(URL, json=body, headers=PROBLEM)
        (error,) = response.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/scopes", "link-scope-alone")


async def test_a_link_is_for_something_that_exists(device: Device) -> None:
    for target in ("Group_gone", "gone", "DIRECT", "Interface:wan2"):
        body = {"name": "a", "scopes": [f"rotate:{target}"]}
        response = await device.client.post(URL, json=body, headers=PROBLEM)
        (error,) = response.json()["errors"]
        assert (response.status_code, error["code"]) == (400, "rotation-of-nothing"), target
    assert (await device.client.get(URL)).json() == {"data": []}


async def test_a_full_disk_makes_no_token(device: Device) -> None:
    store = device.token_store
    store.is_full = True
    response = await device.client.post(URL, json={"name": "a", "scopes": ["read"]})
    assert (response.status_code, response.json()) == (500, {"error": "store a token: disk full"})
    assert (await device.client.get(URL)).json() == {"data": []}
    store.is_full = False
    await made(device)


async def test_a_token_that_cannot_be_deleted_does_not_count_meanwhile(device: Device) -> None:
    answer = await made(device)
    store = device.token_store
    store.is_full = True
    assert (await device.client.delete(f"{URL}/{answer['id']}")).status_code == 500
    client = bearer(device, answer["token"])
    assert (await client.get("http://device/svc/api/v1/rules")).status_code == 401
    store.is_full = False
    assert (await device.client.delete(f"{URL}/{answer['id']}")).status_code == 200
    assert store.stored == {}


async def test_a_token_that_deletes_itself_does_not_come_back(device: Device) -> None:
    """Past fault: the use that the request itself is was stored after the token was deleted, so
    that the token counted again after a restart.
    """
    answer = await made(device, scopes=["admin"])
    client = bearer(device, answer["token"])
    device.now += 600
    assert (await client.delete(f"{URL}/{answer['id']}")).status_code == 200
    await device.tokens.close()
    assert device.token_store.stored == {}


async def test_a_token_is_deleted_twice_at_the_same_time(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past fault: the second answer was an internal error, 500."""
    answer = await made(device)
    drop = device.token_store.drop_tokens

    async def slow_drop(ids: Collection[str]) -> None:
        await asyncio.sleep(0)
        await drop(ids)

    monkeypatch.setattr(device.token_store, "drop_tokens", slow_drop)
    url = f"{URL}/{answer['id']}"
    answers = await asyncio.gather(device.client.delete(url), device.client.delete(url))
    assert [each.status_code for each in answers] == [200, 200]
    assert (await device.client.delete(url)).status_code == 404


async def test_the_record_of_changes_names_the_token(device: Device) -> None:
    answer = await made(device, name="deploy", scopes=["write"])
    client = bearer(device, answer["token"])
    body = {"ip": "10.0.0.5", "target_node": "DIRECT"}
    assert (await client.post("http://device/svc/api/v1/rules", json=body)).is_success
    await device.client.delete(f"{URL}/{answer['id']}")
    changes = (await device.client.get("http://device/ops/changes")).json()["data"]
    assert [(each["who"], each["text"]) for each in changes] == [
        ("token", "token deploy deleted"),
        ("token deploy", "rule for 10.0.0.5 created"),
        ("token", "token deploy created"),
    ]
    assert answer["token"] not in str(changes)


async def test_wrong_and_expired_tokens_are_throttled_alike(fresh_device: Device) -> None:
    device = fresh_device
    answer = await made(device, expires_at=utc_text(device.now + 1))
    device.now += 1
    client = bearer(device, answer["token"])
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(14):
        assert (await client.get("http://device/ops/overview")).status_code == 401
    assert loop.time() - started > 0.1


# --- Streams. -----------------------------------------------------------------------------


class Listener:
    """A reader of an event stream, on a device of its own: a stream's queue has one event loop."""

    def __init__(self, device: Device) -> None:
        self.device = device

    async def open(self, token: str, query: str = "") -> asyncio.Task[str]:
        """Open a stream, and return the task that reads it to its end."""

        async def read() -> str:
            client = bearer(self.device, token)
            response = await client.get(f"http://device/ops/events{query}")
            assert response.status_code == 200
            return response.text

        task = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        assert not task.done()
        return task


@pytest.fixture
def listener(fresh_device: Device) -> Listener:
    return Listener(fresh_device)


@pytest.mark.parametrize(("scope", "query"), [("events", ""), ("read", "?overview=60")])
async def test_a_stream_ends_at_once_when_its_token_is_deleted(
    listener: Listener, scope: str, query: str
) -> None:
    """The deletion is a change, of which an event is sent at the same moment."""
    device = listener.device
    answer = await made(device, scopes=[scope])
    reading = await listener.open(answer["token"], query)
    await device.client.delete(f"{URL}/{answer['id']}")
    text = await asyncio.wait_for(reading, 1)
    assert text.endswith(
        'event: end\ndata: {"text":"the token was deleted","code":"token-gone","values":{}}\n\n'
    )


async def test_a_stream_ends_at_once_when_its_token_expires(listener: Listener) -> None:
    device = listener.device
    loop = asyncio.get_running_loop()
    begun, at_first = loop.time(), int(device.now)

    async def let_time_pass() -> None:
        while True:
            device.now = at_first + loop.time() - begun
            await asyncio.sleep(0.01)

    passing = asyncio.create_task(let_time_pass())
    answer = await made(device, scopes=["events"], expires_at=utc_text(at_first + 1))
    text = await asyncio.wait_for(await listener.open(answer["token"]), 3)
    passing.cancel()
    assert 0.9 < loop.time() - begun < 2
    assert '"code":"token-expired","values":{"name":"a"}' in text.split("event: end\n")[1]


async def test_a_stream_goes_on_while_its_token_counts(listener: Listener) -> None:
    device = listener.device
    kept, other = await made(device, scopes=["events"]), await made(device, name="b")
    reading = await listener.open(kept["token"])
    await device.client.delete(f"{URL}/{other['id']}")
    await asyncio.sleep(0.05)
    assert not reading.done()
    await device.events.put(None)
    text = await asyncio.wait_for(reading, 1)
    assert "token b deleted" in text
    assert "event: end" not in text
