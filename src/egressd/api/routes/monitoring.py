"""``/ops``: health, metrics, events, and the documentation of all of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api import page
from egressd.api.endpoints import OPS_PREFIX, Endpoints
from egressd.api.events import Broadcast, EventListener, Pulse, Snapshots
from egressd.api.gate import caller_of
from egressd.api.metrics import CONTENT_TYPE, DeviceMetrics
from egressd.api.protocol import vouch_for
from egressd.api.services import Services
from egressd.api.wire.answers import reply
from egressd.api.wire.operations import EventsQuery
from egressd.api.wire.system import Health, RuleCounters, RuleTraffic
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
    snapshots = Snapshots(services.overviews.now)

    @endpoints.add(
        "GET",
        "/health",
        "Check that the stored configuration is in force",
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

    @endpoints.add(
        "GET",
        "/counters",
        "The traffic of each rule's clients",
        answer=RuleCounters,
        example={
            "data": {
                "192.168.8.21": {
                    "upload_bytes": 81203,
                    "upload_packets": 412,
                    "download_bytes": 9120311,
                    "download_packets": 6630,
                }
            }
        },
    )
    async def counters() -> Response:
        """Return the traffic of each enabled rule since it was enabled. Counts begin at zero again
        after a restart of the device.
        """
        counted = await services.system.counters()
        return reply(RuleCounters(data={ip: RuleTraffic.of(n) for ip, n in counted.items()}))

    @endpoints.add_text("/metrics", "Metrics for Prometheus", "text/plain")
    async def prometheus() -> Response:
        return Response(await metrics.scrape(), headers={"content-type": CONTENT_TYPE})

    @endpoints.add_text("/events", "What happens, as it happens", "text/event-stream")
    async def events(request: Request, query: Annotated[EventsQuery, Query()]) -> Response:
        """Server-sent events. Those without a name are JSON objects with topic, subject and text,
        and with code and values, which say the same for programs; those named `overview` are what
        `/ops/overview` answers, every few seconds.
        """
        caller, address = caller_of(request.scope), request.client and request.client.host

        def is_live() -> bool:
            if not caller.is_live():
                return False
            vouch_for(request.scope)  # the stream may be all that is heard of them for hours
            return True

        pulse = Pulse(query.overview, snapshots.read) if query.overview else None
        listener = EventListener(f"{caller.name} at {address}", is_live)
        return broadcast.response(request.scope, listener, pulse)

    @endpoints.add_text("/openapi.json", "This document", "application/json", is_open=True)
    async def openapi() -> Response:
        return Response(documentation.document, media_type="application/json")

    @endpoints.add_text("/docs", "This document as a page", "text/html", is_open=True)
    async def docs() -> Response:
        headers = {"content-security-policy": page.CONTENT_SECURITY_POLICY}
        return Response(documentation.page, headers=headers, media_type="text/html")
