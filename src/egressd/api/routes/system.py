"""``/system``."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.responses import Response

from egressd import __version__
from egressd.api.endpoints import Endpoints
from egressd.api.services import Services
from egressd.api.wire.answers import reply
from egressd.api.wire.system import (
    InterfaceRow,
    Interfaces,
    InterfacesWithIp,
    SystemStatus,
    Traffic,
)

BRAND = "egressd"


def add(app: FastAPI, services: Services) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "System")
    system = services.system

    @endpoints.add(
        "GET",
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
    async def system_status() -> Response:
        status = await system.status()
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

    @endpoints.add(
        "GET",
        "/system/traffic",
        "Traffic counters",
        answer=Traffic,
        example={"up": 0, "down": 0, "connections": 1250, "memory": 134_217_728},
    )
    async def system_traffic() -> Response:
        status = await system.status()
        return reply(Traffic(up=0, down=0, connections=status.connections, memory=status.memory))

    @endpoints.add(
        "GET",
        "/system/interfaces",
        "Names of interfaces",
        answer=Interfaces,
        example={"interfaces": ["lan0", "wan1", "wan2", "l2tp_tokyo"]},
    )
    async def system_interfaces() -> Response:
        """The system's interfaces and the enabled lines, connected or not."""
        return reply(Interfaces(interfaces=list(await system.interfaces())))

    @endpoints.add(
        "GET",
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
    async def system_interfaces_with_ip() -> Response:
        rows = [InterfaceRow(name=name, ip=ip) for name, ip in await system.interfaces_with_ip()]
        return reply(InterfacesWithIp(interfaces=rows))


def duration(seconds: int) -> str:
    """``3 days, 4 hours``: the two largest units."""
    parts = []
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1)):
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}" if number == 1 else f"{number} {unit}s")
    return ", ".join(parts[:2]) or "0 seconds"
