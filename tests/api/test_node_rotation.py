"""A node's `change_ip_url`: where it is kept and shown, by what it is asked, and what proves it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from egressd.model.delays import Delay
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import PageFetched, Status
from egressd.model.rotations import KeptRotation
from egressd.model.wording import say
from egressd.service import rotations
from egressd.service.rotations import CHANGE_S, UNASKED_S
from tests.api.scopes import token_of

if TYPE_CHECKING:
    import httpx

    from tests.support.api_device import Device

URL = "http://device"
PAGE = "https://seller.test/change?key=seed-4711"
SOCKS = '{"server": "198.51.100.1", "port": 1080}'
CODES = {"accept": "application/problem+json"}


class Seller:
    """A node's far end: its address, and the page that changes it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.ip = "203.0.113.1"
        self.wanted = "203.0.113.2"
        self.looks_until_changed = 0
        self.reason = ""
        device.bench.netd.page = self._page
        device.bench.netd.delay_of = self._seen

    def _page(self, url: str) -> PageFetched:
        assert url == PAGE
        if self.reason:
            return PageFetched(reason=say("other", text=self.reason))
        if not self.looks_until_changed:
            self.ip = self.wanted
        return PageFetched()

    def _seen(self, _: object) -> Delay:
        if self.device.bench.netd.pages_asked and self.looks_until_changed:
            self.looks_until_changed -= 1
            if not self.looks_until_changed:
                self.ip = self.wanted
        if not self.ip:
            return Delay(delay=-1, error=say("other", text="connection refused"))
        return Delay(delay=1, page=f"ip={self.ip}\n".encode())


@pytest.fixture
async def node(fresh_device: Device) -> int:
    """Return the id of the node tokyo, which has a page."""
    found = await fresh_device.bench.add_node("tokyo")
    answer = await patched(fresh_device, found.id, change_ip_url=PAGE)
    assert answer["change_ip_url"] == PAGE
    return found.id


@pytest.fixture
def seller(fresh_device: Device) -> Seller:
    return Seller(fresh_device)


async def patched(device: Device, node: int, **fields: str) -> dict[str, Any]:
    response = await device.client.patch(f"{URL}/ops/nodes/{node}", json=fields, headers=CODES)
    answer: dict[str, Any] = response.json()
    return answer


async def rotated(device: Device, node: int) -> dict[str, Any]:
    """Have a node rotate, and return what came of it."""
    begun = await device.client.post(f"{URL}/ops/nodes/{node}/rotate", json={})
    assert begun.status_code == 202, begun.text
    location = begun.headers["location"]
    assert location == f"/ops/nodes/{node}/rotations/{begun.json()['id']}"
    return await over(device.client, location)


async def over(client: httpx.AsyncClient, location: str) -> dict[str, Any]:
    """Return a rotation once it has ended."""
    async with asyncio.timeout(10):
        while True:
            found: dict[str, Any] = (await client.get(URL + location)).json()
            if found["state"] != "running":
                return found
            await asyncio.sleep(0)


# --- The field. ---------------------------------------------------------------------------------


async def test_v1_shows_no_page_and_keeps_it(fresh_device: Device, node: int) -> None:
    device = fresh_device
    (row,) = (await device.answer("GET", "/nodes"))["data"]
    assert {*row} == {"id", "name", "protocol", "config_json", "group", "created_at"}
    body = {key: row[key] for key in ("protocol", "config_json", "group")}
    await device.answer("PUT", f"/nodes/{node}", {**body, "name": "kyoto"})
    await device.answer("PATCH", "/nodes/batch", {"ids": [node], "group": "asia"})
    text = json.dumps({"name": "kyoto", "type": "socks5", **json.loads(row["config_json"])})
    imported = {"type": "others", "text": text, "replace": True}
    assert (await device.answer("POST", "/nodes/import", imported))["imported"] == 1
    assert device.bench.nodes.get(node).change_ip_url == PAGE


async def test_a_page_is_a_secret(fresh_device: Device, node: int) -> None:
    device = fresh_device
    reader = device.client_at("192.0.2.10", await token_of(device, "read"))
    assert (await reader.get(f"{URL}/ops/nodes/{node}")).json()["change_ip_url"] == "***"
    assert (await device.client.get(f"{URL}/ops/nodes/{node}")).json()["change_ip_url"] == PAGE
    assert "seed" not in repr(device.bench.nodes.get(node))
    assert (await patched(device, node, change_ip_via="DIRECT"))["change_ip_url"] == PAGE
    changes = (await device.client.get(f"{URL}/ops/changes")).json()["data"]
    for change in changes:
        path = f"{URL}/ops/changes/{change['revision']}"
        shown = (await device.client.get(path)).text if change["revision"] else ""
        assert "seed" not in shown
    assert "seed" not in json.dumps(changes)


@pytest.mark.parametrize(
    ("fields", "pointer", "code"),
    [
        ({"change_ip_url": "ftp://seller.test/"}, "/change_ip_url", "url"),
        ({"change_ip_url": "https://u:p@seller.test/"}, "/change_ip_url", "url"),
        ({"change_ip_url": "http://127.0.0.1:8787/"}, "/change_ip_url", "errand-host-inner"),
        ({"change_ip_url": "http://localhost/"}, "/change_ip_url", "errand-host-inner"),
        ({"change_ip_url": "http://10.0.0.1/"}, "/change_ip_url", "errand-host-inner"),
        ({"change_ip_url": "http://2130706433/"}, "/change_ip_url", "url"),
        ({"change_ip_via": "Group_x"}, "/change_ip_via", "change-ip-via"),
        ({"change_ip_via": "REJECT"}, "/change_ip_via", "change-ip-via"),
        ({"change_ip_via": "tokyo"}, "/change_ip_via", "change-ip-via"),
        ({"change_ip_via": "nowhere"}, "/change_ip_via", "target-missing"),
    ],
)
async def test_pages_and_targets_that_lead_astray_are_refused(
    fresh_device: Device, node: int, fields: dict[str, str], pointer: str, code: str
) -> None:
    (error,) = (await patched(fresh_device, node, **fields))["errors"]
    assert (error["pointer"], error["code"]) == (pointer, code)
    assert fresh_device.bench.nodes.get(node).change_ip_url == PAGE


async def test_a_new_node_may_have_a_page(fresh_device: Device) -> None:
    device = fresh_device
    draft = {"name": "n", "protocol": "socks5", "config_json": SOCKS, "group": "asia"}
    page = {"change_ip_url": PAGE, "change_ip_via": "DIRECT"}
    made = await device.client.post(f"{URL}/ops/nodes", json=draft | page, headers=CODES)
    assert made.status_code == 201, made.text
    assert made.json().items() >= (draft | page).items()
    stored = device.bench.nodes.get(made.json()["id"])
    assert (stored.change_ip_url, stored.change_ip_via) == (PAGE, "DIRECT")
    faults = {"name": "DlRECT", "change_ip_url": "http://10.0.0.1/", "change_ip_via": "Group_x"}
    refused = await device.client.post(f"{URL}/ops/nodes", json=draft | faults, headers=CODES)
    assert {each["pointer"] for each in refused.json()["errors"]} == {f"/{name}" for name in faults}
    itself = {"name": "m", "change_ip_url": PAGE, "change_ip_via": "m"}
    refused = await device.client.post(f"{URL}/ops/nodes", json=draft | itself, headers=CODES)
    assert [each["code"] for each in refused.json()["errors"]] == ["change-ip-via"]
    assert (await device.call("POST", "/nodes", draft | page)).status_code == 400
    assert [each.name for each in device.bench.nodes.list()] == ["n"]
    changes = (await device.client.get(f"{URL}/ops/changes")).json()["data"]
    assert "seed" not in json.dumps(changes)


async def test_other_fields_can_change_when_the_target_is_gone(
    fresh_device: Device, node: int
) -> None:
    other = await fresh_device.bench.add_node("osaka")
    await patched(fresh_device, node, change_ip_via="osaka")
    await fresh_device.bench.nodes.delete(other.id)
    assert (await patched(fresh_device, node, group="asia"))["group"] == "asia"


async def test_a_page_changes_no_client_s_way(fresh_device: Device, node: int) -> None:
    bench = fresh_device.bench
    await fresh_device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "tokyo"})
    before = bench.netd.plan.instances
    await patched(fresh_device, node, change_ip_url="")
    await patched(fresh_device, node, change_ip_url=PAGE)
    assert bench.netd.plan.instances == before
    await bench.agree()


# --- The rotation. ------------------------------------------------------------------------------


async def test_a_node_is_asked_through_itself_until_its_exit_has_changed(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    seller.looks_until_changed = 3
    found = await rotated(fresh_device, node)
    assert (found["state"], found["target"]) == ("done", "tokyo")
    assert (found["exit_before"], found["exit_after"]) == ("203.0.113.1", "203.0.113.2")
    (asked,) = fresh_device.bench.netd.pages_asked
    (path,) = asked.paths
    assert isinstance(path, NodePath)
    assert [hop.node for hop in path.hops] == [node]
    assert asked.headers == {}
    changes = (await fresh_device.client.get(f"{URL}/ops/changes")).json()["data"]
    assert "the node tokyo is asked for another address" in {each["text"] for each in changes}


async def test_a_page_is_asked_by_the_target_that_the_node_names(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    await patched(fresh_device, node, change_ip_via="Interface:wan2")
    assert "wan2" in fresh_device.bench.netd.plan.egresses
    assert (await rotated(fresh_device, node))["state"] == "done"
    (asked,) = fresh_device.bench.netd.pages_asked
    (path,) = asked.paths
    assert isinstance(path, KernelPath)


async def test_an_exit_that_stays_is_a_failure_after_a_time(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    seller.wanted = seller.ip
    began = fresh_device.now
    found = await rotated(fresh_device, node)
    assert (found["state"], found["exit_after"]) == ("failed", "")
    assert "leaves by 203.0.113.1 still" in found["reason"]
    assert CHANGE_S <= fresh_device.now - began < CHANGE_S + 10


async def test_a_bad_answer_is_a_failure_unless_the_exit_changes(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    seller.reason = "the page answered 403"
    began = fresh_device.now
    found = await rotated(fresh_device, node)
    assert found["state"] == "failed"
    assert found["reason"] == "its change_ip_url had no good answer: the page answered 403"
    assert UNASKED_S <= fresh_device.now - began < UNASKED_S + 10
    seller.looks_until_changed = 2
    assert (await rotated(fresh_device, node))["state"] == "done"


async def test_a_node_that_is_down_may_come_back_by_another_address(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    assert (await fresh_device.exits.ask("tokyo")).ip == "203.0.113.1"
    seller.ip = ""
    seller.looks_until_changed = 4
    found = await rotated(fresh_device, node)
    assert (found["state"], found["exit_after"]) == ("done", "203.0.113.2")
    seller.ip = ""
    seller.wanted = ""
    found = await rotated(fresh_device, node)
    assert (found["state"], found["reason"]) == ("failed", "connection refused")


@pytest.mark.parametrize("is_swapped", [False, True])
async def test_a_node_is_renamed_while_it_is_rotated(
    fresh_device: Device,
    node: int,
    seller: Seller,
    monkeypatch: pytest.MonkeyPatch,
    is_swapped: bool,
) -> None:
    """Past fault: the name from before was asked for its address, which is no node any more, or
    another one.
    """
    device = fresh_device

    async def rename(_: float) -> None:
        monkeypatch.undo()
        await patched(device, node, name="kyoto")
        if is_swapped:
            await device.bench.add_node("tokyo")
        seller.ip = seller.wanted

    def seen(probe: Any) -> Delay:
        is_node = probe.name == f"node:{node}"
        return seller._seen(probe) if is_node else Delay(delay=1, page=b"ip=203.0.113.9\n")

    seller.looks_until_changed = 9
    device.bench.netd.delay_of = seen
    monkeypatch.setattr(device.rotations, "_pause", rename)
    found = await rotated(device, node)
    assert (found["state"], found["exit_after"]) == ("done", "203.0.113.2")


async def test_a_rotation_ends_with_its_node(
    fresh_device: Device, node: int, seller: Seller, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = fresh_device
    began = device.now

    async def delete(_: float) -> None:
        monkeypatch.undo()
        await device.bench.nodes.delete(node)

    monkeypatch.setattr(device.rotations, "_pause", delete)
    seller.wanted = seller.ip
    await begun(device, node)
    await until(lambda: not any(kept.is_running for kept in device.rotation_store.kept))
    (kept,) = device.rotation_store.kept
    assert (kept.rotation.state, kept.rotation.reason.code) == ("failed", "no-such-id")
    assert device.now == began


async def test_a_failure_of_netd_ends_the_rotation(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    fresh_device.bench.netd.is_away = True
    found = await rotated(fresh_device, node)
    assert found["state"] == "failed"
    assert "netd" in found["reason"]
    fresh_device.bench.netd.is_away = False
    assert (await rotated(fresh_device, node))["state"] == "done"


# --- Over a restart. ----------------------------------------------------------------------------

RUNNING = Status(state="running", revision=1)


async def begun(device: Device, node: int) -> str:
    """Have a node rotate, and return the path of the rotation."""
    answer = await device.client.post(f"{URL}/ops/nodes/{node}/rotate", json={})
    assert answer.status_code == 202, answer.text
    return str(answer.headers["location"])


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` is true."""
    async with asyncio.timeout(10):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


async def test_a_rotation_whose_page_was_asked_goes_on_after_a_restart(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    """Past fault: the api forgot all rotations when it was restarted."""
    device = fresh_device
    seller.looks_until_changed = 9
    location = await begun(device, node)
    await until(lambda: bool(device.bench.netd.pages_asked))
    await device.restart_rotations()
    assert (await device.client.get(URL + location)).json()["state"] == "running"
    assert await begun(device, node) == location, "it joins the running one"
    device.rotations.look(msgspec.structs.replace(RUNNING, state="restoring"))
    device.rotations.look(RUNNING)
    device.rotations.look(RUNNING)
    found = await over(device.client, location)
    assert (found["state"], found["exit_before"]) == ("done", "203.0.113.1")
    assert found["exit_after"] == "203.0.113.2"
    assert len(device.bench.netd.pages_asked) == 1, "a page is not asked again"
    await device.restart_rotations()
    assert (await device.client.get(URL + location)).json() == found
    assert (await rotated(device, node))["state"] == "failed", "it has this address"


async def test_a_rotation_whose_page_was_not_asked_asks_it_after_a_restart(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    device = fresh_device
    ended = await rotated(device, node)
    (stored,) = device.rotation_store.kept
    running = msgspec.structs.replace(stored.rotation, state="running", exit_after="")
    device.rotation_store.kept = [KeptRotation(owner="", node=node, rotation=running)]
    device.bench.netd.pages_asked.clear()
    seller.ip = "203.0.113.1"
    await device.restart_rotations()
    device.rotations.look(RUNNING)
    location = f"/ops/nodes/{node}/rotations/{ended['id']}"
    assert (await over(device.client, location))["state"] == "done"
    assert len(device.bench.netd.pages_asked) == 1


async def test_a_rotation_that_is_too_old_asks_no_page_after_a_restart(
    fresh_device: Device, node: int
) -> None:
    """Past fault: a box that had been the standby of a pair for days asked the page."""
    device = fresh_device
    ended = await rotated(device, node)
    (stored,) = device.rotation_store.kept
    running = msgspec.structs.replace(
        stored.rotation, state="running", exit_after="", began_at="2020-01-01T00:00:00Z"
    )
    device.rotation_store.kept = [KeptRotation(owner="", node=node, rotation=running)]
    device.bench.netd.pages_asked.clear()
    await device.restart_rotations()
    device.rotations.look(msgspec.structs.replace(RUNNING, pair_role="standby"))
    device.rotations.look(msgspec.structs.replace(RUNNING, state="stopped"))
    location = f"/ops/nodes/{node}/rotations/{ended['id']}"
    assert (await device.client.get(URL + location)).json()["state"] == "running"
    device.rotations.look(RUNNING)
    found = await over(device.client, location)
    assert (found["state"], "too late" in found["reason"]) == ("failed", True)
    assert device.bench.netd.pages_asked == []


async def test_no_page_is_asked_while_that_cannot_be_stored(
    fresh_device: Device, node: int
) -> None:
    """Past fault: after a restart it was asked a second time."""
    device = fresh_device
    device.rotation_store.is_full = True
    found = await rotated(device, node)
    assert (found["state"], "cannot be stored" in found["reason"]) == ("failed", True)
    assert device.bench.netd.pages_asked == []


async def test_a_rotation_fails_after_a_restart_if_nothing_shows_its_end(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    device = fresh_device
    seller.ip = ""
    seller.looks_until_changed = 1_000_000
    location = await begun(device, node)
    await until(lambda: bool(device.bench.netd.pages_asked))
    seller.ip = "203.0.113.2"
    await device.restart_rotations()
    device.rotations.look(RUNNING)
    found = await over(device.client, location)
    assert found["state"] == "failed"
    assert found["reason"] == "it leaves by 203.0.113.2, and its address from before is not known"
    location = await begun(device, node)
    await device.restart_rotations()
    await device.bench.nodes.delete(node)
    device.rotations.look(RUNNING)
    await until(lambda: not device.rotation_store.kept[-1].is_running)
    last = device.rotation_store.kept[-1]
    assert last.rotation.id == location.rpartition("/")[2]
    assert last.rotation.reason == f"there is no node with the id {node}"


async def test_the_last_rotations_of_nodes_are_stored_and_no_others(
    fresh_device: Device, node: int, seller: Seller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotations, "STORED_MAX", 2)
    for last in range(4):
        seller.wanted = f"203.0.113.{10 + last}"
        await rotated(fresh_device, node)
    stored = [each.rotation.exit_after for each in fresh_device.rotation_store.kept]
    assert stored == ["203.0.113.12", "203.0.113.13"]
    assert PAGE not in repr(fresh_device.rotation_store.kept)


async def test_refusals_of_a_node_s_rotation(fresh_device: Device, node: int) -> None:
    device = fresh_device
    other = await device.bench.add_node("osaka")
    for id_, status, code in ((other.id, 400, "node-without-change"), (99, 404, "no-such-id")):
        response = await device.client.post(f"{URL}/ops/nodes/{id_}/rotate", headers=CODES)
        assert (response.status_code, response.json()["errors"][0]["code"]) == (status, code)
    await patched(device, node, change_ip_via="osaka")
    await device.bench.nodes.delete(other.id)
    response = await device.client.post(f"{URL}/ops/nodes/{node}/rotate", headers=CODES)
    assert response.json()["errors"][0]["code"] == "via-gone"
    assert device.bench.netd.pages_asked == []
    missing = await device.client.get(f"{URL}/ops/nodes/{node}/rotations/x", headers=CODES)
    assert (missing.status_code, missing.json()["errors"][0]["code"]) == (404, "no-such-rotation")


# --- By a link. ---------------------------------------------------------------------------------


async def test_a_link_rotates_its_node(fresh_device: Device, node: int, seller: Seller) -> None:
    device = fresh_device
    body = {"name": "phones", "scopes": ["rotate:tokyo"]}
    link = (await device.client.post(f"{URL}/ops/tokens", json=body)).json()["link"]
    phone = device.client_at("192.0.2.77", token=None)
    shown = (await phone.get(URL + link)).json()
    assert shown == {"target": "tokyo", "client": "", "member": "tokyo", "exit_ip": ""}
    refused = await phone.post(f"{URL}{link}?client=10.0.0.5", headers=CODES)
    assert refused.json()["errors"][0]["code"] == "rotation-of-whole-node"
    seller.looks_until_changed = 2
    first, second = [await phone.post(URL + link) for _ in range(2)]
    assert first.headers["location"] == second.headers["location"], "it joins the running one"
    operator = await device.client.post(f"{URL}/ops/nodes/{node}/rotate", headers=CODES)
    assert operator.json()["errors"][0]["code"] == "node-changes-already"
    ended = await over(phone, first.headers["location"])
    assert (ended["state"], ended["exit_after"]) == ("done", "203.0.113.2")
    assert PAGE not in json.dumps(ended)
    page = await phone.get(URL + link, headers={"accept": "text/html"})
    assert "Another exit for the node tokyo" in page.text
    assert "203.0.113.2" in page.text
    done = await phone.get(URL + first.headers["location"], headers={"accept": "text/html"})
    assert f'action="{link}"' in done.text
    assert len(device.bench.netd.pages_asked) == 1


async def test_a_link_stays_its_node_s_under_every_name(
    fresh_device: Device, node: int, seller: Seller
) -> None:
    """Past fault: a link named its node, so that it was of nothing once the node was renamed, and
    of another node that got the name.
    """
    device = fresh_device
    made = await device.client.post(
        f"{URL}/ops/tokens", json={"name": "phones", "scopes": ["rotate:tokyo"]}
    )
    link, token = made.json()["link"], made.headers["location"]
    assert made.json()["scopes"] == ["rotate:tokyo"]
    phone = device.client_at("192.0.2.77", token=None)
    path = f"{URL}/ops/nodes/{node}"
    assert (await device.client.patch(path, json={"name": "osaka"})).is_success
    other = (await device.client.get(path)).json()
    body = {field: other[field] for field in ("protocol", "config_json")}
    new = await device.client.post(f"{URL}/ops/nodes", json=body | {"name": "tokyo"})
    assert (
        await device.client.patch(URL + new.headers["location"], json={"change_ip_url": PAGE})
    ).is_success
    assert (await device.client.get(URL + token)).json()["scopes"] == ["rotate:osaka"]
    assert (await phone.get(URL + link)).json()["target"] == "osaka"
    begun = await phone.post(URL + link)
    assert begun.json()["target"] == "osaka"
    await over(phone, begun.headers["location"])
    # Of a node that is gone it is of nothing, and again that node's when it is back.
    gone = await device.client.delete(path)
    listed = (await device.client.get(f"{URL}/ops/tokens")).json()["data"]
    assert [each["scopes"] for each in listed] == [[f"rotate:#{node}"]]
    refused = await phone.get(URL + link, headers=CODES)
    (error,) = refused.json()["errors"]
    assert (refused.status_code, error["code"]) == (404, "rotation-gone")
    assert error["values"] == {"target": f"#{node}"}
    changes = (await device.client.get(f"{URL}/ops/changes")).json()["data"]
    undone = await device.client.post(f"{URL}/ops/changes/{changes[0]['revision']}/undo", json={})
    assert undone.is_success, (gone.text, undone.text)
    assert (await phone.get(URL + link)).json()["target"] == "osaka"
