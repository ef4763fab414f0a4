"""``/proxy-services``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.gate import hides_secrets
from egressd.api.lists import send_cached
from egressd.api.routers import Resource, Router
from egressd.api.wire.answers import Imported, reply
from egressd.api.wire.bodies import Ids, StatusBatch, StatusUpdate, TextImport
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.outcomes import (
    created,
    deleted,
    done,
    imported,
    many_deleted,
    many_switched,
    saved,
    switched,
)
from egressd.api.wire.proxy_services import (
    ProxyServiceCreate,
    ProxyServiceReplace,
    ProxyServiceRow,
    ProxyServiceRows,
    ProxyServiceSwitched,
    Quota,
    proxy_service_row,
)
from egressd.model.wording import say
from egressd.service.masking import masked_service

_SERVICE: Final = "proxy service"
_BODY: Final[dict[str, Any]] = {
    "name": "scraper",
    "outbound_interface": "wan1",
    "port": 18080,
    "username": "office",
    "password": "correct horse",
    "is_enabled": True,
}
_ROW: Final = {"id": 5, **_BODY, "created_at": "2026-11-20T22:58:40Z"}
_IDS: Final = {"ids": [5, 6]}

router: Final = Router("Proxy services")
resource: Final = Resource(router, "/proxy-services", _SERVICE, row=_ROW, body=_BODY)


@router.get(
    "/proxy-services/quota",
    "The number of proxy services, and its limit",
    answer=Quota,
    example={"quota": 1000, "used": 1},
)
async def proxy_service_quota(services: ServicesDep) -> Response:
    quota, used = services.proxy_services.quota()
    return reply(Quota(quota=quota, used=used))


@resource.list(ProxyServiceRows)
async def list_proxy_services(request: Request, services: ServicesDep) -> Response:
    """Passwords are masked for a token of scope `read`."""
    revision, is_masked = services.ledger.revision, hides_secrets(request.scope)

    def rows() -> Iterator[ProxyServiceRow]:
        found = services.proxy_services.list()
        return map(proxy_service_row, map(masked_service, found) if is_masked else found)

    return send_cached(request, revision, rows, is_masked=is_masked)


@resource.create(refusal="all 1 proxy services that are allowed exist already")
async def create_proxy_service(body: ProxyServiceCreate, services: ServicesDep) -> Response:
    return created(_SERVICE, await services.proxy_services.create(body.draft()))


@resource.replace()
async def replace_proxy_service(
    service_id: IdInPath, body: ProxyServiceReplace, services: ServicesDep
) -> Response:
    return saved(_SERVICE, await services.proxy_services.replace(service_id, body.draft()))


@resource.switch(
    ProxyServiceSwitched,
    {"msg": "proxy service scraper disabled", "id": 5, "is_enabled": False},
)
async def set_proxy_service_status(
    service_id: IdInPath, body: StatusUpdate, services: ServicesDep
) -> Response:
    outcome = await services.proxy_services.set_enabled(service_id, body.is_enabled)
    found = outcome.value
    text = say(switched(found.is_enabled), thing=_SERVICE, name=found.name)
    return reply(
        ProxyServiceSwitched(
            msg=done(text, outcome.notes), id=service_id, is_enabled=found.is_enabled
        )
    )


@resource.delete()
async def delete_proxy_service(service_id: IdInPath, services: ServicesDep) -> Response:
    return deleted(_SERVICE, await services.proxy_services.delete(service_id))


@resource.delete_many(_IDS)
async def delete_proxy_services(body: Ids, services: ServicesDep) -> Response:
    return many_deleted(_SERVICE, await services.proxy_services.delete_many(body.ids))


@resource.switch_many(_IDS)
async def set_proxy_services_status(body: StatusBatch, services: ServicesDep) -> Response:
    outcome = await services.proxy_services.set_enabled_many(body.ids, body.is_enabled)
    return many_switched(_SERVICE, outcome, body.is_enabled)


@resource.import_rows(
    body={"text": "scraper,wan1,18080,office,correct horse\nwan2,18081", "replace": False},
    answer=Imported,
    example={"imported": 2, "skipped": 0},
)
async def import_proxy_services(body: TextImport, services: ServicesDep) -> Response:
    """Rows by their number of fields.

    5: `name,outbound_interface,port,username,password`.
    4: `outbound_interface,port,username,password`.
    3: `outbound_interface,port,username`.
    2: `outbound_interface,port`.
    """
    outcome = await services.proxy_services.import_rows(body.text, replace=body.replace)
    return imported(_SERVICE, outcome)
