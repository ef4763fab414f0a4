from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.delays import Delay
from egressd.model.messages import Probe
from egressd.model.wording import as_sentence

if TYPE_CHECKING:
    from tests.support.api_device import Device


WHOLE = {
    "name": "hk-01",
    "protocol": "socks5",
    "config_json": '{"server": "203.0.113.7", "port": 1080, "x-note": "kept as it came"}',
    "group": "hk",
}
SERVER = json.loads(WHOLE["config_json"])


async def names(device: Device) -> list[str]:
    return [row["name"] for row in (await device.answer("GET", "/nodes"))["data"]]


async def add(device: Device, *wanted: str) -> None:
    for name in wanted:
        await device.answer("POST", "/nodes", WHOLE | {"name": name})


async def test_a_created_node_is_listed_unchanged(device: Device) -> None:
    answer = await device.answer("POST", "/nodes", WHOLE)
    assert answer["id"] == 1
    assert answer["msg"].startswith("node hk-01 created")
    (row,) = (await device.answer("GET", "/nodes"))["data"]
    assert row.pop("created_at").endswith("Z")
    assert row == {"id": 1, **WHOLE}


async def test_the_group_may_be_omitted_for_a_new_node_only(device: Device) -> None:
    body = {name: value for name, value in WHOLE.items() if name != "group"}
    await device.answer("POST", "/nodes", body)
    assert "group is missing" in await device.problem("PUT", "/nodes/1", body)


@pytest.mark.parametrize("field", ["name", "protocol", "config_json"])
async def test_a_missing_field_is_reported(device: Device, field: str) -> None:
    await add(device, "hk-01")
    body = {name: value for name, value in WHOLE.items() if name != field}
    for method, path in (("POST", "/nodes"), ("PUT", "/nodes/1")):
        assert f"{field} is missing" in await device.problem(method, path, body)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", "a" * 65),
        ("name", "DIRECT"),
        ("name", "REJECT"),
        ("name", "Group_x"),
        ("name", "Interface:x"),
        ("name", "a,b"),
        ("name", "a\x00b"),
        ("name", "a\nb"),
        ("name", 7),
        ("protocol", "carrier-pigeon"),
        ("protocol", ""),
        ("protocol", 5),
        ("config_json", ""),
        ("config_json", "{"),
        ("config_json", "[]"),
        ("config_json", "{}"),
        ("config_json", {"server": "203.0.113.7", "port": 1080}),
        ("config_json", '{"server": "203.0.113.7", "port": "1080x"}'),
        ("config_json", '{"server": "203.0.113.7", "port": 0}'),
        ("config_json", "\x00"),
        ("group", "a\x7fb"),
        ("group", "a" * 65),
        ("group", None),
    ],
)
async def test_an_invalid_value_is_reported(device: Device, field: str, value: Any) -> None:
    await add(device, "other")
    for method, path in (("POST", "/nodes"), ("PUT", "/nodes/1")):
        assert field in await device.problem(method, path, WHOLE | {field: value})
    assert await names(device) == ["other"]


async def test_a_node_refused_by_the_engine_is_refused(device: Device) -> None:
    device.bench.netd.engine_refuses = {"203.0.113.7": "no such cipher"}
    assert "no such cipher" in await device.problem("POST", "/nodes", WHOLE)


async def test_names_are_unique(device: Device) -> None:
    await add(device, "hk-01", "hk-02")
    assert "name" in await device.problem("POST", "/nodes", WHOLE)
    assert "name" in await device.problem("PUT", "/nodes/2", WHOLE)


async def test_a_renamed_node_keeps_its_rules(device: Device) -> None:
    await add(device, "hk-01")
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "hk-01"})
    answer = await device.answer("PUT", "/nodes/1", WHOLE | {"name": "tokyo"})
    assert answer == {"msg": "node tokyo saved", "id": 1}
    assert (await device.answer("GET", "/rules"))["data"][0]["target_node"] == "tokyo"


async def test_deleting_a_node_reports_the_rules_it_blocks(device: Device) -> None:
    await add(device, "hk-01")
    await device.answer("POST", "/rules", {"ip": "10.0.0.5", "target_node": "hk-01"})
    answer = await device.answer("DELETE", "/nodes/1")
    assert answer["id"] == 1
    assert answer["msg"].startswith("node hk-01 deleted; 1 rule is blocked")


@pytest.mark.parametrize(("method", "body"), [("PUT", WHOLE), ("DELETE", None)])
async def test_a_missing_node_is_a_business_failure(device: Device, method: str, body: Any) -> None:
    answer = await device.answer(method, "/nodes/7", body)
    assert answer == {"error": "there is no node with the id 7"}


async def test_several_nodes_are_deleted(device: Device) -> None:
    await add(device, "a", "b", "c")
    answer = await device.answer("DELETE", "/nodes/batch", {"ids": [1, 3, 3, 99]})
    assert answer == {"msg": "2 nodes deleted", "deleted": 2}
    assert await names(device) == ["b"]


@pytest.mark.parametrize(
    "ids", [None, 1, "1", [1] * 50_001, ["1"], [True], [1.5], [0], [-1], [None], [2**60], {}]
)
async def test_ids_must_be_a_list_of_ids(device: Device, ids: Any) -> None:
    for method in ("DELETE", "PATCH"):
        assert "ids" in await device.problem(method, "/nodes/batch", {"ids": ids})


async def test_several_nodes_get_an_egress_and_lose_it(device: Device) -> None:
    await add(device, "a", "b", "relay")
    body = {"ids": [1, 2], "group": "new", "interface_name": "wan1", "dialer_proxy": None}
    assert await device.answer("PATCH", "/nodes/batch", body) == {
        "msg": "2 nodes updated",
        "updated": 2,
    }
    rows = (await device.answer("GET", "/nodes"))["data"]
    assert [row["group"] for row in rows] == ["new", "new", "hk"]
    assert "wan1" in rows[0]["config_json"]
    body = {"ids": [1], "interface_name": "", "dialer_proxy": "relay"}
    await device.answer("PATCH", "/nodes/batch", body)
    config = (await device.answer("GET", "/nodes"))["data"][0]["config_json"]
    assert "relay" in config
    assert "wan1" not in config
    await device.answer(
        "PATCH", "/nodes/batch", {"ids": [1, 2], "interface_name": "", "dialer_proxy": ""}
    )
    for row in (await device.answer("GET", "/nodes"))["data"]:
        assert json.loads(row["config_json"]) == SERVER


async def test_an_egress_is_an_interface_or_a_relay_but_not_both(device: Device) -> None:
    await add(device, "a", "relay")
    body = {"ids": [1], "interface_name": "wan1", "dialer_proxy": "relay"}
    text = await device.problem("PATCH", "/nodes/batch", body)
    assert "dialer_proxy" in text
    assert "interface_name" in text


@pytest.mark.parametrize(
    "servers", [None, "", " , \n", "absent"], ids=["null", "empty", "blank", "absent"]
)
async def test_custom_dns_needs_servers(device: Device, servers: str | None) -> None:
    body: dict[str, Any] = {"ids": [], "node_dns_profile": "custom", "node_dns_servers": servers}
    if servers == "absent":
        del body["node_dns_servers"]
    assert "node_dns_servers" in await device.problem("PATCH", "/nodes/batch", body)


async def test_a_batch_without_nodes_still_checks_the_relay(device: Device) -> None:
    body = {"ids": [99], "dialer_proxy": "nobody"}
    assert "there is no node 'nobody'" in await device.problem("PATCH", "/nodes/batch", body)


@pytest.mark.parametrize(
    "fields",
    [
        {"node_dns_profile": "other"},
        {"node_dns_servers": "not an address", "node_dns_profile": "custom"},
        {"interface_name": "a name"},
        {"interface_name": "sixteen_letters_"},
        {"dialer_proxy": "nobody"},
        {"group": 5},
    ],
)
async def test_a_batch_with_an_invalid_value_is_refused(device: Device, fields: Any) -> None:
    await add(device, "a")
    (field, *_) = fields
    assert field in await device.problem("PATCH", "/nodes/batch", {"ids": [1], **fields})


@pytest.mark.parametrize(
    ("kind", "row", "name"),
    [
        ("socks5", "203.0.113.7,1080,u,p,a", "a"),
        ("ss", "203.0.113.7,8388,aes-256-gcm,p,a", "a"),
        (
            "vlessvmess",
            "vless|0b1f4d5e-7f0f-4b0e-9c3b-0d7a5c9d2f11|203.0.113.7|443|tcp|tls|example.com"
            "||||||chrome|a",
            "a",
        ),
        ("others", "name: a, type: trojan, server: 203.0.113.7, port: 443, password: p", "a"),
    ],
)
async def test_nodes_of_every_type_are_imported(
    device: Device, kind: str, row: str, name: str
) -> None:
    body = {"type": kind, "text": f"{row}\nnonsense", "group": "new"}
    answer = await device.answer("POST", "/nodes/import", body)
    assert (answer["imported"], answer["skipped"], answer["errors"]) == (1, 1, 1), answer
    assert answer["error_rows"][0].startswith("line 2: ")
    assert answer["msg"].startswith("1 node imported, 1 skipped")
    (row_,) = (await device.answer("GET", "/nodes"))["data"]
    assert (row_["name"], row_["group"]) == (name, "new")


async def test_imported_nodes_can_be_numbered_and_replace_all(device: Device) -> None:
    await add(device, "old")
    body = {
        "type": "socks5",
        "text": "203.0.113.7,1080,u,p,x\n203.0.113.8,1080,u,p,x",
        "replace": True,
        "group": "",
        "autoNodeName": True,
        "autoNodeNameStartIndex": 40,
    }
    answer = await device.answer("POST", "/nodes/import", body)
    assert answer == {
        "msg": "2 nodes imported, 0 skipped",
        "imported": 2,
        "skipped": 0,
        "errors": 0,
        "error_rows": [],
    }
    assert await names(device) == ["socks5_40", "socks5_41"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "wireguard"),
        ("type", None),
        ("text", None),
        ("replace", "true"),
        ("autoNodeName", 1),
        ("autoNodeNameStartIndex", -1),
        ("autoNodeNameStartIndex", "1"),
        ("auto_node_name", True),
    ],
)
async def test_an_invalid_import_is_refused(device: Device, field: str, value: Any) -> None:
    body = {"type": "socks5", "text": "203.0.113.7,1080,u,p", field: value}
    assert field in await device.problem("POST", "/nodes/import", body)


async def test_a_delay_is_measured(device: Device) -> None:
    await add(device, "a")
    assert await device.answer("GET", "/nodes/delay?name=a") == {"delay": 42}
    more = "name=a&url=http://192.0.2.1/x&timeout=100"
    assert await device.answer("GET", f"/nodes/delay?{more}") == {"delay": 42}


async def test_a_failed_delay_has_a_reason(device: Device) -> None:
    await add(device, "a")
    device.bench.netd.delay_of = lambda _: Delay(delay=-1, error=as_sentence("timed out"))
    answer = await device.answer("GET", "/nodes/delay?name=a")
    assert answer == {"delay": -1, "error": "timed out"}
    answer = await device.answer("GET", "/nodes/delay?name=b")
    assert answer == {"delay": -1, "error": "there is no node b"}


async def test_all_delays_are_measured(device: Device) -> None:
    await add(device, "a", "b")

    def delay(probe: Probe) -> Delay:
        return (
            Delay(delay=7) if probe.name == "a" else Delay(delay=-1, error=as_sentence("timed out"))
        )

    device.bench.netd.delay_of = delay
    assert await device.answer("GET", "/nodes/delay/all") == {"data": {"a": 7, "b": -1}}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "name is missing"),
        ("name=", "name"),
        ("name=a&timeout=0", "timeout"),
        ("name=a&timeout=60001", "timeout"),
        ("name=a&timeout=1_000", "timeout"),
        ("name=a&timeout=%201", "timeout"),
        ("name=a&timeout=1.0", "timeout"),
        ("name=a&timeout=", "timeout"),
        ("name=a&url=ftp://example.com", "url"),
        ("name=a&url=", "url"),
        ("name=a&url=http://", "url"),
        ("name=a&url=http://u:p@192.0.2.1/", "url"),
        ("name=a&url=http://a..test/", "url"),
        (f"name=a&url=http://{'a' * 64}.test/", "url"),
        ("name=a&other=1", "other is not a field here"),
        ("name=a&name=b", "name must not be given twice"),
        ("name=a&timeout=1&timeout=1", "timeout must not be given twice"),
    ],
)
async def test_an_invalid_query_is_refused(device: Device, query: str, field: str) -> None:
    await add(device, "a")
    assert field in await device.problem("GET", f"/nodes/delay?{query}")


LIST = {"type": "socks5", "text": "192.168.8.40,1080,u,p,nas\n203.0.113.7,1080,u,p,far"}


async def test_an_import_takes_internet_servers_only(device: Device) -> None:
    answer = await device.answer("POST", "/nodes/import", LIST)
    assert (answer["imported"], answer["skipped"], answer["errors"]) == (1, 1, 1)
    assert answer["error_rows"] == [
        "line 1: server must be on the internet unless the import takes private ones:"
        " it is a private address"
    ]
    assert await names(device) == ["far"]
    more = LIST | {"privateServers": True}
    assert "privateServers" in await device.problem("POST", "/nodes/import", more)


async def test_an_import_takes_private_servers_on_request(device: Device) -> None:
    import_ = "http://device/ops/import/nodes"
    for more, errors in ({}, 1), ({"privateServers": True}, 0):
        preview = await device.client.post("http://device/ops/preview/nodes", json=LIST | more)
        assert preview.json()["bad"] == errors
        answer = (await device.client.post(import_, json=LIST | more)).json()
        assert answer["errors"] == errors
    assert await names(device) == ["far", "nas"]


async def test_both_imports_are_in_the_openapi_document(device: Device) -> None:
    document = (await device.client.get("http://device/ops/openapi.json")).json()
    fields = document["components"]["schemas"]["NodeListImport"]["properties"]
    assert fields["privateServers"]["default"] is False
    posted = document["paths"]["/ops/import/nodes"]["post"]["requestBody"]["content"]
    assert posted["application/json"]["schema"]["$ref"].endswith("/NodeListImport")
    posted = document["paths"]["/svc/api/v1/nodes/import"]["post"]["requestBody"]["content"]
    assert posted["application/json"]["schema"]["$ref"].endswith("/NodeImport")


async def test_a_name_with_thousands_of_combining_marks_is_cut_quickly(device: Device) -> None:
    text = "203.0.113.7,1080,u,p,a" + "\u0301\u0316" * 30_000
    began = time.process_time()
    answer = await device.answer("POST", "/nodes/import", LIST | {"text": "\n".join([text] * 5)})
    assert time.process_time() - began < 2.0
    assert (answer["imported"], answer["errors"]) == (5, 0)
    assert all(len(node["name"]) <= 64 for node in (await device.answer("GET", "/nodes"))["data"])


async def test_a_name_that_looks_like_another_is_400(device: Device) -> None:
    await add(device, "hk-01")
    for name, problem in (
        ("hk-0l", "name must not look like another's: there is a node hk-01 already"),
        ("DIR\u0415CT", "name must not look like DIRECT or REJECT"),
        ("hk\u200b", "name must not contain U+200B, which cannot be seen"),
    ):
        assert problem in await device.problem("POST", "/nodes", WHOLE | {"name": name})
    assert "config_json.server must not be this device itself" in await device.problem(
        "POST", "/nodes", WHOLE | {"config_json": '{"server": "127.0.0.1", "port": 1}'}
    )
