"""The use cases of VPN lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.errors import Invalid, Missing
from egressd.model.faults import fault
from egressd.model.messages import LineStatus, Status
from egressd.model.nouns import Line, Settings

if TYPE_CHECKING:
    from tests.support.drafts import Make
    from tests.support.use_cases import Bench


async def listed(bench: Bench) -> list[Line]:
    return [line for line, _ in bench.lines.list()]


async def test_a_line_gets_the_defaults_of_its_type(bench: Bench, make: Make) -> None:
    l2tp = (await bench.lines.create(make.line("l2tp_1", server="VPN.Example.NET"))).value
    pptp = (await bench.lines.create(make.line("pptp_1", secret="ignored"))).value
    assert (l2tp.id, l2tp.port, l2tp.server, l2tp.interface) == (1, 1701, "vpn.example.net", "auto")
    assert (pptp.id, pptp.port, pptp.secret, pptp.is_enabled) == (2, 1723, "", True)
    assert list(bench.netd.plan.lines) == ["l2tp_1", "pptp_1"]
    await bench.agree()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"type": "wireguard"}, "type must be one of l2tp, pptp"),
        ({"type": "pptp"}, "name must begin with pptp_"),
        ({"name": "tokyo", "type": "l2tp"}, "name must begin with l2tp_"),
        ({"name": "l2tp_"}, "name must begin with l2tp_"),
        ({"name": "l2tp_1234567890a"}, "at most 15 characters"),
        ({"name": "l2tp_a b"}, "go on with letters, digits"),
        ({"server": ""}, "server must be"),
        ({"server": "vpn example"}, "server must be"),
        ({"server": "2001:db8::1"}, "server must be an IPv4 address"),
        ({"server": "-oProxyCommand=x"}, "server must be"),
        ({"server": "$(reboot)"}, "server must be"),
        ({"port": -1}, "port must be"),
        ({"port": 65536}, "port must be"),
        ({"username": ""}, "username must not be empty"),
        ({"username": "a\nplugin x"}, "username must not contain control"),
        ({"password": "a\x00"}, "password must not contain control"),
        ({"password": "p" * 256}, "password must have at most 255 bytes"),
        ({"password": "密" * 86}, "password must have at most 255 bytes"),
        ({"password": "@/etc/shadow"}, "password must not begin with @/"),
        ({"secret": "@/etc/shadow"}, "secret must not begin with @/"),
        ({"interface": "Interface:wan1"}, "interface must be a bare interface name"),
        ({"interface": ""}, "interface must be an interface name"),
        ({"interface": "l2tp_1"}, "interface must not lead in a circle: l2tp_1 -> l2tp_1"),
        ({"comment": "c" * 1025}, "comment must have at most 1024"),
        ({"dns_profile": "fast"}, "dns_profile must be one of"),
        ({"dns_profile": "custom"}, "dns_servers must not be empty"),
        ({"dns_servers": ("dns.example",)}, "dns_servers must be"),
    ],
)
async def test_an_invalid_field_is_reported(
    bench: Bench, make: Make, fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Invalid, match=problem):
        await bench.lines.create(make.line(**fields))
    assert await listed(bench) == []


async def test_every_fault_is_reported_at_once(bench: Bench, make: Make) -> None:
    with pytest.raises(Invalid) as refused:
        await bench.lines.create(make.line("x", server="", username="", dns_profile="custom"))
    assert refused.value.faults == (
        fault("type", "one-of", choices=("l2tp", "pptp")),
        fault("server", "ipv4-or-host"),
        fault("username", "empty"),
        fault("dns_servers", "dns-servers-needed", profile="dns_profile"),
    )


async def test_names_are_unique(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    await bench.lines.create(make.line("l2tp_2"))
    with pytest.raises(Invalid, match="there is a line l2tp_1 already"):
        await bench.lines.create(make.line("l2tp_1"))
    with pytest.raises(Invalid, match="there is a line l2tp_1 already"):
        await bench.lines.replace("l2tp", "l2tp_2", make.line("l2tp_1"))


async def test_lines_that_carry_each_other_are_refused(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("l2tp_1", interface="l2tp_2"))
    with pytest.raises(Invalid, match="circle: l2tp_2 -> l2tp_1 -> l2tp_2"):
        await bench.lines.create(make.line("l2tp_2", interface="l2tp_1"))
    await bench.lines.create(make.line("l2tp_2", interface="wan1"))
    await bench.agree()


async def test_a_chain_of_lines_is_limited_to_sixteen_carriers(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("l2tp_a0"))
    for number in range(1, 17):
        await bench.lines.create(make.line(f"l2tp_a{number}", interface=f"l2tp_a{number - 1}"))
    with pytest.raises(Invalid, match="interface must not lead through more than 16 others"):
        await bench.lines.create(make.line("l2tp_a17", interface="l2tp_a16"))
    await bench.agree()


async def test_the_type_of_a_line_cannot_change(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    with pytest.raises(Invalid, match="type must stay l2tp"):
        await bench.lines.replace("l2tp", "l2tp_1", make.line("pptp_1"))


@pytest.mark.parametrize(("kind", "name"), [("l2tp", "l2tp_9"), ("pptp", "l2tp_1"), ("x", "y")])
async def test_a_missing_line_is_an_error_except_in_batches(
    bench: Bench, make: Make, kind: str, name: str
) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    with pytest.raises(Missing, match=f"no {kind} line {name}"):
        await bench.lines.replace(kind, name, make.line("l2tp_1"))
    assert (await bench.lines.delete_many([(kind, name)])).value == 0
    assert (await bench.lines.set_enabled_many([(kind, name)], False)).value == 0


async def test_a_rename_updates_every_reference(bench: Bench, make: Make) -> None:
    line = (await bench.lines.create(make.line("l2tp_1"))).value
    await bench.lines.create(make.line("pptp_1", interface="l2tp_1"))
    await bench.rules.create(make.rule("10.0.0.1", "Interface:l2tp_1"))
    await bench.rules.create(make.rule("10.0.0.2", "Interface:wan1"))
    await bench.services.create(make.service(outbound_interface="l2tp_1"))
    await bench.add_node("a", **{"interface-name": "l2tp_1"})
    await bench.settings.put(Settings(unmanaged="Interface:l2tp_1"))
    revision = bench.ledger.revision
    outcome = await bench.lines.replace("l2tp", "l2tp_1", make.line("l2tp_tokyo"))
    assert (outcome.value.id, outcome.value.name, outcome.notes) == (line.id, "l2tp_tokyo", ())
    targets = [rule.target_node for rule in bench.rules.list()]
    assert targets == ["Interface:l2tp_tokyo", "Interface:wan1"]
    assert bench.services.list()[0].outbound_interface == "l2tp_tokyo"
    assert (await listed(bench))[1].interface == "l2tp_tokyo"
    assert json.loads(bench.nodes.list()[0].config_json)["interface-name"] == "l2tp_tokyo"
    assert bench.settings.get().unmanaged == "Interface:l2tp_tokyo"
    assert bench.ledger.revision == revision + 1
    assert "Interface:l2tp_tokyo" in bench.state.numbers
    await bench.agree()


async def test_a_rename_names_the_node_whose_configuration_becomes_too_long(
    bench: Bench, make: Make
) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    text = "x" * (65_536 - 90)
    await bench.add_node("b", **{"interface-name": "l2tp_1", "later-field": text})
    with pytest.raises(Invalid, match=r"^name must suit the node b, which .* not be over 65536"):
        await bench.lines.replace("l2tp", "l2tp_1", make.line("l2tp_tokyo_1234"))
    await bench.agree()


async def test_disabling_and_deleting_report_blocked_rules_and_nodes(
    bench: Bench, make: Make
) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    await bench.lines.create(make.line("pptp_1"))
    await bench.rules.create(make.rule("10.0.0.1", "Interface:l2tp_1"))
    await bench.services.create(make.service(outbound_interface="l2tp_1"))
    await bench.add_node("tokyo", **{"interface-name": "l2tp_1"})
    both = [("l2tp", "l2tp_1"), ("pptp", "pptp_1"), ("l2tp", "l2tp_1"), ("l2tp", "l2tp_9")]
    outcome = await bench.lines.set_enabled_many(both, False)
    assert outcome.value == 2
    assert outcome.notes == (
        "1 rule is blocked, as the line l2tp_1 is disabled",
        "1 node does not work, as the line l2tp_1 is disabled",
        "1 proxy service does not work, as the line l2tp_1 is disabled",
    )
    assert bench.netd.plan.lines == {}
    assert (await bench.lines.set_enabled_many(both, True)).notes == ()
    outcome = await bench.lines.delete_many(both)
    assert outcome.value == 2
    assert outcome.notes[:2] == (
        "1 rule is blocked, as there is no line l2tp_1",
        "1 node does not work, as there is no line l2tp_1",
    )
    await bench.agree()


async def test_the_list_shows_which_lines_are_online(
    bench: Bench, make: Make, interfaces: Callable[..., Status]
) -> None:
    for name in ("l2tp_1", "l2tp_2", "l2tp_3"):
        await bench.lines.create(make.line(name))
    bench.netd.shown = interfaces({}, {"l2tp_1": "192.0.2.9", "l2tp_2": ""})
    online = [(line.name, status.is_online) for line, status in bench.lines.list()]
    assert online == [("l2tp_1", True), ("l2tp_2", False), ("l2tp_3", False)]
    bench.netd.is_away = True
    assert [status.is_online for _, status in bench.lines.list()] == [False] * 3


ROWS = """
vpn.example.net,1701,u1,p1,s1,l2tp_1,first
vpn.example.net,u2,p2,s2,l2tp_2,second
vpn.example.net,u3,p3,s3,tokyo,bad name
"""


async def test_an_import_adds_and_updates_lines(bench: Bench, make: Make) -> None:
    before = make.line("l2tp_1", interface="wan2", dns_profile="custom", dns_servers=("192.0.2.1",))
    first = (await bench.lines.create(before)).value
    await bench.lines.set_enabled_many([("l2tp", "l2tp_1")], False)
    outcome = await bench.lines.import_rows("l2tp", ROWS, auto_name=False, start_index=1)
    assert (outcome.imported, outcome.skipped) == (2, 1)
    assert outcome.errors[0].startswith("line 4: name must begin with l2tp_")
    updated, added = await listed(bench)
    assert (updated.id, updated.username, updated.secret) == (first.id, "u1", "s1")
    assert (updated.interface, updated.dns_servers) == ("wan2", ("192.0.2.1",))
    assert updated.is_enabled
    assert (added.name, added.port, added.comment) == ("l2tp_2", 1701, "second")
    await bench.agree()


async def test_an_import_can_number_its_lines(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("pptp_5"))
    # A bad row takes no number, for any fault.
    rows = "a.example,u,p\nx.example,,p\nx\nb.example,u,p\n"
    outcome = await bench.lines.import_rows("pptp", rows, auto_name=True, start_index=5)
    assert (outcome.imported, outcome.skipped) == (2, 2)
    assert [line.name for line in await listed(bench)] == ["pptp_5", "pptp_6", "pptp_7"]


async def test_an_import_needs_a_type(bench: Bench) -> None:
    with pytest.raises(Invalid, match="type must be one of l2tp, pptp"):
        await bench.lines.import_rows("ss", ROWS, auto_name=False, start_index=1)


async def test_a_disabled_line_has_the_state_disabled(bench: Bench, make: Make) -> None:
    await bench.lines.create(make.line("l2tp_1"))
    assert bench.lines.list()[0][1].state == "unknown"
    await bench.lines.set_enabled_many([("l2tp", "l2tp_1")], False)
    bench.netd.shown = Status(
        state="running", revision=0, lines={"l2tp_1": LineStatus(is_online=True, ip="10.9.0.2")}
    )
    status = bench.lines.list()[0][1]
    assert (status.is_online, status.state) == (False, "disabled")


async def test_a_dns_profile_without_a_license_is_kept_and_reported(
    bench: Bench, make: Make
) -> None:
    bench.has_line_dns = False
    plain = await bench.lines.create(make.line("l2tp_1"))
    assert plain.notes == ()
    outcome = await bench.lines.create(make.line("l2tp_2", dns_profile="domestic"))
    assert outcome.notes == (
        "its dns_profile has no effect, as the license does not have line_dns",
    )
    assert outcome.value.dns_profile == "domestic"


async def test_an_import_reports_settings_without_effect(bench: Bench, make: Make) -> None:
    bench.has_line_dns = False
    await bench.lines.create(make.line("pptp_1", dns_profile="domestic"))
    rows = "".join(f"a.example,1724,u,p,pptp_{number}\n" for number in range(1, 6))
    outcome = await bench.lines.import_rows("pptp", rows, auto_name=False, start_index=1)
    assert outcome.imported == 5
    assert outcome.notes == (
        "pptp_1: its dns_profile has no effect, as the license does not have line_dns",
        "pptp_1, pptp_2, pptp_3, …: it will not come up: PPTP's client dials no other port than"
        " 1723",
    )
