"""``/vpn-lines``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Path
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.endpoints import LARGE_BODY, Endpoints
from egressd.api.lists import listing_of, send
from egressd.api.services import Services
from egressd.api.wire.answers import (
    Deleted,
    Said,
    SaidId,
    Updated,
    done,
    import_done,
    reply,
    switched,
)
from egressd.api.wire.fields import Text
from egressd.api.wire.lines import (
    LineCreate,
    LineImport,
    LineKeys,
    LineReplace,
    LineRows,
    LinesImported,
    LineStatusBatch,
    line_row,
)
from egressd.model.names import LineType
from egressd.model.wording import say

_BODY: dict[str, Any] = {
    "type": "l2tp",
    "name": "l2tp_tokyo",
    "server": "vpn.example.com",
    "port": 1701,
    "username": "office",
    "password": "correct horse",
    "secret": "battery staple",
    "interface": "auto",
    "comment": "",
    "dns_profile": "custom",
    "dns_servers": ["1.1.1.1"],
}
_ROW = {"id": 2, **_BODY, "is_enabled": True, "is_online": True}
_KEYS = [{"type": "l2tp", "name": "l2tp_tokyo"}]

TypeInPath = Annotated[LineType, Path(alias="type", description="The type of an existing line.")]
NameInPath = Annotated[Text, Path(alias="name", description="The name of an existing line.")]


def add(app: FastAPI, services: Services) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "VPN lines")
    lines = services.lines

    @endpoints.add("GET", "/vpn-lines", "List lines", answer=LineRows, example={"data": [_ROW]})
    async def list_lines(request: Request) -> Response:
        # Not kept by revision: whether a line is online changes by itself.
        return send(request, listing_of(line_row(line, status) for line, status in lines.list()))

    @endpoints.add(
        "POST",
        "/vpn-lines",
        "Create a line",
        body=_BODY,
        answer=SaidId,
        example={"msg": "line l2tp_tokyo created", "id": 2},
    )
    async def create_line(body: LineCreate) -> Response:
        outcome = await lines.create(body.draft())
        line = outcome.value
        return reply(
            SaidId(
                msg=done(say("created", thing="line", name=line.name), outcome.notes), id=line.id
            )
        )

    @endpoints.add(
        "PUT",
        "/vpn-lines/{type}/{name}",
        "Replace a line",
        body={**_BODY, "is_enabled": True},
        answer=Said,
        example={"msg": "line l2tp_tokyo saved"},
        refusal="there is no l2tp line l2tp_tokyo",
    )
    async def replace_line(kind: TypeInPath, name: NameInPath, body: LineReplace) -> Response:
        """Another name renames the line, and moves what refers to it. The type cannot change."""
        outcome = await lines.replace(kind, name, body.draft())
        return reply(
            Said(msg=done(say("saved", thing="line", name=outcome.value.name), outcome.notes))
        )

    @endpoints.add(
        "PATCH",
        "/vpn-lines/status",
        "Enable or disable several lines",
        body={"items": _KEYS, "is_enabled": False},
        answer=Updated,
        example={"msg": "1 line disabled", "updated": 1},
    )
    async def set_lines_status(body: LineStatusBatch) -> Response:
        outcome = await lines.set_enabled_many(body.keys(), body.is_enabled)
        number = outcome.value
        msg = done(say(f"some-{switched(body.is_enabled)}", n=number, thing="line"), outcome.notes)
        return reply(Updated(msg=msg, updated=number))

    @endpoints.add(
        "DELETE",
        "/vpn-lines",
        "Delete several lines",
        body={"items": _KEYS},
        answer=Deleted,
        example={"msg": "1 line deleted", "deleted": 1},
    )
    async def delete_lines(body: LineKeys) -> Response:
        outcome = await lines.delete_many(body.keys())
        number = outcome.value
        msg = done(say("some-deleted", n=number, thing="line"), outcome.notes)
        return reply(Deleted(msg=msg, deleted=number))

    @endpoints.add(
        "POST",
        "/vpn-lines/import",
        "Import lines",
        body={
            "type": "l2tp",
            "text": "vpn.example.com,1701,office,correct horse,battery staple,l2tp_tokyo,Tokyo",
            "autoLineName": False,
            "autoLineNameStartIndex": 1,
        },
        body_max=LARGE_BODY,
        answer=LinesImported,
        example={"msg": "1 line imported, 0 skipped", "imported": 1, "skipped": 0, "errors": []},
    )
    async def import_lines(body: LineImport) -> Response:
        """Rows; the port may be left out, and a comma separates.

        l2tp: `server,port,user,pass,secret,name,comment`.
        pptp: `server,port,user,pass,name,comment`.
        """
        outcome = await lines.import_rows(
            body.type,
            body.text,
            auto_name=body.auto_line_name,
            start_index=body.auto_line_name_start_index,
        )
        return reply(
            LinesImported(
                msg=import_done("line", outcome),
                imported=outcome.imported,
                skipped=outcome.skipped,
                errors=list(outcome.errors),
            )
        )
