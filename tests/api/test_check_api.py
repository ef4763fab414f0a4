"""``/ops/check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from egressd.model.errors import Failed
from tests.support.findings import NO_DHCP, NO_LAN, NO_PPTP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from egressd.model.findings import MachineFinding
    from tests.support.api_device import Device

CHECK = "/ops/check"
ASKS = {"accept": "application/problem+json"}


async def test_findings_have_cost_and_cure_as_text_and_for_programs(device: Device) -> None:
    device.bench.netd.lacking = (NO_DHCP, NO_PPTP)
    device.own_findings = lambda: (NO_LAN,)
    answer = await device.client.get(CHECK)
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    lan, pptp, dhcp = answer.json()["data"]
    assert [each["weight"] for each in (lan, pptp, dhcp)] == ["blocking", "limiting", "note"]
    assert dhcp["subject"] == "DHCP"
    assert pptp["text"] == "the kernel has no ppp_mppe, ppp_generic"
    assert pptp["text_coded"] == {
        "code": "modules-missing",
        "values": {"names": ["ppp_mppe", "ppp_generic"]},
        "text": pptp["text"],
    }
    for field in ("text", "cost", "cure"):
        assert lan[field] == lan[f"{field}_coded"]["text"] == getattr(NO_LAN, field)


async def test_a_machine_that_lacks_nothing_has_an_empty_list(device: Device) -> None:
    answer = await device.client.get(CHECK)
    assert answer.json() == {"data": []}


async def test_a_netd_that_is_away_is_reported_among_the_findings(device: Device) -> None:
    device.bench.netd.is_away = True
    answer = await device.client.get(CHECK)
    assert answer.status_code == 200
    (netd,) = answer.json()["data"]
    assert netd["text_coded"]["values"]["reason"]["text"] == "it is not running"


async def test_a_check_that_fails_is_a_problem_or_a_plain_error(device: Device) -> None:
    def fail() -> Sequence[MachineFinding]:
        raise Failed("see this machine's interfaces and disk", "no such file")

    device.own_findings = fail
    plain = await device.client.get(CHECK)
    coded = await device.client.get(CHECK, headers=ASKS)
    assert (plain.status_code, coded.status_code) == (500, 500)
    assert "no such file" in plain.json()["error"]
    assert coded.headers["content-type"] == ASKS["accept"]
    assert coded.json()["detail"] == plain.json()["error"]


async def test_strangers_are_refused_and_sessions_are_not(device: Device) -> None:
    stranger = device.client_at("192.0.2.9", None)
    assert (await stranger.get(CHECK)).status_code == 401
    refused = await stranger.get(CHECK, headers=ASKS)
    assert refused.json()["title"] == "Unauthorized"
    session = {"cookie": "session=1"}
    assert (await stranger.get(CHECK, headers=session)).status_code == 200
