"""The use cases of proxy services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.errors import Invalid, Missing, OverQuota
from egressd.model.faults import fault

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


async def test_a_service_is_stored(bench: Bench, make: Make) -> None:
    draft = make.service(username="u", password="p", is_enabled=False)
    service = (await bench.services.create(draft)).value
    assert (service.id, service.name, service.port, service.is_enabled) == (
        1,
        "office",
        8080,
        False,
    )
    assert service.created_at == "2026-11-20T22:00:00Z"
    assert bench.services.list() == [service]
    assert bench.services.quota() == (10, 1)
    await bench.agree()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "name must have 1 to 64"),
        ({"name": "n" * 65}, "name must have 1 to 64"),
        ({"name": "a\nb"}, "name must not contain control"),
        ({"outbound_interface": "Interface:wan1"}, "outbound_interface must be a bare"),
        ({"outbound_interface": ""}, "outbound_interface must be an interface name"),
        ({"outbound_interface": "wan 1"}, "outbound_interface must be an interface name"),
        ({"port": 0}, "port must be a whole number from 1 to 65535"),
        ({"port": 65536}, "port must be a whole number from 1 to 65535"),
        ({"username": "a:b"}, "username must not contain a colon"),
        ({"username": "u" * 256}, "username must have at most 255 bytes"),
        ({"password": "p"}, "username must not be empty when a password"),
        ({"username": "u", "password": "\r"}, "password must not contain control"),
    ],
)
async def test_an_invalid_field_is_reported(
    bench: Bench, make: Make, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Invalid, match=problem):
        await bench.services.create(make.service(**fields))


@pytest.mark.parametrize(
    ("port", "reason"),
    [
        (22, "SSH"),
        (53, "DNS"),
        (67, "DHCP"),
        (68, "DHCP"),
        (123, "NTP"),
        (500, "IPsec"),
        (1701, "L2TP"),
        (1723, "PPTP"),
        (4500, "IPsec"),
        (8787, "the API"),
        (8788, "the console"),
        (20_000, "the engine"),
        (29_999, "the engine"),
        (16_896, "VPN lines"),
        (17_151, "VPN lines"),
    ],
)
async def test_a_reserved_port_is_refused_with_its_reason(
    bench: Bench, make: Make, port: int, reason: str
) -> None:
    with pytest.raises(Invalid, match=f"port must not be .* {port} is for {reason}"):
        await bench.services.create(make.service(port=port))
    await bench.services.create(make.service(port=port + 30_001))


async def test_names_and_ports_are_unique(bench: Bench, make: Make) -> None:
    first = (await bench.services.create(make.service("a", port=8001))).value
    await bench.services.create(make.service("b", port=8002, is_enabled=False))
    with pytest.raises(Invalid) as refused:
        await bench.services.create(make.service("a", port=8002))
    assert refused.value.faults == (
        fault("name", "name-taken", thing="proxy service", name="a"),
        fault("port", "port-in-use", user="the proxy service b", port=8002),
    )
    with pytest.raises(Invalid, match="port must be free"):
        await bench.services.replace(first.id, make.service("a", port=8002))
    await bench.services.replace(first.id, make.service("a", port=8001, username="u"))
    await bench.agree()


async def test_a_port_of_another_program_is_refused(bench: Bench, make: Make) -> None:
    told = "port must be free: another program listens on 8001"
    off = (await bench.services.create(make.service("a", port=8001, is_enabled=False))).value
    on = (await bench.services.create(make.service("b", port=8002))).value
    bench.foreign_ports = {8001, 8003}
    with pytest.raises(Invalid, match=told):
        await bench.services.set_enabled(off.id, True)
    with pytest.raises(Invalid, match=told):
        await bench.services.set_enabled_many([off.id, on.id], True)
    with pytest.raises(Invalid, match="another program listens on 8003"):
        await bench.services.create(make.service("c", port=8003))
    with pytest.raises(Invalid, match="another program listens on 8003"):
        await bench.services.replace(on.id, make.service("b", port=8003))
    outcome = await bench.services.import_rows("wan1,8003\nwan1,8002\nwan1,8004", replace=True)
    assert outcome.errors == ("line 1: port must be free: another program listens on 8003",)
    assert [service.port for service in bench.services.list()] == [8002, 8004]
    await bench.agree()


async def test_a_service_may_keep_its_own_port(bench: Bench, make: Make) -> None:
    service = (await bench.services.create(make.service("a", port=8001))).value
    await bench.services.replace(service.id, make.service("a", port=8001, username="u"))
    await bench.services.set_enabled(service.id, True)
    await bench.services.set_enabled_many([service.id], True)
    await bench.agree()


async def test_the_quota_limits_the_number_of_services(bench: Bench, make: Make) -> None:
    bench.quota = 1
    first = (await bench.services.create(make.service("a", port=8001, is_enabled=False))).value
    with pytest.raises(OverQuota, match="all 1 proxy services that are allowed exist"):
        await bench.services.create(make.service("b", port=8002))
    bench.quota = 0
    await bench.services.set_enabled(first.id, True)
    await bench.services.replace(first.id, make.service("c", port=8003))
    assert bench.services.quota() == (0, 1)


async def test_services_are_changed_and_deleted(bench: Bench, make: Make) -> None:
    made = [
        (await bench.services.create(make.service(n, port=8000 + i))).value
        for i, n in enumerate("abc")
    ]
    ids = [service.id for service in made]
    assert not (await bench.services.set_enabled(ids[0], False)).value.is_enabled
    assert (await bench.services.set_enabled_many([*ids, ids[0], 99], False)).value == 3
    assert not any(service.is_enabled for service in bench.services.list())
    assert (await bench.services.delete(ids[0])).value.name == "a"
    assert (await bench.services.delete_many([*ids, 99])).value == 2
    assert bench.services.list() == []
    assert (await bench.services.create(make.service())).value.id == 4
    await bench.agree()


async def test_a_missing_service_is_an_error(bench: Bench, make: Make) -> None:
    for call in (
        bench.services.replace(9, make.service()),
        bench.services.set_enabled(9, True),
        bench.services.delete(9),
    ):
        with pytest.raises(Missing, match="no proxy service with the id 9"):
            await call


ROWS = """
office,wan1,8001,u,p
wan1,8002,u,p
wan1,8003,u
wan1,8004
wan1,22
wan1,8001
office,wan1,8005,u,p
"""


async def test_an_import_takes_valid_rows_only(bench: Bench) -> None:
    outcome = await bench.services.import_rows(ROWS, replace=False)
    assert (outcome.imported, outcome.skipped, outcome.error_count) == (4, 3, 2)
    assert "SSH" in outcome.errors[0]
    assert "port must be free: the proxy service office listens on 8001" in outcome.errors[1]
    named = {service.name: service.username for service in bench.services.list()}
    assert named == {"office": "u", "wan1:8002": "u", "wan1:8003": "u", "wan1:8004": ""}
    await bench.agree()


async def test_an_import_stops_at_the_quota(bench: Bench, make: Make) -> None:
    await bench.services.create(make.service("a", port=9000))
    bench.quota = 3
    outcome = await bench.services.import_rows(ROWS, replace=False)
    assert (outcome.imported, outcome.skipped) == (2, 5)
    assert "all 3 proxy services" in outcome.errors[0]
    outcome = await bench.services.import_rows(ROWS, replace=True)
    assert (outcome.imported, outcome.skipped) == (3, 4)
    assert [service.name for service in bench.services.list()] == [
        "office",
        "wan1:8002",
        "wan1:8003",
    ]
    await bench.agree()


async def test_a_missing_line_as_egress_is_reported(bench: Bench, make: Make) -> None:
    outcome = await bench.services.create(make.service(outbound_interface="l2tp_1"))
    assert outcome.notes == ("1 proxy service does not work, as there is no line l2tp_1",)


async def test_a_replacing_import_keeps_the_ids_of_remaining_services(
    bench: Bench, make: Make
) -> None:
    kept = (await bench.services.create(make.service("office", port=8001))).value
    await bench.services.create(make.service("b", port=8002))
    bench.clock.tick()
    await bench.services.import_rows("office,wan2,8002,u,p", replace=True)
    (service,) = bench.services.list()
    assert (service.id, service.created_at) == (kept.id, kept.created_at)
    assert (service.outbound_interface, service.port) == ("wan2", 8002)
    outcome = await bench.services.import_rows("<html>", replace=True)
    assert outcome.notes == ("nothing was replaced, since no row could be used",)
    assert bench.services.list() == [service]
    await bench.agree()
