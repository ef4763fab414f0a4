"""The use cases of the device as a whole: whitelist, settings, system."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from egressd.model.errors import Failed, Invalid
from egressd.model.faults import fault
from egressd.model.messages import Status
from egressd.model.nouns import Settings, Whitelist

SCHEMES = ("http://", "https://", "quic://")

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


async def test_the_whitelist_is_stored_unchanged(bench: Bench) -> None:
    assert bench.whitelist.get() == Whitelist()
    await bench.add_node("tokyo", group="asia")
    domains, ips = "*.Example.com,\nquic://example.org:8443", "192.0.2.1\n198.51.100.0/24"
    for node in ("tokyo", "Group_asia", "DIRECT"):
        outcome = await bench.whitelist.put(domains, ips, node)
        assert (
            outcome.value == bench.whitelist.get() == Whitelist(domains=domains, ips=ips, node=node)
        )
        await bench.agree()
    await bench.whitelist.put("", "", "DIRECT")
    await bench.agree()


@pytest.mark.parametrize("node", ["", "REJECT", "Interface:wan1", "nobody", "Group_none", "direct"])
async def test_the_whitelists_destination_is_direct_a_node_or_a_group(
    bench: Bench, node: str
) -> None:
    with pytest.raises(Invalid, match="node must be DIRECT, a node's name or Group_"):
        await bench.whitelist.put("example.com", "", node)


async def test_every_invalid_entry_is_reported(bench: Bench) -> None:
    with pytest.raises(Invalid) as refused:
        await bench.whitelist.put("ftp://a.example, b c", "10.0.0.1/8\n::1", "x")
    assert refused.value.faults == (
        fault("domains", "entry-scheme", entry="ftp://a.example", schemes=SCHEMES),
        fault("domains", "entry-domain", entry="b c"),
        fault("ips", "entry-host-bits", entry="10.0.0.1/8", network="10.0.0.0/8"),
        fault("ips", "entry-ipv6", entry="::1"),
        fault("node", "whitelist-target-missing", given="x"),
    )
    assert bench.whitelist.get() == Whitelist()


async def test_inactive_domain_entries_are_reported(bench: Bench) -> None:
    await bench.settings.put(Settings(sniff_domains=False))
    told = (await bench.whitelist.put("a.test, https://b.test:8443", "192.0.2.1", "DIRECT")).notes
    assert told == ("2 domain entries are inactive, as domain recognition is switched off",)
    assert (await bench.whitelist.put("", "192.0.2.1", "DIRECT")).notes == ()
    told = (await bench.whitelist.put("a.test", "", "DIRECT")).notes
    assert told == ("1 domain entry is inactive, as domain recognition is switched off",)
    assert (await bench.settings.put(Settings())).notes == ()
    assert (await bench.settings.put(Settings(sniff_domains=False))).notes == told
    await bench.agree()


async def test_settings_are_saved(bench: Bench) -> None:
    assert bench.settings.get() == Settings()
    await bench.add_node("tokyo")
    wanted = Settings(
        unmanaged="tokyo",
        delay_url="http://example.com/x",
        check_interval_s=60,
        group_strategy="sticky",
        sniff_domains=False,
    )
    assert (await bench.settings.put(wanted)).value == wanted
    assert bench.settings.get() == wanted
    await bench.agree()


async def test_saving_settings_does_not_start_or_open_the_device(bench: Bench) -> None:
    await bench.settings.stop()
    await bench.settings.put(Settings(check_interval_s=60, opened=True))
    assert bench.settings.get() == Settings(check_interval_s=60, stopped=True)
    await bench.settings.open()
    await bench.settings.put(Settings())
    assert bench.settings.get() == Settings(opened=True)
    assert (await bench.system.status()).state == "stopped"
    await bench.settings.start()
    assert bench.settings.get() == Settings()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"unmanaged": "nobody"}, "unmanaged must be"),
        ({"delay_url": "gopher://x"}, "delay_url must be"),
        ({"check_interval_s": 4}, "check_interval_s must be"),
        ({"check_interval_s": 3601}, "check_interval_s must be"),
        ({"group_strategy": "random"}, "group_strategy must be one of"),
    ],
)
async def test_an_invalid_setting_is_reported(
    bench: Bench, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Invalid, match=problem):
        await bench.settings.put(msgspec.structs.replace(Settings(), **fields))
    assert bench.settings.get() == Settings()


async def test_the_status_shows_uptime_connections_and_memory(
    bench: Bench, interfaces: Callable[..., Status]
) -> None:
    bench.netd.shown = interfaces({}, {})
    status = await bench.system.status()
    assert (status.state, status.uptime_s, status.has_api_access) == ("running", 93, True)
    assert (status.connections, status.memory) == (7, 6000)
    await bench.settings.stop()
    assert (await bench.system.status()).state == "stopped"


async def test_the_status_is_restoring_if_netd_is_restoring_or_away(bench: Bench) -> None:
    bench.netd.shown = Status(state="restoring", revision=0)
    assert (await bench.system.status()).state == "restoring"
    bench.netd.is_away = True
    status = await bench.system.status()
    assert (status.state, status.connections, status.memory) == ("restoring", 0, 1000)


async def test_interfaces_are_those_of_the_system_and_the_enabled_lines(
    bench: Bench, make: Make, interfaces: Callable[..., Status]
) -> None:
    for name in ("l2tp_1", "l2tp_2", "pptp_1"):
        await bench.lines.create(make.line(name))
    await bench.lines.set_enabled_many([("l2tp", "l2tp_2")], False)
    bench.netd.shown = interfaces({"lan0": "10.0.0.1", "wan1": "", "l2tp_1": "192.0.2.9"}, {})
    assert await bench.system.interfaces_with_ip() == [
        ("lan0", "10.0.0.1"),
        ("wan1", ""),
        ("l2tp_1", "192.0.2.9"),
        ("pptp_1", ""),
    ]
    assert await bench.system.interfaces() == ["lan0", "wan1", "l2tp_1", "pptp_1"]
    bench.netd.is_away = True
    with pytest.raises(Failed, match="not running"):
        await bench.system.interfaces()
