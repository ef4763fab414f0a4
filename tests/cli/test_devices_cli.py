"""``egressd devices``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from egressd.model.messages import DeviceNews, DhcpFrame, SeenNeighbour
from tests.support.dhcp import request

if TYPE_CHECKING:
    from tests.cli.shell import Shell

pytestmark = pytest.mark.slow

ANNA, TV = "02:00:5e:00:53:01", "02:00:5e:00:53:02"
AT = "2025-11-20T22:58:40Z"


async def test_devices_are_listed_shown_named_and_forgotten(shell: Shell) -> None:
    devices = shell.device.devices
    await devices.turn(0.0)
    frame = DhcpFrame("lan0", TV, request(TV, {12: b"tv\x1b[2J", 60: b"udhcp"}))
    seen = (SeenNeighbour("lan0", "10.0.0.5", ANNA, 0), SeenNeighbour("lan0", "10.0.0.6", TV, 0))
    devices.take(DeviceNews(seen, (frame,)))
    shell.say("rules", "add", "10.0.0.5", "DIRECT")
    assert shell.say("devices", "list").splitlines() == [
        f"{TV}\t10.0.0.6\ttv\tudhcp\t\tyes\t{AT}",
        f"{ANNA}\t10.0.0.5\t\t\t1\tyes\t{AT}",
    ]
    assert shell.say("devices", "list", "--without-rule").startswith(TV)
    assert "2 devices are known" in shell.run("devices", "list", "--limit", "1").stderr
    assert shell.json("devices", "list")["total"] == 2
    assert shell.say("devices", "name", ANNA, "Anna's phone") == "device Anna's phone saved\n"
    shown = shell.say("devices", "show", ANNA)
    assert f"10.0.0.5 lan0 {AT}" in shown
    assert shell.json("devices", "show", ANNA)["name"] == "Anna's phone"
    assert "there is no device" in shell.problem("devices", "show", "02:00:00:00:00:09")
    assert "must be a hardware address" in shell.problem("devices", "show", "x y")
    for act, is_bound in (("bind", True), ("unbind", False)):
        assert shell.say("devices", act, ANNA) == "device Anna's phone saved\n"
        assert shell.json("devices", "show", ANNA)["is_bound"] is is_bound
    assert "has no rule of its own" in shell.problem("devices", "bind", TV)
    assert shell.say("devices", "forget", ANNA) == f"device {ANNA} forgotten\n"
    assert shell.json("devices", "list")["total"] == 1
