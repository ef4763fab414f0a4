"""The use cases as the api wires them: with its license, and with the resolvers of the moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path

import msgspec
import pytest

from egressd.app.config import Dns
from egressd.app.lease_files import LeaseFiles
from egressd.app.plan_keeper import keep_plan
from egressd.app.records import records_in
from egressd.app.resolvers import DeviceResolvers
from egressd.app.use_cases import UseCases
from egressd.app.vendors import IeeeVendors
from egressd.license.grants import Mode
from egressd.license.licensing import LicenseSettings, Licensing
from egressd.model.errors import Failed
from egressd.model.exits import EXIT_URL
from egressd.model.messages import DeviceNews, SeenNeighbour
from egressd.service.devices import DeviceEdit
from egressd.service.exits import ExitPolicy
from egressd.service.route_explanation import Question
from egressd.service.servers import ServerSurroundings
from egressd.store.console import ConsoleStore
from egressd.store.database import Database
from egressd.store.trial_calls import TrialCalls
from tests.support.drafts import line, rule
from tests.support.netd_double import NetdDouble
from tests.support.netns import eventually
from tests.support.use_cases import (
    RESOLVERS,
)


class Device:
    """An api without its sockets, with a double of netd."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.netd = NetdDouble()
        self.resolvers = RESOLVERS
        self.database = Database(folder)
        self.console_store = ConsoleStore(folder)
        self.cases = UseCases(
            self.database,
            self.netd,
            resolvers=lambda: self.resolvers,
            clock=lambda: "2026-11-20T22:00:00Z",
            licensing=Licensing(
                LicenseSettings(mode=mode, path=folder / "license"),
                device="",
                trial_calls=TrialCalls(folder),
            ),
            own_ports={},
            around=ServerSurroundings,
            records=records_in(folder, self.console_store),
            folder=folder,
            publish=lambda _: None,
            notify=lambda _: None,
            own_problems=lambda: (),
            change_took=lambda _: None,
            timed_backups=lambda: None,
            own_findings=lambda: (),
            exit_policy=ExitPolicy(url=EXIT_URL, interval_s=0),
            alert_problems=tuple,
            host="gw1",
            vendors=IeeeVendors([]),
            leases=LeaseFiles([]),
        )

    async def resolver(self, client: str) -> tuple[str, str]:
        """Return the resolver that answers a client, by its target's egress and by its
        explanation.
        """
        services = self.cases.services
        (target,) = [
            r.target_node for r in self.cases.ledger.state.rules.values() if r.host == client
        ]
        egress = self.netd.plan.egresses[target.removeprefix("Interface:")]
        told = await services.why.explain(Question(client=client, destination="192.0.2.9"))
        return egress.resolvers[0] if egress.resolvers else "", told.dns.server


OpenDevice = Callable[[Mode], AbstractAsyncContextManager[Device]]


@pytest.fixture
def opened(tmp_path: Path) -> OpenDevice:
    """Return an opener of a device with a rule to a WAN and one to a line with a DNS profile."""

    @asynccontextmanager
    async def open_device(mode: Mode) -> AsyncIterator[Device]:
        device = Device(tmp_path, mode)
        await device.database.open()
        try:
            await device.cases.ledger.load()
            await device.cases.ledger.resync()
            services = device.cases.services
            await services.lines.create(line("l2tp_1", dns_profile="outbound"))
            await services.rules.create(rule("10.0.0.1", "Interface:l2tp_1"))
            await services.rules.create(rule("10.0.0.2", "Interface:wan1"))
            yield device
        finally:
            await device.cases.ledger.close()
            await device.database.close()

    return open_device


async def test_the_dns_profile_of_a_line_applies_with_a_license(opened: OpenDevice) -> None:
    async with opened("off") as device:
        assert await device.resolver("10.0.0.1") == ("192.0.2.55", "192.0.2.55")


async def test_without_a_license_the_dns_profile_of_a_line_is_auto(opened: OpenDevice) -> None:
    async with opened("enforced") as device:
        assert await device.resolver("10.0.0.1") == ("", "what the line's peer hands out")


async def test_changed_resolvers_are_in_force_after_a_resync(opened: OpenDevice) -> None:
    async with opened("off") as device:
        assert await device.resolver("10.0.0.2") == ("192.0.2.53", "192.0.2.53")
        device.resolvers = msgspec.structs.replace(RESOLVERS, device=("192.0.2.63",))
        await device.cases.ledger.resync()
        assert await device.resolver("10.0.0.2") == ("192.0.2.63", "192.0.2.63")
        assert await device.resolver("10.0.0.1") == ("192.0.2.55", "192.0.2.55")


@asynccontextmanager
async def followed(device: Device) -> AsyncIterator[None]:
    """Keep the device's plan up to date during the block, as the api does."""
    named = DeviceResolvers(Dns(device=(IPv4Address("192.0.2.53"),)))
    following = asyncio.create_task(keep_plan(named, device.cases, device.database, 0.01))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait({following})


async def test_changed_resolvers_are_sent_again_after_a_refusal(opened: OpenDevice) -> None:
    async with opened("off") as device, followed(device):
        asked = len(device.netd.asked)
        device.netd.behaviour = ["refuse"]
        device.resolvers = msgspec.structs.replace(RESOLVERS, device=("192.0.2.63",))
        await eventually(lambda: len(device.netd.asked) == asked + 2)
        assert await device.resolver("10.0.0.2") == ("192.0.2.63", "192.0.2.63")
        assert device.cases.ledger.phase == "running"
        await asyncio.sleep(0.05)
        assert len(device.netd.asked) == asked + 2, "once it is in force there is nothing to say"


async def test_p3_a_failed_change_is_reverted_once_netd_is_back(opened: OpenDevice) -> None:
    """Past fault: a change that was answered with 500 on a full disk could stay in force until the
    next change, because nothing retried to take it back. The api retries every 10 s.
    """
    async with opened("off") as device:
        device.netd.behaviour = ["break"]
        with pytest.raises(Failed):
            await device.cases.services.settings.stop()
        assert device.cases.ledger.phase == "restoring"
        async with followed(device):
            await asyncio.sleep(0.05)
            device.netd.return_after_restart()
            await eventually(lambda: device.cases.ledger.phase == "running")


async def test_the_record_has_at_once_that_a_rule_followed_its_device(opened: OpenDevice) -> None:
    """Past fault: bindings had a record of their own, for which the list did not wait."""
    mac = "02:00:5e:00:53:01"
    async with opened("off") as device:
        services = device.cases.services
        await services.rules.create(rule("10.0.0.9", "DIRECT"))
        await services.devices.turn(0.0)
        for ip, age_s in (("10.0.0.9", 20), ("10.0.0.10", 5)):
            services.devices.take(DeviceNews((SeenNeighbour("lan0", ip, mac, age_s),)))
            if ip == "10.0.0.9":
                await services.devices.edit(mac, DeviceEdit(is_bound=True))
        await services.devices.turn(0.0)
        (latest,) = await services.journal.latest(1)
        await device.console_store.close()
        assert str(latest.text) == f"the rule of {mac} has followed it from 10.0.0.9 to 10.0.0.10"
