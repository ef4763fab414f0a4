"""The OpenAPI document against the specification's tables, which are written down here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from egressd.api.app import ROUTERS

if TYPE_CHECKING:
    from tests.support.api_device import Device


PREFIX = "/svc/api/v1"

NODE = {
    "id": "integer",
    "name": "string",
    "protocol": "string",
    "config_json": "string",
    "group": "string",
    "created_at": "string",
}
LINE = {
    "id": "integer",
    "type": "string",
    "name": "string",
    "server": "string",
    "port": "integer",
    "username": "string",
    "password": "string",
    "secret": "string",
    "interface": "string",
    "comment": "string",
    "dns_profile": "string",
    "dns_servers": "array of string",
    "is_enabled": "boolean",
    "is_online": "boolean",
}
RULE = {
    "id": "integer",
    "ip": "string",
    "mac": "string",
    "comment": "string",
    "is_enabled": "boolean",
    "target_node": "string",
    "upload_limit_kbps": "integer",
    "download_limit_kbps": "integer",
    "created_at": "string",
    "updated_at": "string",
}
PROXY_SERVICE = {
    "id": "integer",
    "name": "string",
    "outbound_interface": "string",
    "port": "integer",
    "username": "string",
    "password": "string",
    "is_enabled": "boolean",
    "created_at": "string",
}
WHITELIST = {"domains": "string", "ips": "string", "node": "string"}


def fields(table: dict[str, str], *without: str, **more: str) -> dict[str, str]:
    return {name: kind for name, kind in table.items() if name not in without} | more


NODE_BODY = fields(NODE, "id", "created_at")
LINE_BODY = fields(LINE, "id", "is_enabled", "is_online")
RULE_BODY = fields(RULE, "id", "created_at", "updated_at")
PROXY_SERVICE_BODY = fields(PROXY_SERVICE, "id", "created_at")
IPS = {"ips": "array of string"}
IDS = {"ids": "array of integer"}
ITEMS = {"items": "array of object"}
SWITCH = {"is_enabled": "boolean"}
TEXT_IMPORT = {"text": "string", "replace": "boolean"}
LIMITS = {
    "update_upload": "boolean",
    "update_download": "boolean",
    "upload_limit_kbps": "integer",
    "download_limit_kbps": "integer",
}
SAID = {"msg": "string"}
SAID_ID = {"msg": "string", "id": "integer"}
DELETED = {"msg": "string", "deleted": "integer"}
UPDATED = {"msg": "string", "updated": "integer"}
IMPORTED = {"msg": "string", "imported": "integer", "skipped": "integer"}
INTERFACES = {"interfaces": "array of string"}

# Method, path, body (every field and its type; None: no body), answer.
ENDPOINTS: list[tuple[str, str, dict[str, str] | None, dict[str, str]]] = [
    (
        "get",
        "/system/status",
        None,
        {
            "status": "string",
            "uptime": "string",
            "version": "string",
            "hasAPIAccess": "boolean",
            "connections": "integer",
            "memory": "integer",
            "adMessage": "string",
        },
    ),
    (
        "get",
        "/system/traffic",
        None,
        {"up": "integer", "down": "integer", "connections": "integer", "memory": "integer"},
    ),
    ("get", "/system/interfaces", None, INTERFACES),
    ("get", "/system/interfaces-with-ip", None, {"interfaces": "array of object"}),
    ("get", "/nodes", None, {"data": "array of object"}),
    ("post", "/nodes", NODE_BODY, SAID_ID),
    ("put", "/nodes/{id}", NODE_BODY, SAID_ID),
    ("delete", "/nodes/{id}", None, SAID_ID),
    ("delete", "/nodes/batch", IDS, DELETED),
    (
        "patch",
        "/nodes/batch",
        IDS
        | {
            "group": "string or null",
            "interface_name": "string or null",
            "dialer_proxy": "string or null",
            "node_dns_profile": "string or null",
            "node_dns_servers": "string or null",
        },
        UPDATED,
    ),
    (
        "post",
        "/nodes/import",
        TEXT_IMPORT
        | {
            "type": "string",
            "group": "string",
            "autoNodeName": "boolean",
            "autoNodeNameStartIndex": "integer",
        },
        IMPORTED | {"errors": "integer", "error_rows": "array of string"},
    ),
    ("get", "/nodes/delay", None, {"delay": "integer", "error": "string"}),
    ("get", "/nodes/delay/all", None, {"data": "object"}),
    ("get", "/vpn-lines", None, {"data": "array of object"}),
    ("post", "/vpn-lines", LINE_BODY, SAID_ID),
    ("put", "/vpn-lines/{type}/{name}", LINE_BODY | SWITCH, SAID),
    ("patch", "/vpn-lines/status", ITEMS | SWITCH, UPDATED),
    ("delete", "/vpn-lines", ITEMS, DELETED),
    (
        "post",
        "/vpn-lines/import",
        {
            "type": "string",
            "text": "string",
            "autoLineName": "boolean",
            "autoLineNameStartIndex": "integer",
        },
        IMPORTED | {"errors": "array of string"},
    ),
    ("get", "/rules", None, {"data": "array of object"}),
    ("post", "/rules", RULE_BODY, SAID),
    ("put", "/rules/{id}", RULE_BODY, SAID_ID),
    ("patch", "/rules/{id}/status", SWITCH, SAID_ID | SWITCH | {"ip": "string"}),
    ("delete", "/rules/{id}", None, SAID_ID | {"ip": "string"}),
    ("delete", "/rules/batch", IPS, DELETED),
    ("patch", "/rules/batch/status", IPS | SWITCH, UPDATED | SWITCH),
    (
        "patch",
        "/rules/batch",
        IPS | LIMITS | {"update_target": "boolean", "target_node": "string"},
        UPDATED | LIMITS | {"update_target": "boolean", "target_node": "string"},
    ),
    ("patch", "/rules/batch/limits", IPS | LIMITS, UPDATED | LIMITS),
    ("post", "/rules/import", TEXT_IMPORT, IMPORTED),
    ("get", "/whitelist", None, WHITELIST),
    ("put", "/whitelist", WHITELIST, SAID),
    ("get", "/proxy-services/quota", None, {"quota": "integer", "used": "integer"}),
    ("get", "/proxy-services", None, {"data": "array of object"}),
    ("post", "/proxy-services", PROXY_SERVICE_BODY, SAID_ID),
    ("put", "/proxy-services/{id}", PROXY_SERVICE_BODY, SAID_ID),
    ("patch", "/proxy-services/{id}/status", SWITCH, SAID_ID | SWITCH),
    ("delete", "/proxy-services/{id}", None, SAID_ID),
    ("delete", "/proxy-services/batch", IDS, DELETED),
    ("patch", "/proxy-services/batch/status", IDS | SWITCH, UPDATED),
    ("post", "/proxy-services/import", TEXT_IMPORT, IMPORTED),
]
IDENTIFIERS = [f"{method} {path}" for method, path, _, _ in ENDPOINTS]

ROWS = {
    "/nodes": NODE,
    "/vpn-lines": LINE,
    "/rules": RULE,
    "/proxy-services": PROXY_SERVICE,
}
QUERIES = {
    "/nodes/delay": {"name": (True, None), "url": (False, None), "timeout": (False, 5000)},
    "/nodes/delay/all": {"url": (False, None), "timeout": (False, 8000)},
}


class Document:
    """The served document, with its references resolved."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def follow(self, node: Any) -> Any:
        while isinstance(node, dict) and "$ref" in node:
            found: Any = self.document
            for step in node["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            node = found
        return node

    def operation(self, method: str, path: str) -> Any:
        return self.document["paths"][PREFIX + path][method]

    def body(self, method: str, path: str) -> Any:
        request = self.operation(method, path)["requestBody"]
        assert request["required"] is True
        return self.follow(request["content"]["application/json"]["schema"])

    def answer(self, method: str, path: str) -> Any:
        content = self.operation(method, path)["responses"]["200"]["content"]
        schema = content["application/json"]["schema"]
        return self.follow(schema["anyOf"][0] if "anyOf" in schema else schema)

    def kind(self, schema: Any) -> str:
        schema = self.follow(schema)
        if "anyOf" in schema:
            return " or ".join(self.kind(choice) for choice in schema["anyOf"])
        if schema.get("type") == "array":
            return f"array of {self.kind(schema['items'])}"
        if "enum" in schema:
            assert all(isinstance(value, str) for value in schema["enum"])
            return "string"
        return str(schema["type"])

    def kinds(self, schema: Any) -> dict[str, str]:
        return {name: self.kind(field) for name, field in schema["properties"].items()}


@pytest.fixture
async def document(device: Device) -> Document:
    return Document((await device.client.get("http://device/ops/openapi.json")).json())


async def test_the_document_has_the_endpoints_of_the_specification(document: Document) -> None:
    described = {
        f"{method} {path.removeprefix(PREFIX)}"
        for path, methods in document.document["paths"].items()
        for method in methods
        if path.startswith(PREFIX)
    }
    assert described == set(IDENTIFIERS)


@pytest.mark.parametrize(("method", "path", "body", "answer"), ENDPOINTS, ids=IDENTIFIERS)
async def test_an_endpoint_has_the_fields_of_the_specification(
    document: Document,
    method: str,
    path: str,
    body: dict[str, str] | None,
    answer: dict[str, str],
) -> None:
    operation = document.operation(method, path)
    if body is None:
        assert "requestBody" not in operation
    else:
        schema = document.body(method, path)
        assert document.kinds(schema) == body
        assert schema["additionalProperties"] is False
    schema = document.answer(method, path)
    assert document.kinds(schema) == answer
    assert schema["additionalProperties"] is False
    optional = {"error"} if path == "/nodes/delay" else set()
    assert set(schema["required"]) == set(answer) - optional


@pytest.mark.parametrize("path", ROWS)
async def test_a_lists_rows_have_the_fields_of_the_specification(
    document: Document, path: str
) -> None:
    row = document.follow(document.answer("get", path)["properties"]["data"]["items"])
    assert document.kinds(row) == ROWS[path]
    assert set(row["required"]) == set(ROWS[path])


@pytest.mark.parametrize("path", QUERIES)
async def test_query_parameters_are_those_of_the_specification(
    document: Document, path: str
) -> None:
    described = {
        parameter["name"]: (
            parameter["required"],
            parameter["schema"].get("default"),
        )
        for parameter in document.operation("get", path)["parameters"]
        if parameter["in"] == "query"
    }
    assert described == QUERIES[path]


async def test_values_of_fields_are_those_of_the_specification(document: Document) -> None:
    line = document.body("post", "/vpn-lines")["properties"]
    assert line["type"]["enum"] == ["l2tp", "pptp"]
    assert line["name"]["maxLength"] == 15
    profiles = ["auto", "domestic", "outbound", "return", "custom"]
    assert line["dns_profile"]["enum"] == profiles
    assert line["dns_profile"]["default"] == "auto"
    assert line["interface"]["default"] == "auto"
    assert "default" not in line["port"]
    batch = document.body("patch", "/nodes/batch")["properties"]
    assert batch["node_dns_profile"]["anyOf"][0]["enum"] == ["", *profiles]
    kinds = ["socks5", "ss", "vlessvmess", "others"]
    assert document.body("post", "/nodes/import")["properties"]["type"]["enum"] == kinds
    for method, path in (("post", "/rules"), ("patch", "/rules/batch/limits")):
        limit = document.body(method, path)["properties"]["upload_limit_kbps"]
        assert (limit["minimum"], limit["maximum"], limit["default"]) == (0, 10_000_000, 0)
    status = document.answer("get", "/system/status")["properties"]["status"]
    assert status["enum"] == ["running", "stopped", "restoring"]


@pytest.mark.parametrize(
    ("method", "path", "required"),
    [
        ("post", "/nodes", {"name", "protocol", "config_json"}),
        ("put", "/nodes/{id}", set(NODE_BODY)),
        ("post", "/vpn-lines", {"type", "name", "server", "username", "password"}),
        ("put", "/vpn-lines/{type}/{name}", {*LINE_BODY, "is_enabled"}),
        ("post", "/rules", {"ip", "target_node"}),
        ("put", "/rules/{id}", set(RULE_BODY)),
        ("put", "/whitelist", set(WHITELIST)),
        ("post", "/proxy-services", {"name", "outbound_interface", "port"}),
        ("put", "/proxy-services/{id}", set(PROXY_SERVICE_BODY)),
    ],
)
async def test_required_fields_are_those_of_the_specification(
    document: Document, method: str, path: str, required: set[str]
) -> None:
    assert set(document.body(method, path)["required"]) == required


async def test_the_token_and_the_failures_are_described(document: Document) -> None:
    components = document.document["components"]
    assert components["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document.document["security"] == [{"token": []}]
    for method, path, body, _ in ENDPOINTS:
        operation = document.operation(method, path)
        scope = "read" if method == "get" else "write"
        assert operation["security"] == [{"token": [scope]}]
        statuses = {"200", "401", "403", "500"}
        if body is not None or "{" in path or path in QUERIES:
            statuses.add("400")
        assert set(operation["responses"]) == statuses, (method, path)
    forbidden = components["responses"]["Forbidden"]["content"]["application/json"]["examples"]
    assert set(forbidden) == {
        "API_ACCESS_REQUIRED",
        "API_TRIAL_QUOTA_EXHAUSTED",
        "API_ENDPOINT_NOT_ALLOWED",
    }


async def test_open_endpoints_have_no_security_requirement(document: Document) -> None:
    is_open = {
        path
        for path, methods in document.document["paths"].items()
        for operation in methods.values()
        if operation.get("security") == []
    }
    by_key = {"/ops/rotate/{key}", "/ops/rotate/{key}/{id}"}
    assert is_open == {"/ops/health", "/ops/openapi.json", "/ops/docs"} | by_key


async def test_every_example_fits_its_schema(document: Document) -> None:
    checked = 0
    for path, methods in document.document["paths"].items():
        for method, operation in methods.items():
            contents = [operation.get("requestBody", {}).get("content", {})]
            contents += [
                document.follow(response).get("content", {})
                for response in operation["responses"].values()
            ]
            for content in contents:
                for media in content.values():
                    examples = [e["value"] for e in media.get("examples", {}).values()]
                    examples += [media["example"]] if "example" in media else []
                    schema = media.get("schema", {})
                    if "$ref" in json.dumps(schema):
                        assert examples, (method, path)
                    for example in examples:
                        whole = schema | {"components": document.document["components"]}
                        jsonschema_rs.Draft202012Validator(whole).validate(example)
                        checked += 1
    assert checked > 200


async def test_every_endpoint_has_a_summary_and_a_unique_name(document: Document) -> None:
    operations = [
        operation
        for methods in document.document["paths"].values()
        for operation in methods.values()
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert all(operation["summary"] for operation in operations)
    tags = {tag["name"] for tag in document.document["tags"]}
    assert {tag for operation in operations for tag in operation["tags"]} == tags


async def test_no_limit_is_a_fraction(document: Document) -> None:
    def numbers(value: Any) -> list[float]:
        if isinstance(value, dict):
            return [found for inner in value.values() for found in numbers(inner)]
        if isinstance(value, list):
            return [found for inner in value for found in numbers(inner)]
        return [value] if isinstance(value, float) else []

    assert numbers(document.document) == []


async def test_the_page_names_every_endpoint_and_loads_nothing_else(
    device: Device, document: Document
) -> None:
    response = await device.client.get("http://device/ops/docs")
    page = response.text
    for method, path, _, _ in ENDPOINTS:
        assert f'<code class="method {method}">{method.upper()}</code>' in page
        assert f"<code>{PREFIX}{path}</code>" in page
    assert "<script" not in page
    assert "http://" not in page.replace("`http://`", "").replace("http://&#x27;", "")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


def test_every_handler_is_a_function_of_its_module() -> None:
    handlers = [endpoint.handler for router in ROUTERS for endpoint in router.endpoints]
    assert len(handlers) > 50
    assert {handler.__qualname__ for handler in handlers} == {h.__name__ for h in handlers}
