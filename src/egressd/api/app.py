"""The application: everything put together, once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from egressd import __version__
from egressd.api import document, faults
from egressd.api.endpoints import EndpointTable, FoundRoute
from egressd.api.events import Broadcast, EventSource, LatestEvents, Snapshots
from egressd.api.gate import Access, Gate
from egressd.api.metrics import DeviceMetrics
from egressd.api.observe import Observe, RequestMetrics
from egressd.api.problems import Problems
from egressd.api.record import Record
from egressd.api.routes import (
    alerts,
    backups,
    changes,
    check,
    connections,
    devices,
    exits,
    groups,
    history,
    inspection,
    lines,
    members,
    monitoring,
    nodes,
    objects,
    previews,
    proxy_services,
    rotations,
    rules,
    settings,
    subscriptions,
    system,
    tokens,
    trials,
    whitelist,
    wireguard_keys,
)
from egressd.api.services import Services
from egressd.api.wire.answers import failure

ROUTERS: Final = (
    system.router,
    nodes.router,
    nodes.operations,
    lines.router,
    rules.router,
    rules.operations,
    whitelist.router,
    whitelist.operations,
    proxy_services.router,
    objects.router,
    backups.router,
    inspection.router,
    changes.router,
    trials.router,
    check.router,
    history.router,
    devices.router,
    connections.router,
    exits.router,
    groups.router,
    rotations.router,
    subscriptions.router,
    alerts.router,
    wireguard_keys.router,
    members.router,
    settings.router,
    tokens.router,
    previews.router,
    monitoring.router,
)
"""The routers of all resources, in the order of the OpenAPI document."""


async def nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 404 outside of the API; without a console this serves all other paths."""
    await failure("there is nothing here", 404)(scope, receive, send)


def create_app(
    services: Services,
    *,
    access: Access,
    events: EventSource,
    latest_events: LatestEvents,
    other: ASGIApp = nothing_else,
    engine: str = "",
    measured: Iterable[Collector] = (),
) -> ASGIApp:
    """The ASGI application.

    `events` opens a stream of what happens on the device, and `latest_events` returns what has
    happened. `other` gets the requests that are
    neither the API's nor the operations endpoints': the console. `engine` is the engine's version,
    and `measured` are metrics besides the device's and its requests'.
    """
    app = FastAPI(
        title="egressd",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.services = services
    app.state.kept = {}
    endpoints = [endpoint for router in ROUTERS for endpoint in router.endpoints]
    app.router.routes.append(FoundRoute())
    registry = CollectorRegistry()
    for collector in measured:
        registry.register(collector)
    # Made when it is first needed: that takes 0.2 s, and most devices are never asked for it.
    described = cache(partial(document.build, app, endpoints))
    app.state.monitoring = monitoring.Monitoring(
        metrics=DeviceMetrics(registry, services, engine),
        broadcast=Broadcast(events),
        latest_events=latest_events,
        snapshots=Snapshots(services.overviews.now),
        documentation=monitoring.Documentation(described),
    )
    faults.install(app, Problems(described))
    # Built now: FastAPI would do it at the first request.
    app.middleware_stack = app.build_middleware_stack()
    recorded = Record(app, services.journal)
    gate = Gate(recorded, access=access, endpoints=EndpointTable(endpoints), other=other)
    return Observe(gate, RequestMetrics(registry))
