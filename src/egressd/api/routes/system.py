"""``/system``."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from egressd import __version__
from egressd.api.dependencies import ServicesDep
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.system import (
    InterfaceRow,
    Interfaces,
    InterfacesWithIp,
    SystemStatus,
    Traffic,
)

BRAND = "egressd"

router: Final = Router("System")


@router.get(
    "/system/status",
    "The state of the device",
    answer=SystemStatus,
    example={
        "status": "running",
        "uptime": "3 days, 4 hours",
        "version": __version__,
        "hasAPIAccess": True,
        "connections": 1250,
        "memory": 134_217_728,
        "adMessage": BRAND,
    },
)
async def system_status(services: ServicesDep) -> Response:
    status = await services.system.status()
    return reply(
        SystemStatus(
            status=status.state,
            uptime=duration(status.uptime_s),
            version=__version__,
            has_api_access=status.has_api_access,
            connections=status.connections,
            memory=status.memory,
            ad_message=BRAND,
        )
    )


@router.get(
    "/system/traffic",
    "Traffic counters",
    answer=Traffic,
    example={"up": 0, "down": 0, "connections": 1250, "memory": 134_217_728},
)
async def system_traffic(services: ServicesDep) -> Response:
    status = await services.system.status()
    return reply(Traffic(up=0, down=0, connections=status.connections, memory=status.memory))


@router.get(
    "/system/interfaces",
    "Names of interfaces",
    answer=Interfaces,
    example={"interfaces": ["lan0", "wan1", "wan2", "l2tp_tokyo"]},
)
async def system_interfaces(services: ServicesDep) -> Response:
    """The system's interfaces and the enabled lines, connected or not."""
    return reply(Interfaces(interfaces=list(await services.system.interfaces())))


@router.get(
    "/system/interfaces-with-ip",
    "Interfaces and their addresses",
    answer=InterfacesWithIp,
    example={
        "interfaces": [
            {"name": "wan1", "ip": "203.0.113.20"},
            {"name": "l2tp_tokyo", "ip": ""},
        ]
    },
)
async def system_interfaces_with_ip(services: ServicesDep) -> Response:
    rows = [
        InterfaceRow(name=name, ip=ip) for name, ip in await services.system.interfaces_with_ip()
    ]
    return reply(InterfacesWithIp(interfaces=rows))


def duration(seconds: int) -> str:
    """``3 days, 4 hours``: the two largest units."""
    parts = []
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}" if number == 1 else f"{number} {unit}s")
    return ", ".join(parts[:2]) or "0 seconds"
