"""``/ops/rotate/{key}``: what a link rotates, whom it is for, and who learns of its key."""

from __future__ import annotations

import asyncio
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from egressd.model.delays import Delay
from egressd.model.times import utc_text
from egressd.planner.compile import group_key
from egressd.service.rotations import OF_CLIENT

if TYPE_CHECKING:
    import httpx

    from tests.support.api_device import Device

URL = "http://device"
PHONE, OTHER, STRANGER = "10.0.0.11", "10.0.0.12", "192.0.2.77"
TARGET = "Group_hk"
CODES = {"accept": "application/problem+json"}
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
async def link(fresh_device: Device) -> str:
    """Return the path of a link for a group of two nodes with two clients. The first node is the
    member that clients have; a page says that its exit is 203.0.113.1, the other's 203.0.113.2.
    """
    bench = fresh_device.bench
    for name in ("hk-01", "hk-02"):
        await bench.add_node(name, group="hk")
    await fresh_device.client.patch(f"{URL}/ops/groups/hk", json={"strategy": "sticky"})
    for client in (PHONE, OTHER):
        await fresh_device.call("POST", "/rules", {"ip": client, "target_node": TARGET})
    key = group_key(bench.state, TARGET)
    bench.netd.members = {key: f"node:{bench.state.node_by_name['hk-01']}"}
    bench.netd.moved_to = f"node:{bench.state.node_by_name['hk-02']}"
    bench.netd.delay_of = lambda probe: Delay(
        delay=1, page=f"ip=203.0.113.{probe.name.removeprefix('node:')}\n".encode()
    )
    return await made(fresh_device)


async def made(device: Device, **fields: Any) -> str:
    body = {"name": "phones", "scopes": [f"rotate:{TARGET}"], **fields}
    answer = (await device.client.post(f"{URL}/ops/tokens", json=body)).json()
    assert answer["link"] == f"/ops/rotate/{answer['token']}"
    path: str = answer["link"]
    return path


def at(device: Device, address: str) -> httpx.AsyncClient:
    return device.client_at(address, token=None)


async def ended(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """Return a rotation once it has ended."""
    async with asyncio.timeout(10):
        while True:
            rotation: dict[str, Any] = (await client.get(URL + path)).json()
            if rotation["state"] != "running":
                return rotation
            await asyncio.sleep(0)


async def test_a_phone_rotates_itself_and_learns_its_new_exit(
    fresh_device: Device, link: str
) -> None:
    device = fresh_device
    await device.exits.ask("hk-01")
    phone = at(device, PHONE)
    assert (await phone.get(URL + link)).json() == {
        "target": TARGET,
        "client": PHONE,
        "member": "hk-01",
        "exit_ip": "203.0.113.1",
    }
    begun = await phone.post(URL + link)
    answer = begun.json()
    assert (begun.status_code, answer["state"], answer["exit_after"]) == (202, "running", "")
    assert answer["msg"] == "1 client has another member of group hk"
    assert begun.headers["location"] == f"{link}/{answer['id']}"
    rotation = await ended(phone, begun.headers["location"])
    assert (rotation["state"], rotation["client"], rotation["member"]) == ("done", PHONE, "hk-02")
    assert (rotation["exit_before"], rotation["exit_after"]) == ("203.0.113.1", "203.0.113.2")
    assert device.bench.netd.rotations == [(group_key(device.bench.state, TARGET), PHONE)]
    assert [each.ip for each in device.exits.now() if each.name == "hk-02"] == ["203.0.113.2"]


async def test_a_get_rotates_nothing(fresh_device: Device, link: str) -> None:
    for headers in ({}, BROWSER):
        assert (await at(fresh_device, PHONE).get(URL + link, headers=headers)).is_success
    assert fresh_device.bench.netd.rotations == []


async def test_a_stranger_names_the_client_or_all(fresh_device: Device, link: str) -> None:
    device, stranger = fresh_device, at(fresh_device, STRANGER)
    refused = await stranger.post(URL + link, headers=CODES)
    (error,) = refused.json()["errors"]
    assert (refused.status_code, error["pointer"]) == (400, "/client")
    assert (error["code"], error["values"]["address"]) == ("rotation-for-whom", STRANGER)
    assert device.bench.netd.rotations == []
    one = await stranger.post(f"{URL}{link}?client={OTHER}")
    everyone = await stranger.post(f"{URL}{link}?client=all")
    assert (one.status_code, everyone.status_code) == (202, 202)
    assert [client for _, client in device.bench.netd.rotations] == [OTHER, None]
    assert (everyone.json()["state"], everyone.json()["clients"]) == ("done", 2)
    for client in ("everyone", "10.0.0", "10.0.0.256", "10.0.0.11/32"):
        answer = await stranger.post(f"{URL}{link}?client={client}")
        assert answer.status_code == 400, client
        assert answer.json() == {"error": "client must be an IPv4 address, or all"}
    no_client = await stranger.post(f"{URL}{link}?client=10.0.0.99", headers=CODES)
    assert no_client.json()["errors"][0]["code"] == "rotation-of-no-client"


async def test_a_client_stays_rotated_if_its_new_exit_is_unknown(
    fresh_device: Device, link: str
) -> None:
    fresh_device.bench.netd.delay_of = lambda _: Delay(delay=1, page=b"no address")
    phone = at(fresh_device, PHONE)
    rotation = await ended(phone, (await phone.post(URL + link)).headers["location"])
    assert (rotation["state"], rotation["exit_after"]) == ("done", "")
    assert rotation["reason"]


async def test_a_rotation_is_refused_as_that_of_a_group_is(fresh_device: Device, link: str) -> None:
    device, phone = fresh_device, at(fresh_device, PHONE)
    await device.client.patch(f"{URL}/ops/groups/hk", json={"strategy": "urltest"})
    answer = await phone.post(URL + link, headers=CODES)
    assert answer.json()["errors"][0]["code"] == "rotation-needs-sticky"
    device.bench.netd.is_away = True
    assert (await phone.post(URL + link)).status_code == 500


@pytest.mark.parametrize("headers", [{}, CODES, BROWSER])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_keys_that_do_not_count_are_unknown_alike(
    fresh_device: Device, link: str, method: str, headers: dict[str, str]
) -> None:
    device, phone = fresh_device, at(fresh_device, PHONE)
    soon = await made(device, name="soon", expires_at=utc_text(device.now + 1))
    device.now += 1
    gone = await made(device, name="gone")
    rows = (await device.client.get(f"{URL}/ops/tokens")).json()["data"]
    for row in rows:
        if row["name"] == "gone":
            await device.client.delete(f"{URL}/ops/tokens/{row['id']}")
    body = {"name": "reader", "scopes": ["admin"]}
    reader = (await device.client.post(f"{URL}/ops/tokens", json=body)).json()["token"]
    keys = (
        f"/ops/rotate/{reader}",
        f"{link}x",
        link[:-1],
        f"/ops/rotate/{device.token}",
        soon,
        gone,
    )
    answers = [await phone.request(method, URL + key, headers=headers) for key in keys]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert device.bench.netd.rotations == []
    assert (await phone.request(method, URL + link, headers=headers)).is_success


async def test_a_link_opens_nothing_else(fresh_device: Device, link: str) -> None:
    bearer = fresh_device.client_at(PHONE, link.rpartition("/")[2])
    for path in ("/ops/overview", "/svc/api/v1/rules", "/ops/tokens", "/ops/groups"):
        assert (await bearer.get(URL + path)).status_code == 403, path
    response = await bearer.post(f"{URL}/ops/groups/hk/rotate", json={})
    assert response.status_code == 403
    assert fresh_device.bench.netd.rotations == []


async def test_nothing_but_its_key_opens_a_link(fresh_device: Device, link: str) -> None:
    client = fresh_device.client_at(PHONE)
    assert (await client.post(f"{URL}{link}x")).status_code == 404
    session = await at(fresh_device, PHONE).post(f"{URL}{link}x", headers={"cookie": "session=1"})
    assert session.status_code == 404


async def test_a_rotation_is_shown_to_its_own_link(fresh_device: Device, link: str) -> None:
    phone = at(fresh_device, PHONE)
    path = (await phone.post(URL + link)).headers["location"]
    other = await made(fresh_device, name="other")
    for wrong in (f"{other}/{path.rpartition('/')[2]}", f"{link}/0123456789abcdef"):
        response = await phone.get(URL + wrong)
        assert response.json() == {"error": "there is no such rotation"}
        assert response.status_code == 404


async def test_a_link_of_a_group_that_is_gone_is_404(fresh_device: Device, link: str) -> None:
    device = fresh_device
    ids = [*device.bench.state.nodes]
    await device.call("DELETE", "/nodes/batch", {"ids": ids})
    await device.client.delete(f"{URL}/ops/groups/hk")
    response = await at(device, PHONE).post(URL + link, headers=CODES)
    assert response.status_code == 404
    assert response.json()["errors"][0]["code"] == "rotation-gone"


# --- Bounds. ------------------------------------------------------------------------------------


async def test_wrong_keys_are_throttled_and_right_ones_are_not(
    fresh_device: Device, link: str
) -> None:
    phone = at(fresh_device, PHONE)
    loop = asyncio.get_running_loop()
    started = loop.time()
    for _ in range(14):
        assert (await phone.get(f"{URL}{link}x")).status_code == 404
    assert loop.time() - started > 0.1
    crowd = [asyncio.create_task(phone.get(f"{URL}/ops/rotate/{n}")) for n in range(200)]
    answers = await asyncio.gather(*crowd)
    refused = [each for each in answers if each.status_code == 429]
    assert refused
    assert all(int(each.headers["retry-after"]) > 0 for each in refused)
    assert (await phone.get(URL + link)).is_success


async def test_one_client_is_rotated_a_few_times_at_once(fresh_device: Device, link: str) -> None:
    device, phone = fresh_device, at(fresh_device, PHONE)
    for _ in range(OF_CLIENT.free):
        assert (await phone.post(URL + link)).status_code == 202
    refused = await phone.post(URL + link, headers=CODES)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
    assert refused.json()["errors"][0]["code"] == "rotation-too-soon"
    assert (await at(device, OTHER).post(URL + link)).status_code == 202
    device.now += OF_CLIENT.interval_s
    assert (await phone.post(URL + link)).status_code == 202


# --- The page. ----------------------------------------------------------------------------------


async def test_a_browser_gets_a_page_with_a_button(fresh_device: Device, link: str) -> None:
    phone = at(fresh_device, PHONE)
    page = await phone.get(URL + link, headers=BROWSER)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "no-referrer"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy + page.text
    assert f'<form method="post" action="{link}">' in page.text
    begun = await phone.post(URL + link, headers=BROWSER)
    assert begun.status_code == 202
    state = begun.headers["location"]
    assert begun.headers["refresh"] == f"2;url={state}"
    await ended(phone, state)
    done = await phone.get(URL + state, headers=BROWSER)
    assert "203.0.113.2" in done.text
    assert "refresh" not in done.headers


async def test_the_page_of_a_stranger_rotates_all_by_its_button(
    fresh_device: Device, link: str
) -> None:
    stranger = at(fresh_device, STRANGER)
    page = await stranger.get(URL + link, headers=BROWSER)
    assert f'action="{link}?client=all"' in page.text
    assert "all clients" in page.text


async def test_the_page_speaks_english_and_chinese(fresh_device: Device, link: str) -> None:
    phone = at(fresh_device, PHONE)
    for accepted, language in (
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB,en;q=0.9,zh;q=0.8", "en"),
        ("fr, zh;q=0.1", "zh"),
        ("zh;q=0, en", "en"),
        ("q=;;,", "en"),
    ):
        headers = BROWSER | {"accept-language": accepted}
        page = await phone.get(URL + link, headers=headers)
        assert f'<html lang="{language}">' in page.text, accepted
        assert ("更换" in page.text) is (language == "zh")
        unknown = await phone.get(f"{URL}{link}x", headers=headers)
        assert unknown.status_code == 404
        assert ("该链接" in unknown.text) is (language == "zh")


async def test_names_are_text_on_the_page(fresh_device: Device, link: str) -> None:
    name = "<b>hk</b> & co"
    await fresh_device.bench.add_node("x", group=name)
    other = await made(fresh_device, name="other", scopes=[f"rotate:Group_{name}"])
    page = await at(fresh_device, STRANGER).get(URL + other, headers=BROWSER)
    assert "<b>" not in page.text
    assert name in unescape(page.text)


async def test_a_browser_sees_a_refusal_on_a_page(fresh_device: Device, link: str) -> None:
    phone = at(fresh_device, PHONE)
    for _ in range(OF_CLIENT.free):
        await phone.post(URL + link)
    refused = await phone.post(URL + link, headers=BROWSER)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
    assert "try again in 10 seconds" in refused.text


# --- The key is in no log and in no record. -----------------------------------------------------


async def test_the_key_is_in_no_log_record_or_event(fresh_device: Device, link: str) -> None:
    device, phone, key = fresh_device, at(fresh_device, PHONE), link.rpartition("/")[2]
    with structlog.testing.capture_logs() as logs:
        location = (await phone.post(URL + link)).headers["location"]
        await ended(phone, location)
        for path in (
            link,
            f"{link}x",
            f"{link}/",
            f"{link}/a/b",
            f"/ops//rotate/{key}",
            f"/OPS/rotate/{key}",
            f"/x/ops/rotate/{key}",
            f"/ops/rotate/%65{key[1:]}%2F",
            f"/ops/{key}",
            f"/{key}",
            f"/svc/api/v1/{key}",
        ):
            for method in ("GET", "POST", "DELETE"):
                await phone.request(method, URL + path)
    assert len(logs) > 30
    assert key[8:] not in repr(logs)
    await device.journal.flush()
    changes = (await device.client.get(f"{URL}/ops/changes")).text
    assert "POST /ops/rotate/***" in changes
    assert "token phones" in changes
    assert key[8:] not in changes
    events = []
    while not device.events.empty():
        events.append(device.events.get_nowait())
    assert any("another member" in event.text for event in events if event is not None)
    assert key[8:] not in repr(events)
    metrics = (await device.client.get(f"{URL}/ops/metrics")).text
    assert "/ops/rotate/{key}" in metrics
    assert key[8:] not in metrics


async def test_an_error_in_a_handler_is_logged_without_the_key(
    fresh_device: Device, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(fresh_device.rotations, "begin", broken)
    with structlog.testing.capture_logs() as logs:
        response = await at(fresh_device, PHONE).post(URL + link)
    assert response.status_code == 500
    assert any("RuntimeError" in str(entry) for entry in logs)
    assert link.rpartition("/")[2][8:] not in repr(logs)
