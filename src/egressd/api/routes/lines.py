"""``/vpn-lines``."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.gate import hides_secrets
from egressd.api.lists import listing_of, send
from egressd.api.routers import Resource, Router
from egressd.api.wire.answers import Deleted, Said, Updated, reply
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
from egressd.api.wire.outcomes import created, done, import_done, many_deleted, many_switched
from egressd.model.names import LineType
from egressd.model.wording import say
from egressd.service.masking import masked_line

_LINE: Final = "line"
_BODY: Final[dict[str, Any]] = {
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
_ROW: Final = {"id": 2, **_BODY, "is_enabled": True, "is_online": True}
_KEYS: Final = [{"type": "l2tp", "name": "l2tp_tokyo"}]

TypeInPath = Annotated[LineType, Path(alias="type", description="The type of an existing line.")]
NameInPath = Annotated[Text, Path(alias="name", description="The name of an existing line.")]

router: Final = Router("VPN lines")
resource: Final = Resource(router, "/vpn-lines", _LINE, row=_ROW, body=_BODY)


@resource.list(LineRows)
async def list_lines(request: Request, services: ServicesDep) -> Response:
    """Passwords and secrets are masked for a token of scope `read`."""
    # Not kept by revision: whether a line is online changes by itself.
    is_masked = hides_secrets(request.scope)
    rows = (
        line_row(masked_line(line) if is_masked else line, status)
        for line, status in services.lines.list()
    )
    return send(request, listing_of(rows))


@resource.create()
async def create_line(body: LineCreate, services: ServicesDep) -> Response:
    return created(_LINE, await services.lines.create(body.draft()))


@router.put(
    "/vpn-lines/{type}/{name}",
    "Replace a line",
    body={**_BODY, "is_enabled": True},
    answer=Said,
    example={"msg": "line l2tp_tokyo saved"},
    refusal="there is no l2tp line l2tp_tokyo",
)
async def replace_line(
    kind: TypeInPath, name: NameInPath, body: LineReplace, services: ServicesDep
) -> Response:
    """Another name renames the line, and moves what refers to it. The type cannot change."""
    outcome = await services.lines.replace(kind, name, body.draft())
    text = say("saved", thing=_LINE, name=outcome.value.name)
    return reply(Said(msg=done(text, outcome.notes)))


@router.patch(
    "/vpn-lines/status",
    "Enable or disable several lines",
    body={"items": _KEYS, "is_enabled": False},
    answer=Updated,
    example={"msg": "1 line disabled", "updated": 1},
)
async def set_lines_status(body: LineStatusBatch, services: ServicesDep) -> Response:
    outcome = await services.lines.set_enabled_many(body.keys(), body.is_enabled)
    return many_switched(_LINE, outcome, body.is_enabled)


@router.delete(
    "/vpn-lines",
    "Delete several lines",
    body={"items": _KEYS},
    answer=Deleted,
    example={"msg": "1 line deleted", "deleted": 1},
)
async def delete_lines(body: LineKeys, services: ServicesDep) -> Response:
    return many_deleted(_LINE, await services.lines.delete_many(body.keys()))


@resource.import_rows(
    body={
        "type": "l2tp",
        "text": "vpn.example.com,1701,office,correct horse,battery staple,l2tp_tokyo,Tokyo",
        "autoLineName": False,
        "autoLineNameStartIndex": 1,
    },
    answer=LinesImported,
    example={"imported": 1, "skipped": 0, "errors": []},
)
async def import_lines(body: LineImport, services: ServicesDep) -> Response:
    """Rows; the port may be left out, and a comma separates.

    l2tp: `server,port,user,pass,secret,name,comment`.
    pptp: `server,port,user,pass,name,comment`.
    """
    outcome = await services.lines.import_rows(
        body.type,
        body.text,
        auto_name=body.auto_line_name,
        start_index=body.auto_line_name_start_index,
    )
    return reply(
        LinesImported(
            msg=import_done(_LINE, outcome),
            imported=outcome.imported,
            skipped=outcome.skipped,
            errors=list(outcome.errors),
        )
    )
