"""``/ops/history``: the traffic of clients, targets and interfaces over time, the delays of nodes,
and the states of nodes, lines and groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.negotiation import CSV, wants_csv
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.fields import Text
from egressd.api.wire.history import (
    GroupHistory,
    GroupSpan,
    HistorySummary,
    LineHistory,
    LinesHistory,
    LineTimeline,
    NodeDelayRow,
    NodeHistory,
    NodePoint,
    NodeQuery,
    NodesHistory,
    PartSpan,
    RecordedKeys,
    SpanQuery,
    TopQuery,
    TopRow,
    TopTraffic,
    TrafficHistory,
    TrafficPoint,
    TrafficQuery,
)
from egressd.model.history import KEYS_MAX, STEPS, HistoryStep, StepName
from egressd.model.names import LineType
from egressd.model.timelines import StateSpan, seconds_of
from egressd.model.times import utc_text
from egressd.service.csv_text import as_csv

_NAMES: Final[dict[HistoryStep, StepName]] = {step: name for name, step in STEPS.items()}
_BYTES: Final[dict[str, Any]] = {"upload_bytes": 1_230_000, "download_bytes": 45_600_000}
_WINDOW: Final = {"from": "2026-11-19T22:58:40Z", "to": "2026-11-20T22:58:40Z"}

_UP: Final = {"up_s": 86_300, "down_s": 100}

NodeInPath = Annotated[Text, Path(alias="name", description="The name of a node.")]
GroupInPath = Annotated[Text, Path(alias="name", description="The name of a group.")]
NameInPath = Annotated[Text, Path(alias="name", description="The name of a line.")]
TypeInPath = Annotated[LineType, Path(alias="type", description="The type of a line.")]

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/history",
    "What the history holds",
    answer=HistorySummary,
    example={by: {"recorded": 12, "unrecorded": 0} for by in KEYS_MAX},
    scope="read",
)
async def history_summary(services: ServicesDep) -> Response:
    """Return the numbers of clients, targets, interfaces, nodes, lines and groups that this box has
    recorded.
    """
    state = services.history.questions.state()
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
    scope="read",
)
async def traffic_history(
    request: Request, query: Annotated[TrafficQuery, Query()], services: ServicesDep
) -> Response:
    """Slots of 1m are kept for 3 hours, of 15m for 3 days, of 1h for 31 days, and of 1d, which are
    days of UTC, for 2 years. A client is known by its rule's address.
    """
    start, end = query.window(services.history.questions.now())
    chosen = None if query.step is None else STEPS[query.step]
    step, points = await services.history.questions.traffic(query.by, query.key, start, end, chosen)
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
    scope="read",
)
async def top_traffic(
    request: Request, query: Annotated[TopQuery, Query()], services: ServicesDep
) -> Response:
    """Sums of slots of 15m for up to 6 hours, of 1h for up to 25 hours, and of 1d for up to 31
    days. Slots that have ended are rounded to three digits.
    """
    start, end = query.window(services.history.questions.now())
    found = await services.history.questions.top(query.by, start, end, query.limit)
    rows = [TopRow.of(each.name, each.exchanged) for each in found]
    if wants_csv(request.scope):
        return _csv("key", ((row.key, row.upload_bytes, row.download_bytes) for row in rows))
    return reply(TopTraffic(**_window(start, end), by=query.by, data=rows))


@router.get(
    "/history/nodes",
    "The delays of all nodes over time",
    answer=NodesHistory,
    example={
        **_WINDOW,
        "step": "1h",
        "slots": ["2026-11-20T21:00:00Z", "2026-11-20T22:00:00Z"],
        "data": [{"name": "hk-01", "delays": [87, None], "up_s": 3600, "down_s": 3520}],
    },
    scope="read",
)
async def nodes_history(query: Annotated[SpanQuery, Query()], services: ServicesDep) -> Response:
    """In slots of 1h for up to 25 hours, and of 1d for up to 31 days."""
    start, end = query.window(services.history.questions.now())
    step, starts, delays = await services.history.questions.delays_of_all(start, end)
    spans = await services.history.questions.states_of_all("node", start, end)
    found = [
        NodeDelayRow(name=name, delays=delays[name], **_up_time(spans.get(name, ()), start, end))
        for name in sorted(delays)
        if any(each is not None for each in delays[name]) or spans.get(name)
    ]
    return reply(
        NodesHistory(
            **_window(start, end),
            step=_NAMES[step],
            slots=[utc_text(at) for at in starts],
            data=found,
        )
    )


@router.get(
    "/history/nodes/{name}",
    "The delays and states of a node over time",
    answer=NodeHistory,
    example={
        **_WINDOW,
        "name": "hk-01",
        "step": "15m",
        "data": [{"at": "2026-11-20T22:45:00Z", "delay_ms": 87, "up_s": 700, "down_s": 120}],
        "states": [{**_WINDOW, "state": "up"}],
    },
    is_csv_too=True,
    scope="read",
)
async def node_history(
    request: Request, name: NodeInPath, query: Annotated[NodeQuery, Query()], services: ServicesDep
) -> Response:
    """The delays of a group's node are those of the group's checks; of other nodes those of the
    requests for exits. Slots are kept as those of traffic. CSV has the slots.
    """
    start, end = query.window(services.history.questions.now())
    chosen = None if query.step is None else STEPS[query.step]
    step, delays = await services.history.questions.delays(name, start, end, chosen)
    spans = await services.history.questions.states("node", name, step.start(start), end)
    points = [
        NodePoint(at=utc_text(at), delay_ms=ms, **_up_time(spans, at, at + step.seconds))
        for at, ms in delays.items()
    ]
    if wants_csv(request.scope):
        rows = (
            (each.at, "" if each.delay_ms is None else each.delay_ms, each.up_s, each.down_s)
            for each in points
        )
        return _table(("at", "delay_ms", "up_s", "down_s"), rows)
    return reply(
        NodeHistory(
            **_window(start, end),
            name=name,
            step=_NAMES[step],
            data=points,
            states=_part_spans(spans),
        )
    )


@router.get(
    "/history/lines",
    "The states of all lines over time",
    answer=LinesHistory,
    example={
        **_WINDOW,
        "data": [
            {"type": "l2tp", "name": "l2tp_tokyo", **_UP, "states": [{**_WINDOW, "state": "up"}]}
        ],
    },
    scope="read",
)
async def lines_history(query: Annotated[SpanQuery, Query()], services: ServicesDep) -> Response:
    """The states of each line that was enabled, for up to 31 days."""
    start, end = query.window(services.history.questions.now())
    found = []
    for name, spans in sorted(
        (await services.history.questions.states_of_all("line", start, end)).items()
    ):
        kind, _, line = name.partition("/")
        if spans:
            found.append(
                LineTimeline(
                    type=kind,
                    name=line,
                    states=_part_spans(spans),
                    **_up_time(spans, start, end),
                )
            )
    return reply(LinesHistory(**_window(start, end), data=found))


@router.get(
    "/history/lines/{type}/{name}",
    "The states of a line over time",
    answer=LineHistory,
    example={
        **_WINDOW,
        "type": "l2tp",
        "name": "l2tp_tokyo",
        **_UP,
        "states": [{**_WINDOW, "state": "up"}],
    },
    is_csv_too=True,
    scope="read",
)
async def line_history(
    request: Request,
    kind: TypeInPath,
    name: NameInPath,
    query: Annotated[SpanQuery, Query()],
    services: ServicesDep,
) -> Response:
    """CSV has the states."""
    start, end = query.window(services.history.questions.now())
    spans = await services.history.questions.states("line", f"{kind}/{name}", start, end)
    states = _part_spans(spans)
    up_s, down_s = seconds_of(spans, start, end)
    if wants_csv(request.scope):
        return _table(("from", "to", "state"), ((it.start, it.end, it.state) for it in states))
    return reply(
        LineHistory(
            **_window(start, end),
            type=kind,
            name=name,
            states=states,
            up_s=up_s,
            down_s=down_s,
        )
    )


@router.get(
    "/history/groups/{name}",
    "The states of a group over time, and the nodes that it has elected",
    answer=GroupHistory,
    example={
        **_WINDOW,
        "name": "hk",
        **_UP,
        "states": [{**_WINDOW, "state": "up", "node": "hk-01"}],
    },
    is_csv_too=True,
    scope="read",
)
async def group_history(
    request: Request, name: GroupInPath, query: Annotated[SpanQuery, Query()], services: ServicesDep
) -> Response:
    """The name is without `Group_`. CSV has the states."""
    start, end = query.window(services.history.questions.now())
    spans = await services.history.questions.states("group", name, start, end)
    up_s, down_s = seconds_of(spans, start, end)
    states = [
        GroupSpan(
            start=utc_text(span.start),
            end=utc_text(span.end),
            state=span.name,
            node=services.history.timelines.member(span),
        )
        for span in spans
    ]
    if wants_csv(request.scope):
        rows = ((it.start, it.end, it.state, it.node) for it in states)
        return _table(("from", "to", "state", "node"), rows)
    return reply(
        GroupHistory(**_window(start, end), name=name, states=states, up_s=up_s, down_s=down_s)
    )


def _window(start: int, end: int) -> dict[str, str]:
    return {"start": utc_text(start), "end": utc_text(end)}


def _up_time(spans: Iterable[StateSpan], start: int, end: int) -> dict[str, int]:
    up_s, down_s = seconds_of(spans, start, end)
    return {"up_s": up_s, "down_s": down_s}


def _part_spans(spans: Iterable[StateSpan]) -> list[PartSpan]:
    return [
        PartSpan(start=utc_text(span.start), end=utc_text(span.end), state=span.name)
        for span in spans
    ]


def _csv(first: str, rows: Iterable[Sequence[object]]) -> Response:
    return _table((first, "upload_bytes", "download_bytes"), rows)


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    return Response(
        as_csv(names, rows),
        headers={"cache-control": "no-store"},
        media_type=CSV,
    )
