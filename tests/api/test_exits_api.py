"""``/ops/exits``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from egressd.model.delays import Delay
from egressd.model.exits import EXIT_URL
from egressd.model.wording import say

if TYPE_CHECKING:
    from tests.support.api_device import Device

EXITS = "/ops/exits"
ASKS = {"accept": "application/problem+json"}


async def ask(device: Device, answer: Delay) -> None:
    device.bench.netd.delay_of = lambda _: answer
    await device.exits.ask_due(lambda: 0.0)


async def test_exits_are_those_of_targets_in_use(device: Device) -> None:
    empty = await device.client.get(EXITS)
    assert empty.json() == {"url": EXIT_URL, "check_interval_s": 900, "data": []}
    assert empty.headers["cache-control"] == "no-store"
    await device.call("POST", "/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"})
    await ask(device, Delay(delay=7, page=b"ip=203.0.113.7\nloc=JP\n"))
    (found,) = (await device.client.get(EXITS)).json()["data"]
    assert found == {
        "name": "DIRECT",
        "kind": "direct",
        "ip": "203.0.113.7",
        "country": "JP",
        "seen_at": "2026-11-20T22:58:40Z",
        "changed_at": "2026-11-20T22:58:40Z",
        "shared_with": [],
        "error": "",
        "error_coded": None,
    }


async def test_a_failure_is_a_sentence_and_a_code(device: Device) -> None:
    await device.call("POST", "/rules", {"ip": "10.0.0.6", "target_node": "Interface:wan1"})
    failure = say("timed-out-at", timeout=8000, stage=say("stage-connecting"))
    await ask(device, Delay(delay=-1, error=failure))
    (found,) = (await device.client.get(EXITS)).json()["data"]
    assert (found["name"], found["kind"], found["ip"]) == ("Interface:wan1", "wan", "")
    assert found["error"] == found["error_coded"]["text"] == failure
    assert found["error_coded"]["code"] == "timed-out-at"


async def test_strangers_are_refused_as_elsewhere(device: Device) -> None:
    stranger = device.client_at("192.0.2.9", None)
    assert (await stranger.get(EXITS)).status_code == 401
    refused = await stranger.get(EXITS, headers=ASKS)
    assert refused.headers["content-type"] == ASKS["accept"]
    assert (await device.client.post(EXITS, headers=ASKS)).json()["status"] == 404
