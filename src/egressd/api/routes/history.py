"""``/ops/history``: the traffic of clients, targets and interfaces over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.negotiation import CSV, wants_csv
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.history import (
    HistorySummary,
    RecordedKeys,
    TopQuery,
    TopRow,
    TopTraffic,
    TrafficHistory,
    TrafficPoint,
    TrafficQuery,
)
from egressd.model.history import KEYS_MAX, STEPS, HistoryStep, StepName
from egressd.model.times import utc_text
from egressd.service.history import as_csv

_NAMES: Final[dict[HistoryStep, StepName]] = {step: name for name, step in STEPS.items()}
_BYTES: Final[dict[str, Any]] = {"upload_bytes": 1_230_000, "download_bytes": 45_600_000}
_WINDOW: Final = {"from": "2026-11-19T22:58:40Z", "to": "2026-11-20T22:58:40Z"}

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/history",
    "What the history of traffic holds",
    answer=HistorySummary,
    example={by: {"recorded": 12, "unrecorded": 0} for by in KEYS_MAX},
)
async def history_summary(services: ServicesDep) -> Response:
    """Return the numbers of clients, targets and interfaces that this box has recorded."""
    state = services.history.state()
    return reply(
        HistorySummary(
            **{
                by: RecordedKeys(recorded=state.keys[by], unrecorded=state.unrecorded[by])
                for by in KEYS_MAX
            }
        )
    )


@router.get(
    "/history/traffic",
    "The traffic of a client, a target or an interface over time",
    answer=TrafficHistory,
    example={
        **_WINDOW,
        "by": "client",
        "key": "192.168.8.21",
        "step": "15m",
        "data": [{"at": "2026-11-20T22:45:00Z", **_BYTES}],
    },
    is_csv_too=True,
)
async def traffic_history(
    request: Request, query: Annotated[TrafficQuery, Query()], services: ServicesDep
) -> Response:
    """Slots of 1m are kept for 3 hours, of 15m for 3 days, of 1h for 31 days, and of 1d, which are
    days of UTC, for 2 years. A client is known by its rule's address.
    """
    start, end = query.window(services.history.now())
    chosen = None if query.step is None else STEPS[query.step]
    step, points = await services.history.traffic(query.by, query.key, start, end, chosen)
    rows = [
        TrafficPoint(
            at=utc_text(point.start),
            upload_bytes=point.exchanged.upload,
            download_bytes=point.exchanged.download,
        )
        for point in points
    ]
    if wants_csv(request.scope):
        return _csv("at", ((row.at, row.upload_bytes, row.download_bytes) for row in rows))
    return reply(
        TrafficHistory(
            start=utc_text(start),
            end=utc_text(end),
            by=query.by,
            key=query.key,
            step=_NAMES[step],
            data=rows,
        )
    )


@router.get(
    "/history/top",
    "The clients, targets or interfaces with the most traffic",
    answer=TopTraffic,
    example={**_WINDOW, "by": "client", "data": [{"key": "192.168.8.21", **_BYTES}]},
    is_csv_too=True,
)
async def top_traffic(
    request: Request, query: Annotated[TopQuery, Query()], services: ServicesDep
) -> Response:
    """Sums of slots of 15m for up to 6 hours, of 1h for up to 25 hours, and of 1d for up to 31
    days. Slots that have ended are rounded to three digits.
    """
    start, end = query.window(services.history.now())
    found = await services.history.top(query.by, start, end, query.limit)
    rows = [TopRow.of(each.name, each.exchanged) for each in found]
    if wants_csv(request.scope):
        return _csv("key", ((row.key, row.upload_bytes, row.download_bytes) for row in rows))
    window = {"start": utc_text(start), "end": utc_text(end)}
    return reply(TopTraffic(**window, by=query.by, data=rows))


def _csv(first: str, rows: Iterable[Sequence[object]]) -> Response:
    return Response(
        as_csv((first, "upload_bytes", "download_bytes"), rows),
        headers={"cache-control": "no-store"},
        media_type=CSV,
    )
