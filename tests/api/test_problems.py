"""Problem documents (RFC 9457): the requests that get them, and their content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

if TYPE_CHECKING:
    from tests.support.api_device import Device


MEDIA_TYPE = "application/problem+json"
ASKS = {"accept": f"application/json, {MEDIA_TYPE}"}
SESSION = {"cookie": "session=1", **ASKS}
RULE = {"ip": "10.0.0.5/8", "target_node": "nobody", "upload_limit_kbps": -1}
SETTINGS = {
    "unmanaged": "nobody",
    "delay_url": "http://u@example.com/",
    "check_interval_s": 30,
    "group_strategy": "urltest",
    "sniff_domains": True,
}


def errors(answer: Any) -> list[tuple[str, str]]:
    return [(error["pointer"], error["code"]) for error in answer.json()["errors"]]


async def test_an_operations_endpoint_answers_with_field_and_code(device: Device) -> None:
    answer = await device.client.put("/ops/settings", json=SETTINGS, headers=ASKS)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.headers["cache-control"] == "no-store"
    unmanaged = (
        "unmanaged must be DIRECT, REJECT, a node's name, Group_<group name> or "
        "Interface:<interface name>; there is no node 'nobody'"
    )
    url = "delay_url must be an http or https URL of at most 2048 characters, without a user name"
    assert answer.json() == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "detail": f"{unmanaged}; {url}",
        "errors": [
            {
                "pointer": "/unmanaged",
                "code": "target-missing",
                "values": {"kind": "node", "name": "nobody"},
                "detail": unmanaged,
            },
            {"pointer": "/delay_url", "code": "url", "values": {"most": 2048}, "detail": url},
        ],
    }
    plain = await device.client.put("/ops/settings", json=SETTINGS)
    assert plain.json() == {"error": answer.json()["detail"]}
    assert plain.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({**SETTINGS, "check_interval_s": 1}, [("/check_interval_s", "whole-number")]),
        ({**SETTINGS, "sniff_domains": "no"}, [("/sniff_domains", "boolean")]),
        ({**SETTINGS, "group_strategy": "fast"}, [("/group_strategy", "one-of")]),
        ({**SETTINGS, "unmanaged": ""}, [("/unmanaged", "target-form")]),
        ({**SETTINGS, "a/b": 1}, [("/a~1b", "unknown-field")]),
        (
            {"unmanaged": "DIRECT", "delay_url": 7, "check_interval_s": 30},
            [
                ("/delay_url", "url-form"),
                ("/group_strategy", "missing"),
                ("/sniff_domains", "missing"),
            ],
        ),
        ([], [("", "takes")]),
    ],
)
async def test_faults_of_the_form_have_fields_and_codes(
    device: Device, body: Any, faults: list[tuple[str, str]]
) -> None:
    answer = await device.client.put("/ops/settings", json=body, headers=ASKS)
    assert answer.status_code == 400
    assert errors(answer) == faults


@pytest.mark.parametrize(
    ("headers", "content", "code"),
    [
        ({"content-type": "text/plain"}, b"{}", "content-type"),
        ({"content-type": "application/json"}, b"{", "body-syntax"),
        ({"content-type": "application/json"}, b'{"a": NaN}', "body-number"),
        ({"content-type": "application/json"}, b'{"a": 1, "a": 1}', "given-twice"),
    ],
)
async def test_an_unreadable_body_is_a_problem_with_a_code(
    device: Device, headers: dict[str, str], content: bytes, code: str
) -> None:
    answer = await device.client.put("/ops/settings", content=content, headers={**ASKS, **headers})
    assert errors(answer) == [("", code)]


async def test_faults_of_parameters_are_reported_like_those_of_fields(device: Device) -> None:
    path = "/ops/explain?client=nobody&destination=example.com"
    assert errors(await device.client.get(path, headers=ASKS)) == [("/client", "ipv4-address")]
    path = "/ops/explain?client=10.0.0.1&destination=a&port=0&port=1"
    assert errors(await device.client.get(path, headers=ASKS)) == [("", "given-twice")]


@pytest.mark.parametrize(
    "accept",
    ["", "*/*", "application/*", "application/json", f"{MEDIA_TYPE};q=0", f"{MEDIA_TYPE}; q=0.000"],
)
async def test_a_client_that_accepts_no_problem_gets_a_plain_error(
    device: Device, accept: str
) -> None:
    answer = await device.client.put("/ops/settings", json=SETTINGS, headers={"accept": accept})
    assert answer.json().keys() == {"error"}


@pytest.mark.parametrize("accept", [MEDIA_TYPE, f"text/html, {MEDIA_TYPE.upper()};q=0.5"])
async def test_a_client_that_accepts_problems_gets_one(device: Device, accept: str) -> None:
    answer = await device.client.put("/ops/settings", json=SETTINGS, headers={"accept": accept})
    assert answer.headers["content-type"] == MEDIA_TYPE


async def test_refusals_of_callers_and_paths_are_problems_without_errors(device: Device) -> None:
    missing = await device.client.get("/ops/nothing", headers=ASKS)
    stranger = await device.client_at("192.0.2.9", None).get("/ops/overview", headers=ASKS)
    device.token = "another"
    for answer, status, title in ((missing, 404, "Not Found"), (stranger, 401, "Unauthorized")):
        assert answer.status_code == status
        told = answer.json()
        assert (told["status"], told["title"], told["errors"]) == (status, title, [])


async def test_programs_get_the_one_shape_of_v1_whatever_they_accept(device: Device) -> None:
    plain = await device.call("POST", "/rules", RULE)
    asked = await device.call("POST", "/rules", RULE, headers=ASKS)
    assert asked.status_code == plain.status_code == 400
    assert asked.content == plain.content
    assert asked.headers["content-type"] == "application/json"
    assert asked.json().keys() == {"error"}
    gone = await device.call("DELETE", "/rules/7", headers=ASKS)
    assert (gone.status_code, gone.json()) == (200, {"error": "there is no rule with the id 7"})


async def test_the_page_gets_field_and_code_from_v1_too(device: Device) -> None:
    page = device.client_at("192.0.2.11", None)
    path = "/svc/api/v1/rules"
    answer = await page.post(path, json=RULE, headers=SESSION)
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert errors(answer) == [("/ip", "ipv4-or-cidr"), ("/upload_limit_kbps", "whole-number")]
    told = await device.call("POST", "/rules", RULE)
    assert answer.json()["detail"] == told.json()["error"]
    plain = await page.post(path, json=RULE, headers={"cookie": "session=1"})
    assert plain.content == told.content

    gone = await page.delete(f"{path}/7", headers=SESSION)
    assert gone.status_code == 404
    assert gone.json()["errors"] == [
        {
            "pointer": "/id",
            "code": "no-such-id",
            "values": {"thing": "rule", "id": 7},
            "detail": "there is no rule with the id 7",
        }
    ]
    device.bench.quota = 0
    service = {"name": "a", "outbound_interface": "wan1", "port": 8001}
    full = await page.post("/svc/api/v1/proxy-services", json=service, headers=SESSION)
    assert full.status_code == 409
    assert errors(full) == [("", "quota-reached")]


async def test_a_fault_within_a_configuration_names_its_key(device: Device) -> None:
    page = device.client_at("192.0.2.11", None)
    node = {
        "name": "a",
        "protocol": "socks5",
        "config_json": '{"server": "x y", "port": 0, "dns-profile": "custom"}',
    }
    answer = await page.post("/svc/api/v1/nodes", json=node, headers=SESSION)
    assert errors(answer) == [
        ("/config_json/server", "host"),
        ("/config_json/port", "whole-number"),
        ("/config_json/dns-servers", "dns-servers-needed"),
    ]


async def test_the_documents_are_as_described(device: Device) -> None:
    described = (await device.client.get("/ops/openapi.json")).json()
    refused = described["paths"]["/ops/settings"]["put"]["responses"]["400"]["$ref"]
    response = described["components"]["responses"][refused.rpartition("/")[2]]
    content = response["content"][MEDIA_TYPE]
    schema = {**content["schema"], "components": described["components"]}
    validator = jsonschema_rs.validator_for(schema)
    validator.validate(content["examples"]["problem"]["value"])
    answer = await device.client.put("/ops/settings", json=SETTINGS, headers=ASKS)
    validator.validate(answer.json())
    by_v1 = described["paths"]["/svc/api/v1/rules"]["post"]["responses"]["400"]["$ref"]
    response = described["components"]["responses"][by_v1.rpartition("/")[2]]
    assert response["content"].keys() == {"application/json"}
