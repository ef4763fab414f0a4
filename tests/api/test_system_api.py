from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egressd import __version__
from egressd.api.routes.system import duration
from egressd.model.messages import InterfaceStatus, Status

if TYPE_CHECKING:
    from tests.support.api_device import Device


def show(device: Device, *interfaces: tuple[str, str]) -> None:
    device.bench.netd.shown = Status(
        state="running",
        revision=0,
        interfaces=tuple(
            InterfaceStatus(name=name, ip=ip, is_up=True, role="") for name, ip in interfaces
        ),
        connections=12,
        memory=5000,
    )


async def test_the_status_has_the_specified_fields(device: Device) -> None:
    show(device)
    assert await device.answer("GET", "/system/status") == {
        "status": "running",
        "uptime": "1 minute, 33 seconds",
        "version": __version__,
        "hasAPIAccess": True,
        "connections": 12,
        "memory": 6000,
        "adMessage": "egressd",
    }


async def test_status_is_restoring_while_netd_is_away(device: Device) -> None:
    device.bench.netd.is_away = True
    answer = await device.answer("GET", "/system/status")
    assert answer["status"] == "restoring"


async def test_traffic_has_the_specified_fields(device: Device) -> None:
    show(device)
    answer = await device.answer("GET", "/system/traffic")
    assert answer == {"up": 0, "down": 0, "connections": 12, "memory": 6000}


async def test_interfaces_are_those_of_the_system_and_the_enabled_lines(device: Device) -> None:
    show(device, ("lan0", "10.0.0.1"), ("wan1", "203.0.113.20"), ("wan2", ""))
    for name in ("l2tp_1", "l2tp_2"):
        body = {"type": "l2tp", "name": name, "server": "a.example", "username": "u"}
        await device.answer("POST", "/vpn-lines", body | {"password": "p"})
    off = {"items": [{"type": "l2tp", "name": "l2tp_2"}], "is_enabled": False}
    await device.answer("PATCH", "/vpn-lines/status", off)
    answer = await device.answer("GET", "/system/interfaces")
    assert answer == {"interfaces": ["lan0", "wan1", "wan2", "l2tp_1"]}
    answer = await device.answer("GET", "/system/interfaces-with-ip")
    assert answer == {
        "interfaces": [
            {"name": "lan0", "ip": "10.0.0.1"},
            {"name": "wan1", "ip": "203.0.113.20"},
            {"name": "wan2", "ip": ""},
            {"name": "l2tp_1", "ip": ""},
        ]
    }


async def test_interfaces_without_netd_are_a_failure(device: Device) -> None:
    device.bench.netd.is_away = True
    response = await device.call("GET", "/system/interfaces")
    assert response.status_code == 500
    assert "netd" in response.json()["error"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (61, "1 minute, 1 second"),
        (3600, "1 hour"),
        (3605, "1 hour, 5 seconds"),
        (90_061, "1 day, 1 hour"),
        (1_000_000, "11 days, 13 hours"),
    ],
)
async def test_durations_have_two_units(seconds: int, text: str) -> None:
    assert duration(seconds) == text
