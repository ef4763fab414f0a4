"""The OpenAPI 3.1 document: FastAPI's, made complete.

FastAPI knows paths, parameters and bodies. Added here: the shapes of answers (msgspec's
schemas of the structs that are sent), the failures that every endpoint has, and the token.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from egressd.api.endpoints import API_PREFIX, Endpoint
from egressd.api.gate import NOT_ALLOWED, TOKEN_INVALID, TRIAL_EXHAUSTED
from egressd.api.wire.answers import Error
from egressd.model.faults import fault
from egressd.model.problem import MEDIA_TYPE, Problem, problem
from egressd.model.wording import text_schema

ACCESS_REQUIRED: Final = "API_ACCESS_REQUIRED"

DESCRIPTION: Final = """\
Manages where each LAN client's traffic leaves: proxy nodes, VPN lines, rules, a whitelist and
local proxy services.

An answer with `msg` means: stored durably, and in force in the kernel and the engine. A
well-formed request about something that is not there, or over a quota, is answered with status
200 and `error`. A request that cannot be is answered 400, with every fault told at once; 500
means that the store or the data plane failed and that nothing has changed.

The endpoints under /ops answer a request that is not carried out with a problem document (RFC 9457)
if its Accept header names application/problem+json: each fault with its field, a code that stays
the same, and values. The status is then 404 for something that does not exist, 409 over a quota.

The security of an operation names the least scope of a token that may call it: read, write, admin,
metrics or events. Any other token is answered 403. The device's own token may call everything.
"""

TAGS: Final = (
    ("System", "The state of the device."),
    ("Nodes", "Upstream proxies, alone or in groups."),
    ("VPN lines", "L2TP and PPTP lines that traffic can leave by."),
    ("Rules", "Which client goes where, and how fast."),
    ("Whitelist", "Destinations that go their own way for every client."),
    ("Proxy services", "Local listeners that leave by one interface."),
    ("Operations", "Health, metrics, events, backups and this document."),
)

_FAILURES: Final = {
    400: (
        "BadRequest",
        "The request is not valid; the text names every fault",
        "port must be a whole number",
    ),
    401: ("Unauthorized", "The token is missing, malformed or wrong", TOKEN_INVALID),
    403: ("Forbidden", "The license, the endpoint or the scope of the token", ACCESS_REQUIRED),
    404: ("Unknown", "There is no such thing", "there is no token 1f2e3d4c"),
    409: (
        "InTheWay",
        "Something that exists stands in the way, or a bound",
        "name must not be another's: there is a token grafana already",
    ),
    412: (
        "Outdated",
        "If-Match names another version than the present one",
        "the device 02:00:5e:00:53:01 has been changed since it was read",
    ),
    429: ("TooMany", "It comes too soon after others: Retry-After has the seconds", "too soon"),
    500: ("Failed", "The store or the data plane failed; nothing has changed", "commit: disk full"),
}


_OF_API: Final = (ACCESS_REQUIRED, TRIAL_EXHAUSTED, NOT_ALLOWED)
_OF_OPS: Final = (NOT_ALLOWED,)
"""Texts of status 403."""

_OPS: Final = "Ops"
"""The beginning of the names of responses that may be problem documents."""


def build(app: FastAPI, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document of all `endpoints` of `app`."""
    endpoints = list(endpoints)
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description=DESCRIPTION,
        license_info={"name": "MIT", "identifier": "MIT"},
        routes=[endpoint.route for endpoint in endpoints],
        tags=[{"name": name, "description": text} for name, text in TAGS],
        servers=[{"url": "/", "description": "This device"}],
    )
    components = document["components"]
    _drop_fastapis_errors(components["schemas"])
    components["schemas"] |= _answer_schemas(endpoints)
    components["responses"] = {
        name: _failure_response(status, text, example)
        for status, (name, text, example) in _FAILURES.items()
    } | {
        _OPS + name: _with_problem(
            _failure_response(status, text, example, _OF_OPS if status == 403 else ()),
            status,
            NOT_ALLOWED if status == 403 else example,
        )
        for status, (name, text, example) in _FAILURES.items()
    }
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "The API token of the device's API settings page, or a scoped token of "
            "/ops/tokens that covers the scope that an operation names.",
        }
    }
    document["security"] = [{"token": []}]
    for endpoint in endpoints:
        _complete(document["paths"][endpoint.path][endpoint.method.lower()], endpoint)
    exact: dict[str, Any] = _with_integers(document)
    return exact


def _with_integers(value: Any) -> Any:
    """FastAPI makes ``1.0`` of bounds that are whole numbers; undo that."""
    match value:
        case dict():
            return {key: _with_integers(inner) for key, inner in value.items()}
        case list():
            return [_with_integers(inner) for inner in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _drop_fastapis_errors(schemas: dict[str, Any]) -> None:
    # FastAPI describes its own 422 answers, which are 400 in our shape.
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)


def _answer_schemas(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    answers: set[type[msgspec.Struct]] = {Error, Problem}
    answers |= {endpoint.answer for endpoint in endpoints if endpoint.answer is not None}
    _, schemas = msgspec.json.schema_components(
        sorted(answers, key=lambda answer: answer.__name__),
        schema_hook=text_schema,
        ref_template="#/components/schemas/{name}",
    )
    for schema in schemas.values():
        schema["additionalProperties"] = False
    return schemas


def _failure_response(
    status: int, text: str, example: str, texts: tuple[str, ...] = _OF_API
) -> dict[str, Any]:
    examples = {"error": {"value": {"error": example}}}
    if status == 403:
        examples = {each: {"value": {"error": each}} for each in texts}
    content = {"schema": {"$ref": "#/components/schemas/Error"}, "examples": examples}
    return {"description": text, "content": {"application/json": content}}


def _with_problem(response: dict[str, Any], status: int, example: str) -> dict[str, Any]:
    """Return `response` with the second form of the answer, for requests that ask for it."""
    faults = [fault("port", "whole-number", least=1, most=65_535)] if status == 400 else []
    document = problem(status, str(faults[0]) if faults else example, faults)
    content = {
        "schema": {"$ref": "#/components/schemas/Problem"},
        "examples": {"problem": {"value": msgspec.to_builtins(document)}},
    }
    return {**response, "content": {**response["content"], MEDIA_TYPE: content}}


def _complete(operation: dict[str, Any], endpoint: Endpoint) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    if endpoint.is_open:
        operation["security"] = []
        return
    operation["security"] = [] if endpoint.is_by_key else [{"token": [endpoint.need]}]
    is_api = endpoint.path.startswith(API_PREFIX)
    takes_input = "requestBody" in operation or "parameters" in operation
    for status, (name, _, _) in _FAILURES.items():
        if status == 400 and not takes_input:
            continue
        if endpoint.is_by_key and status in (401, 403):
            continue
        if status == 429 and not endpoint.is_by_key:
            continue
        if status in (404, 409) and not endpoint.has_statuses:
            continue
        if status == 412 and not endpoint.is_conditional:
            continue
        prefix = "" if is_api else _OPS
        responses[str(status)] = {"$ref": f"#/components/responses/{prefix}{name}"}
