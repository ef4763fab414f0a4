"""Endpoints, and the table that finds the endpoint of a request.

`EndpointTable` is the only place that reads a request's path. FastAPI's own routing gets its
result (`FoundRoute`), so the endpoint that the gate lets through is the one that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from egressd.api.intake import JSON, JsonRequest, bounded, has_body, refuse_twice
from egressd.model.tokens import Need

API_ROOT: Final = "/svc"
"""No endpoint but the API's lies here: whatever is asked for here is judged by its rules."""
API_PREFIX: Final = API_ROOT + "/api/v1"
OPS_PREFIX: Final = "/ops"
"""Health, metrics, events and the documentation, beside the API."""

SMALL_BODY: Final = 1024 * 1024
"""Bytes in a body: a batch of 10,000 addresses takes a quarter of it."""
LARGE_BODY: Final = 16 * 1024 * 1024
"""Bytes in the body of an import."""

_FOUND: Final = "egressd.endpoint"

Handler = Callable[..., Coroutine[Any, Any, Response]]


class Endpoint:
    """An endpoint as it is declared: by its method and path, with the function that handles it.

    What FastAPI reads its parameters and its body with is made for its first request: few devices
    are asked for all endpoints, which take 0.1 s and 5 MB.
    """

    body_type: str = JSON
    """The media type of its body."""
    body_max: int = SMALL_BODY
    is_open: bool = False
    """True if it answers without a token."""
    is_by_key: bool = False
    """True if a token for it is the parameter ``key`` of its path, and nothing else opens it."""
    is_conditional: bool = False
    """True if it answers 412 for an ``If-Match`` that names another version."""
    has_statuses: bool = False
    """True if it answers 404 for something that does not exist, and 409 over a quota, whatever
    ``Accept`` names."""
    is_licensed: bool = False
    """True if a token needs API access by the license, as for the specification's endpoints."""
    need: Need = "admin"
    """The least scope of a token that covers it."""
    is_declared: bool = False
    """True if its router, or its own declaration, says what it needs."""
    answer: type[msgspec.Struct] | None = None
    """The shape of its answer, where that is JSON."""

    def __init__(self, method: str, path: str, handler: Handler, **described: Any) -> None:
        """`described` is what FastAPI's route takes for the OpenAPI document."""
        self.method: Final = method
        self.path: Final = path
        self.handler: Final = handler
        self._described = described

    @cached_property
    def route(self) -> EndpointRoute:
        """FastAPI's route to it."""
        return EndpointRoute(self, self._described)


class EndpointRoute(APIRoute):
    """FastAPI's route to an endpoint, whose body is read strictly."""

    def __init__(self, declared: Endpoint, described: Mapping[str, Any]) -> None:
        self._declared = declared
        super().__init__(declared.path, declared.handler, methods=[declared.method], **described)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, given a request that reads JSON our way."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if self.dependant.query_params:
                refuse_twice(key for key, _ in request.query_params.multi_items())
            receive = request.receive
            if has_body(request.headers, self._declared.body_type):
                receive = bounded(receive, request.headers, self._declared.body_max)
            return await handle(JsonRequest(request.scope, receive))

        return handle_json


class FoundRoute(BaseRoute):
    """The only route of the application: to the endpoint that the `EndpointTable` found."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return a full match if the table found an endpoint for the request."""
        found = FoundEndpoint.of(scope)
        if found is None:
            return Match.NONE, {}
        return Match.FULL, {
            "endpoint": found.endpoint.handler,
            "path_params": found.parameters,
            "route": found.endpoint.route,
        }

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the endpoint answer."""
        await scope["route"].handle(scope, receive, send)


class FoundEndpoint(NamedTuple):
    """The endpoint of a request, and the values of its path's parameters."""

    endpoint: Endpoint
    parameters: dict[str, str]

    @staticmethod
    def of(scope: Scope) -> FoundEndpoint | None:
        """Return the result that `put` stored for this request."""
        return scope.get(_FOUND)

    def put(self, scope: Scope) -> None:
        """Note it for this request."""
        scope[_FOUND] = self


class EndpointTable:
    """Finds endpoints by method and path, byte for byte.

    A literal path of the specification is never read as a parameter, whatever its method:
    ``PUT /rules/batch`` is not the rule with the id "batch".
    """

    def __init__(self, endpoints: Iterable[Endpoint]) -> None:
        self._literal: dict[str, dict[str, Endpoint]] = {}
        self._patterns: dict[tuple[str, ...], dict[str, Endpoint]] = {}
        for endpoint in endpoints:
            if "{" in endpoint.path:
                methods = self._patterns.setdefault(tuple(endpoint.path.split("/")), {})
            else:
                methods = self._literal.setdefault(endpoint.path, {})
            methods[endpoint.method] = endpoint

    def find(self, method: str, raw_path: bytes) -> FoundEndpoint | None:
        """The endpoint, or None. `raw_path` is the path as it was sent, without its query."""
        try:
            path = raw_path.decode("ascii")
        except UnicodeDecodeError:
            return None
        literal = self._literal.get(path)
        if literal is not None:
            endpoint = literal.get(method)
            return FoundEndpoint(endpoint, {}) if endpoint else None
        segments = path.split("/")
        for pattern, methods in self._patterns.items():
            if len(pattern) == len(segments) and method in methods:
                parameters = _parameters(pattern, segments)
                if parameters is not None:
                    return FoundEndpoint(methods[method], parameters)
        return None


def _parameters(pattern: tuple[str, ...], segments: list[str]) -> dict[str, str] | None:
    """The values of the pattern's ``{parameters}``, decoded; None where it does not fit. A name may
    have a slash, which is sent as ``%2F``, except in the paths of the specification.
    """
    may_have_slash = f"/{pattern[1]}" == OPS_PREFIX
    values = {}
    for wanted, segment in zip(pattern, segments, strict=True):
        if wanted.startswith("{"):
            try:
                value = unquote_to_bytes(segment).decode()
            except UnicodeDecodeError:
                return None
            if value in ("", ".", "..") or ("/" in value and not may_have_slash):
                return None
            values[wanted[1:-1]] = value
        elif wanted != segment:
            return None
    return values
