"""``/ops/changes``: the changes that were made, and undoing them."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.changes import (
    ChangeAnswer,
    Changes,
    ChangesQuery,
    RevisionInPath,
    UndoAnswer,
    UndoBody,
)
from egressd.api.wire.outcomes import done
from egressd.model.wording import NONE, say, together

_CHANGE: Final[dict[str, Any]] = {
    "at": "2026-11-20T22:58:40Z",
    "who": "session 1f2e3d4c",
    "source": "192.168.8.5",
    "what": "DELETE /svc/api/v1/rules/7",
    "text": "rule for 192.168.8.21 deleted",
    "revision": 812,
    "undone_by": 815,
    "can_undo": False,
}
_OBJECT: Final[dict[str, Any]] = {
    "kind": "rule",
    "id": 7,
    "name": "192.168.8.21",
    "action": "deleted",
    "fields": [{"name": "target_node", "before": "hk-01", "after": ""}],
}

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/changes",
    "Changes and their authors",
    answer=Changes,
    example={"data": [_CHANGE]},
    scope="read",
)
async def list_changes(query: Annotated[ChangesQuery, Query()], services: ServicesDep) -> Response:
    """The latest first. Of the configuration 1,000 are kept, each with its inverse, and as many
    that undo others; with those of passwords, tokens and the like this box keeps 2,000.
    """
    return reply(Changes(data=await services.undo.latest(query.limit)))


@router.get(
    "/changes/{revision}",
    "A change of the configuration",
    answer=ChangeAnswer,
    example={**_CHANGE, "total": 1, "objects": [_OBJECT]},
    has_statuses=True,
    scope="read",
)
async def show_change(revision: RevisionInPath, services: ServicesDep) -> Response:
    """Return it field by field. Secrets are `***`, the whole configuration of a node among them."""
    return reply(await services.undo.show(revision))


@router.post(
    "/changes/{revision}/undo",
    "Undo a change",
    body={"dry_run": False},
    answer=UndoAnswer,
    example={
        "msg": "change 812 undone: rule 192.168.8.21 created",
        "revision": 815,
        "total": 1,
        "objects": [{**_OBJECT, "action": "created"}],
        "notes": "",
    },
    has_statuses=True,
    scope="admin",
)
async def undo_change(revision: RevisionInPath, body: UndoBody, services: ServicesDep) -> Response:
    """Undoing is a change of its own, which can be undone. Objects get back the ids that they had.
    What later changes made of other fields stays. Status 409 says what stands in the way: a later
    change of the same fields, an object that is gone, a name that another object has by now.
    """
    undone = await services.undo.undo(revision, dry_run=body.dry_run)
    said = NONE
    if not body.dry_run:
        said = done(say("change-undone", revision=revision, text=undone.text), undone.notes)
    return reply(
        UndoAnswer(
            msg=said,
            revision=undone.revision,
            total=undone.total,
            objects=undone.objects,
            notes=together(undone.notes),
        )
    )
