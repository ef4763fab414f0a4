"""``/ops``: health, metrics, events, and the documentation of all of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api import page
from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.events import Broadcast, EventListener, LatestEvents, Pulse, Snapshots
from egressd.api.gate import NOT_ALLOWED, caller_of
from egressd.api.metrics import DeviceMetrics
from egressd.api.protocol import vouch_for
from egressd.api.refusals import refusal
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.operations import EventList, EventSeen, EventsQuery, LatestQuery
from egressd.api.wire.system import Health, RuleCounters, RuleTraffic
from egressd.model.errors import EgressdError
from egressd.model.times import utc_text
from egressd.model.wording import coded_values
from egressd.service.tokens import TokenCaller

_HEALTHY: Final = ("running", "stopped")
"""Stopped by an operator is as it should be."""


class Documentation:
    """The OpenAPI document and its page, as bytes, made when they are first asked for."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document

    @cached_property
    def document(self) -> bytes:
        """The document encoded."""
        return msgspec.json.encode(self._document())

    @cached_property
    def page(self) -> bytes:
        """The document rendered as a page."""
        return page.render(self._document())


@dataclass(frozen=True, kw_only=True)
class Monitoring:
    """The parts of an application that these endpoints show."""

    metrics: DeviceMetrics
    broadcast: Broadcast
    latest_events: LatestEvents
    snapshots: Snapshots
    documentation: Documentation


async def monitoring_of(request: Request) -> Monitoring:
    """Return the parts of the application that the request is for."""
    monitoring: Monitoring = request.app.state.monitoring
    return monitoring


MonitoringDep = Annotated[Monitoring, Depends(monitoring_of)]


router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/health",
    "Check that the stored configuration is in force",
    answer=Health,
    example={"status": "running"},
    is_open=True,
)
async def health(services: ServicesDep) -> Response:
    """Status 503 until it is, and while the data plane does not answer."""
    try:
        status = (await services.system.status()).state
    except EgressdError:
        status = "failed"
    return reply(Health(status=status), 200 if status in _HEALTHY else 503)


@router.get(
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
    scope="read",
)
async def counters(services: ServicesDep) -> Response:
    """Return the traffic of each enabled rule since it was enabled. Counts begin at zero again
    after a restart of the device.
    """
    counted = await services.system.counters()
    return reply(RuleCounters(data={ip: RuleTraffic.of(n) for ip, n in counted.items()}))


@router.get_text("/metrics", "Metrics for Prometheus", "text/plain", scope="metrics")
async def prometheus(request: Request, monitoring: MonitoringDep) -> Response:
    """In the text form of Prometheus, or of OpenMetrics where the header Accept asks for it."""
    scraped = await monitoring.metrics.scrape(request.headers.get("accept", ""))
    return Response(scraped.text, headers={"content-type": scraped.content_type})


@router.get_text("/events", "What happens, as it happens", "text/event-stream", scope="events")
async def events(
    request: Request, query: Annotated[EventsQuery, Query()], monitoring: MonitoringDep
) -> Response:
    """Server-sent events. Those without a name are JSON objects with topic, subject and text,
    and with code and values, which say the same for programs; those named `overview` are what
    `/ops/overview` answers, every few seconds: with a scope that covers it. The stream of a scoped
    token ends when the token does, by an event named `end` with text, code and values.
    """
    caller, address = caller_of(request.scope), request.client and request.client.host

    def is_live() -> bool:
        if not caller.is_live():
            return False
        vouch_for(request.scope)  # the stream may be all that is heard of them for hours
        return True

    every_s = query.overview if caller.may("read") else 0
    if query.overview != every_s and "overview" in request.query_params:
        return refusal(request.scope, NOT_ALLOWED, 403)
    pulse = Pulse(every_s, monitoring.snapshots.read) if every_s else None
    over = caller.over if isinstance(caller, TokenCaller) else None
    listener = EventListener(f"{caller.name} at {address}", is_live, over)
    return monitoring.broadcast.response(request.scope, listener, pulse)


@router.get(
    "/events/latest",
    "What has happened lately",
    answer=EventList,
    example={
        "data": [
            {
                "at": "2026-11-20T22:58:40Z",
                "topic": "line",
                "subject": "l2tp_office",
                "text": "l2tp_office is online",
                "code": "online",
                "values": {},
            }
        ]
    },
    scope="events",
)
async def latest_events(
    query: Annotated[LatestQuery, Query()], monitoring: MonitoringDep
) -> Response:
    """Return the latest events, the last one first. The box keeps 500 in memory, and none over a
    restart of the api.
    """
    rows = [
        EventSeen(
            at=utc_text(at),
            topic=event.topic,
            subject=event.subject,
            text=event.text,
            code=event.code,
            values=coded_values(event.values),
        )
        for at, event in monitoring.latest_events(query.limit)
    ]
    return reply(EventList(data=rows))


@router.get_text("/openapi.json", "This document", "application/json", is_open=True)
async def openapi(monitoring: MonitoringDep) -> Response:
    return Response(monitoring.documentation.document, media_type="application/json")


@router.get_text("/docs", "This document as a page", "text/html", is_open=True)
async def docs(monitoring: MonitoringDep) -> Response:
    headers = {"content-security-policy": page.CONTENT_SECURITY_POLICY}
    return Response(monitoring.documentation.page, headers=headers, media_type="text/html")
