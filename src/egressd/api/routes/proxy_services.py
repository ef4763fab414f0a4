"""``/proxy-services``."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.endpoints import LARGE_BODY, Endpoints
from egressd.api.lists import CachedList, send
from egressd.api.services import Services
from egressd.api.wire.answers import (
    Deleted,
    Imported,
    SaidId,
    Updated,
    done,
    imported,
    reply,
    switched,
)
from egressd.api.wire.bodies import Ids, StatusBatch, StatusUpdate, TextImport
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.proxy_services import (
    ProxyServiceCreate,
    ProxyServiceReplace,
    ProxyServiceRows,
    ProxyServiceSwitched,
    Quota,
    proxy_service_row,
)
from egressd.model.wording import say

_BODY: dict[str, Any] = {
    "name": "scraper",
    "outbound_interface": "wan1",
    "port": 18080,
    "username": "office",
    "password": "correct horse",
    "is_enabled": True,
}
_ROW = {"id": 5, **_BODY, "created_at": "2026-11-20T22:58:40Z"}
_NOT_THERE = "there is no proxy service with the id 5"


def add(app: FastAPI, services: Services) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "Proxy services")
    proxies = services.proxy_services
    listed = CachedList()

    @endpoints.add(
        "GET",
        "/proxy-services/quota",
        "The number of proxy services, and its limit",
        answer=Quota,
        example={"quota": 1000, "used": 1},
    )
    async def proxy_service_quota() -> Response:
        quota, used = proxies.quota()
        return reply(Quota(quota=quota, used=used))

    @endpoints.add(
        "GET",
        "/proxy-services",
        "List proxy services",
        answer=ProxyServiceRows,
        example={"data": [_ROW]},
    )
    async def list_proxy_services(request: Request) -> Response:
        return send(
            request,
            listed.listing(
                services.ledger.revision, lambda: map(proxy_service_row, proxies.list())
            ),
        )

    @endpoints.add(
        "POST",
        "/proxy-services",
        "Create a proxy service",
        body=_BODY,
        answer=SaidId,
        example={"msg": "proxy service scraper created", "id": 5},
        refusal="all 1 proxy services that are allowed exist already",
    )
    async def create_proxy_service(body: ProxyServiceCreate) -> Response:
        outcome = await proxies.create(body.draft())
        made = outcome.value
        msg = done(say("created", thing="proxy service", name=made.name), outcome.notes)
        return reply(SaidId(msg=msg, id=made.id))

    @endpoints.add(
        "PUT",
        "/proxy-services/{id}",
        "Replace a proxy service",
        body=_BODY,
        answer=SaidId,
        example={"msg": "proxy service scraper saved", "id": 5},
        refusal=_NOT_THERE,
    )
    async def replace_proxy_service(service_id: IdInPath, body: ProxyServiceReplace) -> Response:
        outcome = await proxies.replace(service_id, body.draft())
        msg = done(say("saved", thing="proxy service", name=outcome.value.name), outcome.notes)
        return reply(SaidId(msg=msg, id=service_id))

    @endpoints.add(
        "PATCH",
        "/proxy-services/{id}/status",
        "Enable or disable a proxy service",
        body={"is_enabled": False},
        answer=ProxyServiceSwitched,
        example={"msg": "proxy service scraper disabled", "id": 5, "is_enabled": False},
        refusal=_NOT_THERE,
    )
    async def set_proxy_service_status(service_id: IdInPath, body: StatusUpdate) -> Response:
        outcome = await proxies.set_enabled(service_id, body.is_enabled)
        found = outcome.value
        text = say(switched(found.is_enabled), thing="proxy service", name=found.name)
        return reply(
            ProxyServiceSwitched(
                msg=done(text, outcome.notes), id=service_id, is_enabled=found.is_enabled
            )
        )

    @endpoints.add(
        "DELETE",
        "/proxy-services/{id}",
        "Delete a proxy service",
        answer=SaidId,
        example={"msg": "proxy service scraper deleted", "id": 5},
        refusal=_NOT_THERE,
    )
    async def delete_proxy_service(service_id: IdInPath) -> Response:
        outcome = await proxies.delete(service_id)
        msg = done(say("deleted", thing="proxy service", name=outcome.value.name), outcome.notes)
        return reply(SaidId(msg=msg, id=service_id))

    @endpoints.add(
        "DELETE",
        "/proxy-services/batch",
        "Delete several proxy services",
        body={"ids": [5, 6]},
        answer=Deleted,
        example={"msg": "2 proxy services deleted", "deleted": 2},
    )
    async def delete_proxy_services(body: Ids) -> Response:
        outcome = await proxies.delete_many(body.ids)
        number = outcome.value
        msg = done(say("some-deleted", n=number, thing="proxy service"), outcome.notes)
        return reply(Deleted(msg=msg, deleted=number))

    @endpoints.add(
        "PATCH",
        "/proxy-services/batch/status",
        "Enable or disable several proxy services",
        body={"ids": [5, 6], "is_enabled": True},
        answer=Updated,
        example={"msg": "2 proxy services enabled", "updated": 2},
    )
    async def set_proxy_services_status(body: StatusBatch) -> Response:
        outcome = await proxies.set_enabled_many(body.ids, body.is_enabled)
        number = outcome.value
        text = say(f"some-{switched(body.is_enabled)}", n=number, thing="proxy service")
        return reply(Updated(msg=done(text, outcome.notes), updated=number))

    @endpoints.add(
        "POST",
        "/proxy-services/import",
        "Import proxy services",
        body={"text": "scraper,wan1,18080,office,correct horse\nwan2,18081", "replace": False},
        body_max=LARGE_BODY,
        answer=Imported,
        example={"msg": "2 proxy services imported, 0 skipped", "imported": 2, "skipped": 0},
    )
    async def import_proxy_services(body: TextImport) -> Response:
        """Rows by their number of fields.

        5: `name,outbound_interface,port,username,password`.
        4: `outbound_interface,port,username,password`.
        3: `outbound_interface,port,username`.
        2: `outbound_interface,port`.
        """
        outcome = await proxies.import_rows(body.text, replace=body.replace)
        return reply(imported("proxy service", outcome))
