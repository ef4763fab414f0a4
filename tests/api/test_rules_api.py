from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.api_device import Device


WHOLE = {
    "ip": "10.0.0.5",
    "mac": "3c:22:fb:01:9a:7e",
    "comment": "living room",
    "is_enabled": True,
    "target_node": "DIRECT",
    "upload_limit_kbps": 100,
    "download_limit_kbps": 0,
}
TIME = r"2026-11-20T22:\d\d:\d\dZ"


async def ips(device: Device) -> list[str]:
    return [row["ip"] for row in (await device.answer("GET", "/rules"))["data"]]


async def listed(device: Device) -> Any:
    return (await device.answer("GET", "/rules"))["data"]


async def add(device: Device, *addresses: str, **fields: Any) -> None:
    for ip in addresses:
        body = {"ip": ip, "target_node": "DIRECT"} | fields
        await device.answer("POST", "/rules", body)


async def test_a_created_rule_is_listed_unchanged(device: Device) -> None:
    assert await device.answer("GET", "/rules") == {"data": []}
    assert await device.answer("POST", "/rules", WHOLE) == {"msg": "rule for 10.0.0.5 created"}
    (row,) = (await device.answer("GET", "/rules"))["data"]
    times = [row.pop("created_at"), row.pop("updated_at")]
    assert row == {"id": 1, **WHOLE}
    assert all(re.fullmatch(TIME, time) for time in times)


async def test_omitted_fields_have_defaults(device: Device) -> None:
    await device.answer("POST", "/rules", {"ip": "10.0.0.0/24", "target_node": "REJECT"})
    (row,) = (await device.answer("GET", "/rules"))["data"]
    assert row["ip"] == "10.0.0.0/24"
    assert row["is_enabled"] is True
    assert (row["mac"], row["comment"]) == ("", "")
    assert (row["upload_limit_kbps"], row["download_limit_kbps"]) == (0, 0)


@pytest.mark.parametrize("ip", ["10.0.0.5", "10.0.0.5/32"])
async def test_a_single_address_is_listed_without_its_suffix(device: Device, ip: str) -> None:
    await add(device, ip)
    assert await ips(device) == ["10.0.0.5"]


@pytest.mark.parametrize("field", ["ip", "target_node"])
async def test_a_missing_required_field_is_reported(device: Device, field: str) -> None:
    body = {name: value for name, value in WHOLE.items() if name != field}
    assert f"{field} is missing" in await device.problem("POST", "/rules", body)


@pytest.mark.parametrize("field", list(WHOLE))
async def test_a_replacement_needs_every_field(device: Device, field: str) -> None:
    await add(device, "10.0.0.5")
    body = {name: value for name, value in WHOLE.items() if name != field}
    assert f"{field} is missing" in await device.problem("PUT", "/rules/1", body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ip", "10.0.0.256"),
        ("ip", "10.0.0.5/33"),
        ("ip", "10.0.0.5/24"),
        ("ip", "010.0.0.5"),
        ("ip", "::1"),
        ("ip", "router"),
        ("ip", ""),
        ("ip", 167772165),
        ("ip", ["10.0.0.5"]),
        ("ip", None),
        ("ip", "10.0.0.5\n"),
        ("target_node", ""),
        ("target_node", "nobody"),
        ("target_node", "Group_nobody"),
        ("target_node", "direct"),
        ("target_node", "Interface:"),
        ("target_node", "Interface:a name"),
        ("target_node", "Interface:sixteen_letters_"),
        ("target_node", "interface:wan1"),
        ("target_node", "a\x00b"),
        ("is_enabled", 1),
        ("is_enabled", "true"),
        ("is_enabled", None),
        ("upload_limit_kbps", -1),
        ("upload_limit_kbps", "100"),
        ("upload_limit_kbps", 1.5),
        ("upload_limit_kbps", True),
        ("upload_limit_kbps", 10_000_001),
        ("download_limit_kbps", -1),
        ("download_limit_kbps", 2**70),
        ("mac", "a\x1fb"),
        ("comment", "two\nlines"),
        ("comment", "a" * 1025),
        ("comment", 5),
    ],
)
async def test_an_invalid_value_is_reported(device: Device, field: str, value: Any) -> None:
    await add(device, "10.0.0.9")
    for method, path in (("POST", "/rules"), ("PUT", "/rules/1")):
        assert field in await device.problem(method, path, WHOLE | {field: value})
    assert await ips(device) == ["10.0.0.9"]


async def test_every_problem_of_a_body_is_reported(device: Device) -> None:
    body = {"ip": "10.0.0.1/24", "is_enabled": 1, "upload_limit_kbps": -1, "mac": 5, "colour": "r"}
    text = await device.problem("POST", "/rules", body)
    for field in ("ip", "is_enabled", "upload_limit_kbps", "mac", "target_node", "colour"):
        assert f"{field} " in text


async def test_a_lone_surrogate_is_refused_by_name(device: Device) -> None:
    body = b'{"ip": "10.0.0.5", "target_node": "DIRECT", "comment": "\\udc00", "\\ud800": 1}'
    headers = {"content-type": "application/json"}
    text = await device.problem("POST", "/rules", content=body, headers=headers)
    assert "comment must be a string" in text
    assert "\\ud800 is not a field here" in text


async def test_a_whole_number_may_have_a_zero_fraction(device: Device) -> None:
    body = b'{"ip": "10.0.0.5", "target_node": "DIRECT", "upload_limit_kbps": 2.0}'
    headers = {"content-type": "application/json"}
    await device.answer("POST", "/rules", content=body, headers=headers)
    assert (await device.answer("GET", "/rules"))["data"][0]["upload_limit_kbps"] == 2


@pytest.mark.parametrize("ip", ["10.0.0.5", "10.0.0.5/32"])
async def test_a_second_rule_for_an_address_is_refused(device: Device, ip: str) -> None:
    await add(device, "10.0.0.5")
    assert "ip" in await device.problem("POST", "/rules", WHOLE | {"ip": ip})


async def test_a_rule_is_replaced(device: Device) -> None:
    await add(device, "10.0.0.9")
    answer = await device.answer("PUT", "/rules/1", WHOLE)
    assert answer == {"msg": "rule for 10.0.0.5 saved", "id": 1}
    assert await ips(device) == ["10.0.0.5"]


async def test_a_rule_is_enabled_and_disabled(device: Device) -> None:
    await add(device, "10.0.0.5")
    answer = await device.answer("PATCH", "/rules/1/status", {"is_enabled": False})
    assert answer == {
        "msg": "rule for 10.0.0.5 disabled",
        "id": 1,
        "ip": "10.0.0.5",
        "is_enabled": False,
    }
    assert (await device.answer("GET", "/rules"))["data"][0]["is_enabled"] is False


async def test_a_rule_is_deleted(device: Device) -> None:
    await add(device, "10.0.0.5")
    answer = await device.answer("DELETE", "/rules/1")
    assert answer == {"msg": "rule for 10.0.0.5 deleted", "id": 1, "ip": "10.0.0.5"}
    assert await ips(device) == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/rules/7", WHOLE),
        ("PATCH", "/rules/7/status", {"is_enabled": True}),
        ("DELETE", "/rules/7", None),
    ],
)
async def test_a_missing_rule_is_a_business_failure(
    device: Device, method: str, path: str, body: Any
) -> None:
    assert await device.answer(method, path, body) == {"error": "there is no rule with the id 7"}


@pytest.mark.parametrize("rule_id", ["abc", "0", "-1", "1.0", "1e0", "+1", "9007199254740992"])
async def test_an_invalid_id_is_reported(device: Device, rule_id: str) -> None:
    text = await device.problem("DELETE", f"/rules/{rule_id}")
    assert text == "id must be a whole number from 1"


async def test_several_rules_are_deleted_and_missing_ones_ignored(
    device: Device,
) -> None:
    await add(device, "10.0.0.5", "10.0.0.6", "10.0.0.7")
    body = {"ips": ["10.0.0.5", "10.0.0.6/32", "10.0.0.5/32", "10.0.0.99"]}
    answer = await device.answer("DELETE", "/rules/batch", body)
    assert answer == {"msg": "2 rules deleted", "deleted": 2}
    assert await ips(device) == ["10.0.0.7"]
    assert (await device.answer("DELETE", "/rules/batch", {"ips": []}))["deleted"] == 0


async def test_several_rules_are_enabled_and_disabled(device: Device) -> None:
    await add(device, "10.0.0.5", "10.0.0.6")
    body = {"ips": ["10.0.0.5", "10.0.0.99"], "is_enabled": False}
    answer = await device.answer("PATCH", "/rules/batch/status", body)
    assert answer == {"msg": "1 rule disabled", "updated": 1, "is_enabled": False}


async def test_several_rules_are_changed(device: Device) -> None:
    await add(device, "10.0.0.5", "10.0.0.6", upload_limit_kbps=5)
    body = {
        "ips": ["10.0.0.5", "10.0.0.6"],
        "update_target": True,
        "target_node": "REJECT",
        "update_upload": False,
        "upload_limit_kbps": 77,
        "update_download": True,
        "download_limit_kbps": 20,
    }
    answer = await device.answer("PATCH", "/rules/batch", body)
    assert answer == {
        "msg": "2 rules updated",
        "updated": 2,
        **{name: value for name, value in body.items() if name != "ips"},
    }
    for row in (await device.answer("GET", "/rules"))["data"]:
        assert row["target_node"] == "REJECT"
        assert (row["upload_limit_kbps"], row["download_limit_kbps"]) == (5, 20)


async def test_limits_of_several_rules_are_changed(device: Device) -> None:
    await add(device, "10.0.0.5")
    body = {"ips": ["10.0.0.5"], "update_upload": True, "upload_limit_kbps": 9}
    assert await device.answer("PATCH", "/rules/batch/limits", body) == {
        "msg": "1 rule updated",
        "updated": 1,
        "upload_limit_kbps": 9,
        "download_limit_kbps": 0,
        "update_upload": True,
        "update_download": False,
    }


@pytest.mark.parametrize("path", ["/rules/batch", "/rules/batch/limits"])
async def test_a_batch_without_an_update_is_refused(device: Device, path: str) -> None:
    nothing: dict[str, Any] = {"ips": []}
    for body in (nothing, nothing | {"update_upload": False, "update_download": False}):
        text = await device.problem("PATCH", path, body)
        assert "update flag" in text


async def test_a_batch_needs_a_target_to_update_it(device: Device) -> None:
    nothing: dict[str, Any] = {}
    for target in (nothing, {"target_node": ""}):
        body = {"ips": ["10.0.0.5"], "update_target": True, **target}
        text = await device.problem("PATCH", "/rules/batch", body)
        assert text == "target_node must not be empty when update_target is true"


@pytest.mark.parametrize("path", ["/rules/batch", "/rules/batch/limits"])
async def test_a_negative_limit_is_refused_even_if_unused(device: Device, path: str) -> None:
    body = {"ips": [], "update_upload": True, "download_limit_kbps": -1}
    assert "download_limit_kbps" in await device.problem("PATCH", path, body)


async def test_a_flag_of_the_wrong_type_is_reported_with_the_other_problems(device: Device) -> None:
    body = {"ips": ["x", "10.0.0.5", 7], "update_target": "yes", "update_upload": 1}
    text = await device.problem("PATCH", "/rules/batch", body)
    for place in ("ips[0]", "ips[2]", "update_target", "update_upload"):
        assert place in text
    assert "update_download" not in text  # the other flags may have been meant to be true


async def test_rules_are_imported(device: Device) -> None:
    await add(device, "10.0.0.5")
    text = "10.0.0.5,DIRECT,there already\n# comment\n\n10.0.0.6, REJECT ,new\r\nx,DIRECT\n"
    answer = await device.answer("POST", "/rules/import", {"text": text, "replace": False})
    assert (answer["imported"], answer["skipped"]) == (1, 2)
    assert set(answer) == {"msg", "imported", "skipped"}
    assert "line 5" in answer["msg"]
    assert await ips(device) == ["10.0.0.5", "10.0.0.6"]


async def test_a_row_with_control_characters_does_not_affect_the_others(device: Device) -> None:
    text = "10.0.0.5,DIRECT,a\x01\x00\n10.0.0.6,DIRECT,b\u0085b\n10.0.0.7,DIRECT,c"
    answer = await device.answer("POST", "/rules/import", {"text": text, "replace": False})
    assert (answer["imported"], answer["skipped"]) == (1, 2)
    assert await ips(device) == ["10.0.0.7"]


async def test_a_replacing_import_deletes_all_rules_first(device: Device) -> None:
    await add(device, "10.0.0.5")
    answer = await device.answer(
        "POST", "/rules/import", {"text": "10.0.0.6,DIRECT,", "replace": True}
    )
    assert answer == {"msg": "1 rule imported, 0 skipped", "imported": 1, "skipped": 0}
    assert await ips(device) == ["10.0.0.6"]


async def test_a_failure_of_the_data_plane_is_500_and_changes_nothing(device: Device) -> None:
    device.bench.netd.behaviour = ["refuse"]
    response = await device.call("POST", "/rules", WHOLE)
    assert response.status_code == 500
    assert response.json() == {"error": "load the rules: the kernel would not"}
    assert await ips(device) == []


async def test_a_failure_of_the_store_is_500_and_changes_nothing(device: Device) -> None:
    device.bench.store.failing = ["commit"]
    response = await device.call("POST", "/rules", WHOLE)
    assert response.status_code == 500
    assert "disk is full" in response.json()["error"]
    assert await ips(device) == []


async def test_a_matching_etag_is_answered_with_304_until_a_change(device: Device) -> None:
    await add(device, "10.0.0.5")
    etag = (await device.call("GET", "/rules")).headers["etag"]
    known = {"if-none-match": etag}
    assert (await device.call("GET", "/rules", headers=known)).status_code == 304
    await add(device, "10.0.0.6")
    response = await device.call("GET", "/rules", headers=known)
    assert response.status_code == 200
    assert response.headers["etag"] != etag


async def test_the_differences_since_a_revision_are_returned(device: Device) -> None:
    async def since(revision: int | None = None) -> Any:
        query = "" if revision is None else f"?since={revision}"
        return (await device.client.get(f"http://device/ops/rules{query}")).json()

    await add(device, "10.0.0.5")
    await add(device, "10.0.0.6")
    whole = await since()
    assert whole["is_whole"]
    assert whole["changed"] == await listed(device)

    await add(device, "10.0.0.7")
    await device.answer("DELETE", f"/rules/{whole['changed'][0]['id']}")
    await device.answer(
        "PATCH", f"/rules/{whole['changed'][1]['id']}/status", {"is_enabled": False}
    )
    news = await since(whole["revision"])
    assert not news["is_whole"]
    assert news["changed"] == await listed(device)
    assert news["gone"] == [whole["changed"][0]["id"]]

    assert (await since(news["revision"]))["changed"] == []
    assert (await since(10**9))["is_whole"]
    for wrong in ("-1", "x", "1.5"):
        refused = await device.client.get(f"http://device/ops/rules?since={wrong}")
        assert refused.status_code == 400
        assert "since" in refused.json()["error"]
