"""The outermost layer: every request gets an id, a log line and a place in the metrics.

Logged are method, path (no query, no key), status, duration, source and id: never a header or a
body, so no token and no secret.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
import traceback
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from egressd.api.endpoints import FoundEndpoint
from egressd.api.faults import internal_error
from egressd.api.link_keys import shown_path, take_key
from egressd.api.protocol import CONNECTION

log = structlog.get_logger()

REQUEST_ID: Final = b"x-request-id"

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class RequestMetrics:
    """Counts of requests. Labels are bounded: endpoints by template, methods by name."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "egressd_http_requests",
            "Requests answered",
            ("method", "endpoint", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "egressd_http_request_seconds",
            "Time from the request's head to the end of its answer",
            ("method", "endpoint"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one answered request."""
        found = FoundEndpoint.of(scope)
        endpoint = found.endpoint.path if found else "unknown"
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        requests, durations = self._of(method, endpoint, status)
        requests.inc()
        durations.observe(seconds)

    def _of(self, method: str, endpoint: str, status: int) -> tuple[Counter, Histogram]:
        # prometheus_client finds a child by its labels in 5 us; this in 0.1.
        key = (method, endpoint, status)
        children = self._children.get(key)
        if children is None:
            children = (
                self._requests.labels(method, endpoint, str(status)),
                self._seconds.labels(method, endpoint),
            )
            self._children[key] = children
        return children


class Observe:
    """ASGI middleware around everything."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 500 for what went wrong unforeseen."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        take_key(scope)
        started = time.perf_counter()
        request_id = _request_id(scope)
        structlog.contextvars.bind_contextvars(request_id=request_id.decode())
        status = 0
        complete = False

        async def send_observed(message: Message) -> None:
            nonlocal status, complete
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (REQUEST_ID, request_id),
                    (b"x-content-type-options", b"nosniff"),
                ]
            else:
                complete = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, send_observed)
        except asyncio.CancelledError:
            if not status and (connection := scope.get(CONNECTION)):
                # The server stops, and what was asked for may be done all the same: no answer says
                # so, while uvicorn's own would be 500, after which nothing has changed.
                connection.abort()
            raise
        except Exception:
            # As text: a renderer that shows local variables would show the token.
            log.error(
                "unexpected error in a request",
                path=shown_path(scope),
                traceback=traceback.format_exc(),
            )
            if status and not complete:
                raise
            if not status:
                await internal_error(scope)(scope, receive, send_observed)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.count(scope, status, seconds)
            _log_request(scope, status, seconds)


def _request_id(scope: Scope) -> bytes:
    """The caller's ``X-Request-ID`` if it is harmless, else a new one."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID and _REQUEST_ID.fullmatch(value):
            return bytes(value)
    return secrets.token_hex(8).encode()


def _log_request(scope: Scope, status: int, seconds: float) -> None:
    # Reads are many and a device's disk is small; the refused are counted in the metrics.
    if scope["path"] == "/ops/health" and status == 503:
        level = "debug"  # an answer like any other: the state is logged when it changes
    elif status >= 500:
        level = "error"
    elif scope["method"] in ("GET", "HEAD") or status == 401:
        level = "debug"
    else:
        level = "info"
    getattr(log, level)(
        "request",
        method=scope["method"],
        path=shown_path(scope),
        status=status,
        ms=round(seconds * 1000, 2),
        source=(scope.get("client") or ("local",))[0],
    )
