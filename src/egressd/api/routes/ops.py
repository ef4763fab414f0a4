"""``/ops``: health, metrics, events, and the documentation of all of it."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from fastapi import FastAPI
from starlette.responses import Response

from egressd.api import page
from egressd.api.endpoints import OPS_PREFIX, Endpoints
from egressd.api.events import Broadcast
from egressd.api.metrics import CONTENT_TYPE, DeviceMetrics
from egressd.api.services import Services
from egressd.api.wire.answers import reply
from egressd.api.wire.system import Health
from egressd.model.errors import EgressdError

_HEALTHY: Final = ("running", "stopped")
"""Stopped by an operator is as it should be."""


class Documentation:
    """The OpenAPI document and its page, as bytes; set once all endpoints are declared."""

    def __init__(self) -> None:
        self.document = b""
        self.page = b""

    def publish(self, document: dict[str, Any]) -> None:
        """Serve this document from now on."""
        self.document = msgspec.json.encode(document)
        self.page = page.render(document)


def add(
    app: FastAPI,
    services: Services,
    *,
    metrics: DeviceMetrics,
    broadcast: Broadcast,
    documentation: Documentation,
) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "Operations", OPS_PREFIX)

    @endpoints.add(
        "GET",
        "/health",
        "Whether the stored configuration is in force",
        answer=Health,
        example={"status": "running"},
        is_open=True,
    )
    async def health() -> Response:
        """Status 503 until it is, and while the data plane does not answer."""
        try:
            status = (await services.system.status()).state
        except EgressdError:
            status = "failed"
        return reply(Health(status=status), 200 if status in _HEALTHY else 503)

    @endpoints.add_text("/metrics", "Metrics for Prometheus", "text/plain")
    async def prometheus() -> Response:
        return Response(await metrics.scrape(), headers={"content-type": CONTENT_TYPE})

    @endpoints.add_text("/events", "What happens, as it happens", "text/event-stream")
    async def events() -> Response:
        """Server-sent events; each is a JSON object with topic, subject and text."""
        return broadcast.response()

    @endpoints.add_text("/openapi.json", "This document", "application/json", is_open=True)
    async def openapi() -> Response:
        return Response(documentation.document, media_type="application/json")

    @endpoints.add_text("/docs", "This document as a page", "text/html", is_open=True)
    async def docs() -> Response:
        headers = {"content-security-policy": page.CONTENT_SECURITY_POLICY}
        return Response(documentation.page, headers=headers, media_type="text/html")
