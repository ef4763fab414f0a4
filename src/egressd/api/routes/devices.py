"""``/ops/devices``: the devices of LANs."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.lists import encoded, send, tags_of
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.devices import (
    DeviceAnswer,
    DeviceList,
    DevicesQuery,
    DeviceUpdate,
    IfMatch,
    MacInPath,
    SaidMac,
)
from egressd.model.wording import say
from egressd.service.devices import DeviceEdit

_MAC: Final = "02:00:5e:00:53:01"
_DEVICE: Final[dict[str, Any]] = {
    "mac": _MAC,
    "name": "",
    "hostname": "anna-phone",
    "vendor": "android-dhcp-13",
    "is_random_mac": True,
    "addresses": [{"ip": "192.168.8.21", "interface": "lan0", "last_seen": "2026-11-20T22:58:40Z"}],
    "first_seen": "2026-11-18T04:10:02Z",
    "last_seen": "2026-11-20T22:58:40Z",
    "is_online": True,
    "rule_id": 7,
    "covered_by": "",
    "tried": [],
    "is_bound": False,
    "comment": "",
}

_MISSING: Final = f"there is no device {_MAC}"

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/devices",
    "The devices of LANs",
    answer=DeviceList,
    example={"total": 1, "without_rule": 0, "data": [_DEVICE]},
    scope="read",
)
async def list_devices(
    request: Request, query: Annotated[DevicesQuery, Query()], services: ServicesDep
) -> Response:
    """Return what this box has seen of devices: by their addresses, their DHCP requests, and the
    leases of a DHCP server on it. If-None-Match is answered with 304 while nothing has changed.
    """
    found = await services.devices.list(query.limit, query.search)
    answer = DeviceList(total=found.total, without_rule=found.without_rule, data=found.rows)
    return send(request, encoded(answer))


@router.get(
    "/devices/{mac}",
    "A device",
    answer=DeviceAnswer,
    example=_DEVICE,
    refusal=_MISSING,
    scope="read",
)
async def show_device(mac: MacInPath, services: ServicesDep) -> Response:
    """The ETag is that of `name`, `comment` and `is_bound`, which alone can be changed here."""
    response = reply(services.devices.get(mac))
    response.headers["etag"] = services.devices.tag(mac)
    return response


@router.patch(
    "/devices/{mac}",
    "Name a device, or bind its rule to it",
    body={"name": "Anna's phone"},
    answer=SaidMac,
    example={"msg": "device Anna's phone saved", "mac": _MAC},
    refusal=_MISSING,
    is_conditional=True,
    scope="write",
)
async def edit_device(
    mac: MacInPath, body: DeviceUpdate, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """A device that has a name or a comment is never forgotten by itself. With `is_bound` the rule
    of its address belongs to it: it follows the device to another address, and packets that others
    send from the address are dropped. If-Match is answered with 412 if another has changed one of
    these meanwhile.
    """
    edit = DeviceEdit(body.name, body.comment, body.is_bound)
    await services.devices.edit(mac, edit, tags_of(if_match))
    device = services.devices.get(mac)
    response = reply(SaidMac(msg=say("device-saved", name=device.name or mac), mac=mac))
    response.headers["etag"] = services.devices.tag(mac)
    return response


@router.delete(
    "/devices/{mac}",
    "Forget a device",
    answer=SaidMac,
    example={"msg": f"device {_MAC} forgotten", "mac": _MAC},
    refusal=_MISSING,
    is_conditional=True,
    scope="write",
)
async def forget_device(mac: MacInPath, services: ServicesDep, if_match: IfMatch = "") -> Response:
    """Its rules stay. It is a new device if it is seen again."""
    await services.devices.forget(mac, tags_of(if_match))
    return reply(SaidMac(msg=say("device-forgotten", mac=mac), mac=mac))
