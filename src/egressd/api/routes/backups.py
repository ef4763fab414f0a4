"""``/ops/backup`` and ``/ops/restore``: the whole configuration as a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, BinaryIO, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import Said, reply
from egressd.api.wire.operations import RestoreQuery
from egressd.api.wire.outcomes import done
from egressd.model.bounds import BACKUP_MAX
from egressd.model.wording import Sentence, say
from egressd.service.backups import Restored

BACKUP_TYPE: Final = "application/vnd.sqlite3"
"""As registered with IANA."""
_CHUNK: Final = 256 * 1024

router: Final = Router("Operations", OPS_PREFIX)


@router.get_text("/backup", "Everything that is configured, as a file", BACKUP_TYPE, scope="write")
async def backup(services: ServicesDep) -> Response:
    """As it is at one moment; changes go on meanwhile. It holds every password."""
    headers = {
        "cache-control": "no-store",
        "content-disposition": 'attachment; filename="egressd-backup.db"',
    }
    file = await services.backups.export()
    return StreamingResponse(_content(file), headers=headers, media_type=BACKUP_TYPE)


@router.post(
    "/restore",
    "Put a backup back",
    answer=Said,
    example={"msg": "backup restored: 12 rules, 5 nodes, 1 line, 0 proxy services"},
    body_type=BACKUP_TYPE,
    body_max=BACKUP_MAX,
    scope="admin",
)
async def restore(
    request: Request, query: Annotated[RestoreQuery, Query()], services: ServicesDep
) -> Response:
    """One change: all that is configured becomes what the file holds, and is in force when
    this is answered. Meanwhile the status is `restoring`. A file that is no backup, a newer
    egressd's, or says anything that the API would not take, is refused, and nothing changes;
    and so is one with more proxy services than the license allows (200 with `error`).
    """
    outcome = await services.backups.restore(request.stream(), older=query.older)
    return reply(Said(msg=done(_restored(outcome.value), outcome.notes)))


def _restored(found: Restored) -> Sentence:
    return say(
        "backup-restored",
        rules=found.rules,
        nodes=found.nodes,
        lines=found.lines,
        services=found.services,
    )


async def _content(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk
