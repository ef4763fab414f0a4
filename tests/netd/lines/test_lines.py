"""Lines that dial, stay up, fail and come back, with stand-ins for the daemons."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import threading
import time
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import msgspec
import pytest

from egressd.model.messages import LineStatus
from egressd.netd.lines import backoff, host_environment, line_controller
from egressd.netd.lines.lines import DialledLines
from egressd.netd.system import daemon_group, orphans
from egressd.netd.system.daemon_group import members
from egressd.planner.lines.address import Taken
from egressd.planner.registry import CLEAR_LINE_PORTS
from tests.netd.lines.rig import NETWORK, SERVER, Site, exists, install, line, opened, sh
from tests.support.netns import Namespace, eventually, is_alive

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]


async def test_a_line_comes_online(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        status = await site.online()
        assert (status.ip, status.state, status.reason) == ("10.9.0.2", "online", "")
        await eventually(lambda: site.lines.resolvers() == {"l2tp_1": ("9.9.9.9", "8.8.8.8")})
        assert set(site.told) == {"l2tp_1"}
        assert site.lines.pids() == {site.pid()}


async def test_a_line_that_is_not_wanted_is_taken_down(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(1), line(2))
        await site.online("l2tp_1")
        await site.online("l2tp_2")
        pid, folder = site.pid(), site.folder()
        await site.apply(line(2))
        assert not exists(pid)
        assert members(folder) == set()
        assert not folder.exists()
        assert site.byes() == ["l2tp_1"]
        assert "l2tp_1" not in sh("ip -o link")
        assert set(site.lines.status()) == {"l2tp_2"}
        assert site.lines.status()["l2tp_2"].is_online
        assert "l2tp_1" not in site.lines.resolvers()


async def test_only_edits_that_the_daemons_see_redial_a_line(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(), line(2))
        await site.online("l2tp_1")
        await site.online("l2tp_2")
        before = site.pid(), site.pid("l2tp_2")
        told = len(site.told)
        await site.apply(line(comment="x", dns_profile="domestic"), line(2))
        assert (site.pid(), site.pid("l2tp_2")) == before
        assert len(site.told) == told
        await site.apply(line(password="new"), line(2))
        await site.online()
        assert site.pid() != before[0]
        assert site.pid("l2tp_2") == before[1]


async def test_lines_disabled_and_enabled_at_once_are_redialled(run_dir: Path) -> None:
    """Scripts that rotate addresses do so, one line after the other."""

    async with opened(run_dir) as site:
        wanted = {f"l2tp_{n}": line(n) for n in range(1, 9)}
        await site.lines.apply(wanted)
        for name in wanted:
            await site.online(name, 15)
        before = {name: site.pid(name) for name in wanted}
        toggled = sorted(wanted)[:6]
        for name in toggled:
            site.lines.want({n: line for n, line in wanted.items() if n != name})
            site.lines.want(wanted)
            await asyncio.sleep(0.03)
        await eventually(lambda: sorted(site.byes()) == toggled, 15)
        await eventually(lambda: not site.lines.outdated(wanted), 15)
        for name in wanted:
            await site.online(name, 15)
        after = {name: site.pid(name) for name in wanted}
        assert [name for name in wanted if after[name] != before[name]] == toggled


async def test_a_rename_renames_the_interface(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        await site.apply(line(name="l2tp_new"))
        await site.online("l2tp_new")
        assert set(site.lines.status()) == {"l2tp_new"}
        assert "l2tp_1" not in sh("ip -o link")


async def test_a_line_is_outdated_from_its_edit_until_it_is_down(run_dir: Path) -> None:
    """Past fault: for up to 2 s after an edit of a line its clients used the old server, and
    packets of a line pinned to a WAN could leave by another WAN.
    """

    async with opened(run_dir) as site:
        old, new = line(), line(password="another")
        await site.apply(old)
        await site.online()
        assert site.lines.outdated({"l2tp_1": line(comment="as it was")}) == {}
        assert site.lines.outdated({}) == site.lines.outdated({"l2tp_1": new})
        assert site.lines.outdated({}) == {"l2tp_1": old}
        applying = asyncio.create_task(site.apply(new))
        await asyncio.sleep(0)
        assert site.lines.outdated({"l2tp_1": new}) == {"l2tp_1": old}
        await applying
        assert site.lines.outdated({"l2tp_1": new}) == {}
        await site.apply()
        assert site.lines.outdated({}) == {}


async def test_two_lines_may_swap_names(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(1, password="a"), line(2, password="b"))
        await site.online("l2tp_1")
        await site.online("l2tp_2")
        await site.apply(line(1, name="l2tp_2", password="a"), line(2, name="l2tp_1", password="b"))
        await site.online("l2tp_1")
        await site.online("l2tp_2")
        assert '"b"' in (site.folder("l2tp_1") / "options").read_text()


def wait_s(status: LineStatus) -> float:
    """Return the seconds until the next attempt."""
    at = datetime.strptime(status.next_attempt, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return (at - datetime.now(UTC)).total_seconds()


async def test_a_wrong_password_waits_long_and_a_corrected_one_does_not(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(username="wrong"))
        status = await site.state("wrong_password")
        assert status.reason == "the server refused the user name or password: Access denied"
        assert 55 < wait_s(status) < 75
        assert members(site.folder()) == set()
        await site.apply(line())
        await site.online()


async def test_a_login_that_has_worked_is_not_called_wrong(run_dir: Path) -> None:
    """Neither soon after, nor by a later netd, which may be another boot's."""

    async with opened(run_dir) as site:
        await site.apply(line(username="held"))
        await site.online()
        (run_dir / "held").write_text("MS-CHAP authentication failed: Access denied\n")
        os.kill(site.pid(), signal.SIGKILL)
        status = await site.state("refused")
        told = "the account may still be in use at the server: Access denied"
        assert status.reason == told
        assert 3 <= wait_s(status) <= 15

        await site.lines.close()
        site.lines = DialledLines(run_dir, run_dir / "logins.json", site.told.append)
        await site.lines.find()
        await site.lines.open()
        await site.apply(line(username="held"))
        assert (await site.state("refused")).reason == told

        (run_dir / "held").write_text("CHAP authentication failed: no \u00e9 \x1b[2J\n")
        await site.apply(line(username="held", password="another"))
        status = await site.state("wrong_password")
        assert status.reason == "the server refused the user name or password: no    [2J"
        assert wait_s(status) > 50


async def test_a_server_may_say_that_an_account_is_in_use(run_dir: Path) -> None:
    """Then it is believed, of a line that was never online, too."""

    async with opened(run_dir) as site:
        said = "Remote message: You are already logged in\nPAP authentication failed\n"
        (run_dir / "held").write_text(said)
        await site.apply(line(username="held"))
        status = await site.state("refused")
        told = "the account may still be in use at the server: You are already logged in"
        assert status.reason == told
        assert wait_s(status) <= 15


async def test_a_line_whose_daemon_dies_is_redialled(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(username="dies"))
        status = await site.state("failed")
        assert status.reason == ("its daemon ended: Modem on fire (it ended with status 3)")
        first = status.next_attempt
        await site.state("dialing")
        await site.until(lambda s: s.state == "failed" and s.next_attempt > first)


async def test_a_killed_line_is_redialled(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        pid = site.pid()
        os.kill(pid, signal.SIGKILL)
        status = await site.state("lost")
        assert status.reason == "its daemon ended (it was ended by SIGKILL)"
        assert not status.is_online
        assert site.lines.resolvers() == {}
        sh("ip link delete l2tp_1")
        await site.online()
        assert site.pid() != pid


async def test_a_line_that_was_up_for_long_is_redialled_at_once(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.lines.backoff.STEADY_S", 0.0)

    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        sh("ip link delete l2tp_1")
        status = await site.until(lambda status: not status.is_online)
        assert wait_s(status) <= 1  # reported in whole seconds
        await site.online()


async def test_a_deleted_link_is_a_lost_line(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        pid = site.pid()
        with (site.folder() / "ppp.log").open("a") as log:
            log.write("No response to 3 echo-requests\n")
        sh("ip link delete l2tp_1")
        status = await site.state("lost")
        assert status.reason == "the server stopped answering"
        assert not exists(pid)
        assert site.byes() == [], "a lost line has nobody to take leave of"


async def test_an_address_without_a_peer_is_not_online(run_dir: Path) -> None:
    """pppd first adds the local address alone."""

    async with opened(run_dir) as site:
        await site.apply(line(username="silent"))
        await site.state("dialing")
        sh("ip link add l2tp_1 type ifb; ip address add 10.9.0.2 dev l2tp_1; "
           "ip link set l2tp_1 up")  # fmt: skip
        await asyncio.sleep(0.3)
        assert not site.lines.status()["l2tp_1"].is_online
        sh("ip address add 10.9.0.2 peer 10.9.0.1 dev l2tp_1")
        await site.online()


async def test_a_slow_dial_times_out(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_controller, "_DIAL_S", 0.5)

    async with opened(run_dir) as site:
        await site.apply(line(username="silent"))
        status = await site.state("unreachable")
        assert status.reason == "203.0.113.9 took too long to set the line up"
        assert members(site.folder()) == set()


async def test_a_pptp_server_without_a_tcp_connection_times_out_early(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_controller, "_CONNECT_S", 0.5)

    async with opened(run_dir) as site:
        with socket.socket() as asking:  # as pptp(8) does; no answer will come
            asking.setblocking(False)
            asking.bind(("192.0.2.2", 0))
            asking.connect_ex((SERVER, 1723))
            away = line(type="pptp", name="pptp_1", username="silent", port=1723)
            await site.apply(away, line(2, username="silent"))
            status = await site.state("unreachable", "pptp_1")
            assert status.reason == "no PPTP server answers at 203.0.113.9"
            assert site.lines.status()["l2tp_2"].state == "dialing"


async def test_a_slow_pptp_server_with_a_tcp_connection_is_waited_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_controller, "_CONNECT_S", 0.3)

    async with opened(run_dir) as site:
        slow = line(type="pptp", name="pptp_1", username="silent", port=1723)
        await site.apply(slow)
        await site.state("dialing", "pptp_1")
        await asyncio.sleep(1)
        assert site.lines.status()["pptp_1"].state == "dialing"


async def test_an_unresolvable_server_name_is_the_reason(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_environment, "_TOOL_S", 0.5)

    async with opened(run_dir) as site:
        await site.apply(line(server="nowhere.invalid"))
        status = await site.state("unreachable")
        assert status.reason == "the server's name nowhere.invalid cannot be resolved"


async def test_a_hanging_resolver_delays_no_line_with_an_address(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_environment, "_missing", lambda _line: "")
    answer = threading.Event()

    def hang(_host: str) -> list[IPv4Address]:
        answer.wait(30)
        return []

    monkeypatch.setattr(host_environment, "_resolve", hang)

    async with opened(run_dir, checks_means=True) as site:
        named = {f"l2tp_{n}": line(n, server=f"vpn{n}.test") for n in range(2, 22)}
        await site.lines.apply(named)
        for name in named:
            await site.state("dialing", name)
        await site.lines.apply({**named, "l2tp_1": line()})
        await site.online()
        answer.set()


async def test_an_invalid_line_has_a_reason_and_is_not_dialled(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        bad = line(type="pptp", name="pptp_1", port=1724)
        await site.apply(bad, line(2))
        status = await site.state("invalid", "pptp_1")
        assert status.reason == "port must be 1723 for pptp: its client dials no other"
        assert status.next_attempt == ""
        await site.online("l2tp_2")


# --- Carriers. ------------------------------------------------------------------------------


def note(site: Site) -> dict[str, str]:
    found = msgspec.json.decode((site.folder() / "unit.json").read_bytes())["note"]
    return {key: found[key] for key in ("carrier", "local")}


async def test_a_line_without_an_interface_follows_the_default_route(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        assert note(site) == {"carrier": "wan1", "local": "192.0.2.2"}
        sh("ip route delete default metric 100")
        status = await site.state("lost")
        assert status.reason == "the way to 203.0.113.9 is now wan2"
        await site.online()
        assert note(site) == {"carrier": "wan2", "local": "198.51.100.2"}


async def test_a_line_is_redialled_from_its_wans_new_address(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(interface="wan1"))
        await site.online()
        sh("ip address del 192.0.2.2/24 dev wan1; ip address add 192.0.2.7/24 dev wan1; "
           "ip route replace default via 192.0.2.1 metric 100")  # fmt: skip
        status = await site.state("lost")
        assert status.reason == "the address of wan1 is now 192.0.2.7"
        await site.online()
        assert note(site) == {"carrier": "wan1", "local": "192.0.2.7"}


async def test_a_line_outlasts_a_moment_without_a_route(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        pid = site.pid()
        sh("ip route flush exact default; sleep 0.2; "
           "ip route add default via 192.0.2.1 metric 100")  # fmt: skip
        await asyncio.sleep(0.3)
        assert site.lines.status()["l2tp_1"].is_online
        assert site.pid() == pid


async def test_a_pinned_line_waits_for_its_wan(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        sh("ip link set wan2 down")
        await site.apply(line(interface="wan2"))
        status = await site.state("no_carrier")
        assert status.reason == "there is no address on wan2 to reach 203.0.113.9 by"
        # Three attempts, each reported at its begin and its end: the next is 4 s away.
        await eventually(lambda: len(site.told) >= 6, 8)
        sh("ip link set wan2 up; ip route add default via 198.51.100.1 table 77")
        await site.online(timeout_s=3)
        assert note(site) == {"carrier": "wan2", "local": "198.51.100.2"}


async def test_p2_a_pinned_line_waits_for_the_route_of_its_wan(run_dir: Path) -> None:
    """Past fault: a pinned line waited for up to 72 s after its WAN had its route back, because it
    watched the link and the address only.
    """

    async with opened(run_dir) as site:
        sh("ip route del default table 77")
        await site.apply(line(interface="wan2"))
        status = await site.state("no_carrier")
        told = "packets do not reach 203.0.113.9 by wan2: they would leave by wan1"
        assert status.reason == told
        await eventually(lambda: len(site.told) >= 6, 8)
        sh("ip route add default via 198.51.100.1 table 77")
        await site.online(timeout_s=3)


async def test_a_line_with_the_address_of_another_network_is_refused(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        lan = Taken(lan_networks=(("lan0", IPv4Network("10.9.0.0/24")),))
        await site.apply(line())
        await site.online()
        site.lines.reserve(lan)
        status = await site.state("refused")
        assert status.reason == "the server hands out 10.9.0.2, which is in the LAN lan0"
        await eventually(lambda: "l2tp_1" not in sh("ip -o link"))
        assert not status.is_online
        await site.state("dialing")
        await site.until(lambda status: status.state == "refused" and 1 < wait_s(status) < 3)
        site.lines.reserve(Taken())
        await site.online()
        sh("ip address add 10.9.0.2/24 dev wan2")
        status = await site.state("refused")
        assert status.reason == "the server hands out 10.9.0.2, which is an address of wan2"


async def test_a_line_is_not_dialled_by_the_wrong_wan(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        sh("ip rule delete priority 210")
        await site.apply(line(interface="wan2"))
        status = await site.state("no_carrier")
        assert status.reason == (
            "packets do not reach 203.0.113.9 by wan2: they would leave by wan1"
        )
        assert not site.folder().exists()


async def test_a_line_whose_packets_went_astray_gives_that_reason(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lines may have one address, for which the kernel uses one of them. The reason names that,
    not a missing answer.
    """
    monkeypatch.setattr("egressd.netd.lines.line_controller._DIAL_S", 0.5)

    async with opened(run_dir) as site:
        await site.apply(line(username="nobody", interface="wan2"))
        await site.state("dialing")
        await eventually((site.folder() / "unit.json").exists)
        sh("ip address add 198.51.100.2/32 dev wan1; ip rule delete priority 210")
        status = await site.state("no_carrier")
        assert status.reason == (
            "packets do not reach 203.0.113.9 by wan2: wan1 has the same address, 198.51.100.2"
        )


# --- One of two boxes. ----------------------------------------------------------------------


async def test_a_box_on_standby_dials_once_it_is_active(run_dir: Path) -> None:
    async with opened(run_dir, may_dial=None) as site:
        await site.apply(line())
        assert site.lines.status()["l2tp_1"] == LineStatus(is_online=False, state="waiting")
        site.lines.allow(may_dial=False)
        status = await site.state("standby")
        assert status.reason == "the active box of the pair dials this line"
        assert not status.next_attempt
        assert not site.folder().exists()
        site.lines.allow(may_dial=True)
        await site.online()


async def test_a_box_that_hands_over_hangs_up_first(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(1), line(2))
        for name in ("l2tp_1", "l2tp_2"):
            await site.online(name)
        hanging_up = asyncio.create_task(site.lines.hang_up())
        await asyncio.sleep(0)
        # Their clients are blocked from now on, although the interfaces are still there.
        assert set(site.lines.outdated({"l2tp_1": line(1), "l2tp_2": line(2)})) >= {
            "l2tp_1",
            "l2tp_2",
        }
        await hanging_up
        assert sorted(site.byes()) == ["l2tp_1", "l2tp_2"]
        assert {each.state for each in site.lines.status().values()} == {"standby"}
        assert site.lines.pids() == set()
        assert "l2tp_1" not in sh("ip -o link show")


async def test_a_box_on_standby_dials_no_line_that_is_edited(run_dir: Path) -> None:
    async with opened(run_dir, may_dial=None) as site:
        site.lines.allow(may_dial=False)
        await site.apply(line())
        site.told.clear()
        await site.apply(line(password="other"), line(2))
        assert site.told == ["l2tp_2"]
        assert {each.state for each in site.lines.status().values()} == {"standby"}
        assert list((run_dir / "units").iterdir()) == []


@pytest.mark.parametrize("is_active", [True, False])
async def test_lines_stay_up_until_the_role_is_known(run_dir: Path, is_active: bool) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(1))
        await site.online()
        before = site.pid()
        await site.lines.release()
        site.lines = site.dialled(may_dial=None)
        await site.lines.find()
        await site.lines.open()
        await site.apply(line(1), line(2))
        await site.online()
        assert site.pid() == before
        assert site.lines.status()["l2tp_2"].state == "waiting"
        site.lines.allow(may_dial=is_active)
        if is_active:
            await site.online("l2tp_2")
            assert site.pid() == before
        else:
            await eventually(lambda: not exists(before))
            assert {each.state for each in site.lines.status().values()} == {"standby"}
            assert site.byes() == ["l2tp_1"]


async def test_a_login_that_the_other_box_had_is_tried_again_soon(run_dir: Path) -> None:
    async with opened(run_dir, may_dial=None) as site:
        site.lines.allow(may_dial=False)
        held = run_dir / "held"
        held.write_text("MS-CHAP authentication failed: Access denied\n")
        await site.apply(line(username="held"))
        site.lines.allow(may_dial=True)
        status = await site.state("refused")
        assert status.reason == "the account may still be in use at the server: Access denied"
        assert wait_s(status) <= 3
        held.unlink()
        await site.online()


# --- netd stops and starts. -----------------------------------------------------------------


async def test_lines_survive_a_release(run_dir: Path) -> None:
    """Past fault: clients of a line asked the device's resolvers after netd had started, until the
    line was attended to and the peer's resolvers were read.
    """

    async with opened(run_dir) as site:
        await site.apply(line(1), line(2), line(3))
        for name in ("l2tp_1", "l2tp_2", "l2tp_3"):
            await site.online(name)
        before = {name: site.pid(name) for name in site.lines.status()}
        peer_dns = ("9.9.9.9", "8.8.8.8")
        await eventually(lambda: site.lines.resolvers().get("l2tp_1") == peer_dns)
        await site.lines.release()
        # What pppd logs meanwhile is emptied by the next netd.
        with (site.folder() / "ppp.log").open("a") as log:
            log.write("sent [LCP EchoReq id=0x3 magic=0xc22e5742]\n" * 30_000)
        site.lines = DialledLines(run_dir, run_dir / "logins.json", site.told.append)
        await site.lines.find()
        # It is known before the line is attended to again.
        assert site.lines.resolvers()["l2tp_1"] == peer_dns
        edited = (line(1, comment="edited meanwhile"), line(2, password="changed"))
        wanted = {one.name: one for one in edited}
        assert site.lines.outdated(wanted) == {"l2tp_2": None, "l2tp_3": None}
        await site.lines.open()
        await site.apply(*edited)
        assert site.lines.outdated(wanted) == {}
        assert not exists(before["l2tp_3"])
        assert not site.folder("l2tp_3").exists()
        await site.online("l2tp_1")
        assert site.pid("l2tp_1") == before["l2tp_1"]
        await eventually(lambda: site.lines.resolvers().get("l2tp_1") == peer_dns)
        await site.online("l2tp_2")
        assert site.pid("l2tp_2") != before["l2tp_2"]
        assert sorted(site.byes()) == ["l2tp_2", "l2tp_3"]


@pytest.mark.parametrize("is_cleared", [False, True])
async def test_daemons_unknown_to_the_run_directory_are_ended(
    run_dir: Path, is_cleared: bool
) -> None:
    """Past fault: after `[run] dir` was changed or cleared lines' daemons continued."""

    async with opened(run_dir) as site:
        await site.apply(line(1))
        await site.online("l2tp_1")
        before = site.pid("l2tp_1")
        await site.lines.release()
        if is_cleared:
            shutil.rmtree(run_dir / "units")
        else:
            site.run_dir = run_dir / "another"
        site.lines = DialledLines(site.run_dir, site.run_dir / "logins.json", site.told.append)
        await site.lines.find()
        assert not is_alive(before)
        await site.lines.open()
        await site.apply(line(1))
        await eventually(site.folder().exists)
        await site.until(lambda status: status.is_online and site.pid() != before)


async def test_daemons_of_other_namespaces_are_not_ended(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line(1))
        await site.online("l2tp_1")
        with Namespace() as elsewhere:
            assert (
                elsewhere.run(orphans.end, lambda it: daemon_group.folder_of(it) is not None) == []
            )
        assert is_alive(site.pid("l2tp_1"))


def port_of(site: Site, name: str) -> int:
    """Return the local port in the configuration of the line's daemon."""
    text = (site.folder(name) / "xl2tpd.conf").read_text()
    return int(text.partition("\nport = ")[2].partition("\n")[0])


async def test_a_line_without_a_secret_has_its_own_guarded_port(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        one, two, three = line(1), line(2), line(3)
        await site.apply(one, two)
        await site.online("l2tp_1")
        await site.online("l2tp_2")
        before = port_of(site, "l2tp_1"), port_of(site, "l2tp_2")
        assert len(set(before) & set(CLEAR_LINE_PORTS)) == 2
        await site.lines.release()
        site.lines = DialledLines(run_dir, run_dir / "logins.json", site.told.append)
        await site.lines.find()
        await site.lines.open()
        # Allocation restarts from the first port, except for ports in use.
        site.lines._clear_ports._next = min(before) - CLEAR_LINE_PORTS.start
        await site.apply(one, two, three)
        await site.online("l2tp_3")
        assert port_of(site, "l2tp_3") not in before
        assert (port_of(site, "l2tp_1"), port_of(site, "l2tp_2")) == before


def test_lines_survive_a_kill(run_dir: Path, namespace: Namespace) -> None:
    """The killed netd cannot prepare anything, and its successor finds every line."""

    async def first() -> None:
        install(run_dir)
        sh(NETWORK)
        site = Site(run_dir)
        await site.lines.find()
        await site.lines.open()
        await site.apply(line(1), line(2, username="wrong"))
        await site.online("l2tp_1")
        await site.state("wrong_password", "l2tp_2")
        (run_dir / "up").touch()
        await asyncio.sleep(60)

    async def second() -> int:
        install(run_dir)
        site = Site(run_dir)
        await site.lines.find()
        await site.lines.open()
        await site.apply(line(1), line(2))
        await site.online("l2tp_1", 1)
        await site.online("l2tp_2")
        pid = site.pid()
        await site.lines.close()
        return pid

    running = namespace.start_async(first)
    deadline = time.monotonic() + 20
    while not (run_dir / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = Site.pid(_Folder(run_dir))  # type: ignore[arg-type]
    os.kill(running.pid, signal.SIGKILL)
    time.sleep(0.2)
    assert exists(pid)
    assert namespace.run_async(second) == pid


class _Folder:
    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def folder(self, name: str = "l2tp_1") -> Path:
        return self.run_dir / "units" / name


async def test_a_line_that_died_while_netd_was_down_is_redialled(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(line())
        await site.online()
        pid = site.pid()
        await site.lines.release()
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: pid not in members(site.folder()))
        sh("ip link delete l2tp_1")
        site.lines = DialledLines(run_dir, run_dir / "logins.json", site.told.append)
        await site.lines.find()
        await site.lines.open()
        assert members(site.folder()) == set()
        await site.apply(line())
        await site.online()
        assert site.pid() != pid


async def test_closing_takes_all_lines_down(run_dir: Path) -> None:
    async with opened(run_dir) as site:
        await site.apply(*(line(n) for n in range(1, 9)))
        for n in range(1, 9):
            await site.online(f"l2tp_{n}", 15)
        await site.lines.close()
        assert list((run_dir / "units").iterdir()) == []
        assert "l2tp" not in sh("ip -o link")
        assert len(site.byes()) == 8


async def test_many_lines_do_not_all_dial_at_once(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.5)

    async with opened(run_dir) as site:
        await site.apply(line(1))
        assert site.lines.status()["l2tp_1"].state == "waiting"
        await site.online(timeout_s=1.5)
        began = time.monotonic()
        await site.apply(line(1), *(line(n, username="silent") for n in range(2, 8)))
        assert site.lines.status()["l2tp_2"].next_attempt
        await site.state("dialing", "l2tp_7")
        assert time.monotonic() - began >= 6 * 0.25 * 0.5


# --- Missing programs and modules. ----------------------------------------------------------


async def test_a_missing_program_is_named_with_its_package(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        host_environment._PROGRAMS, "l2tp", {"/nowhere/xl2tpd": "xl2tpd", "/nowhere/pppd": "ppp"}
    )

    install(run_dir, checks_means=True)
    sh(NETWORK)
    site = Site(run_dir)
    await site.lines.find()
    await site.lines.open()
    await site.apply(line())
    status = await site.state("missing")
    assert status.reason == "programs are missing: apt install xl2tpd ppp"
    assert status.next_attempt
    await site.lines.close()


async def test_each_attempt_is_reported_with_the_time_of_the_next(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(host_environment._PROGRAMS, "l2tp", {"/nowhere/xl2tpd": "xl2tpd"})
    monkeypatch.setattr(backoff, "MISSING_S", 1.0)
    told: set[str] = set()

    def on_change(name: str) -> None:
        if status := lines.status().get(name):
            told.add(status.next_attempt)

    lines = DialledLines(run_dir, run_dir / "logins.json", on_change)

    install(run_dir, checks_means=True)
    sh(NETWORK)
    await lines.find()
    await lines.open()
    await lines.apply({"l2tp_1": line()})
    async with asyncio.timeout(20):
        while len(told - {""}) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await lines.close()


@pytest.mark.parametrize(
    ("kind", "secret", "missing", "reason"),
    [
        ("l2tp", "", "/dev/ppp", "the running kernel cannot do PPP: it has no module ppp_generic"),
        ("l2tp", "", "24", "the running kernel cannot do L2TP: it has no module l2tp_ppp"),
        (
            "pptp",
            "",
            "ppp_mppe",
            "the running kernel cannot do PPTP's encryption: it has no module ppp_mppe",
        ),
        ("l2tp", "s", "16", "the running kernel cannot do IPsec: it has no module xfrm_user"),
        ("l2tp", "s", "esp4", "the running kernel cannot do IPsec: it has no module esp4"),
        ("l2tp", "s", "", ""),
    ],
)
def test_a_missing_module_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: str, secret: str, missing: str, reason: str
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _self: True)
    monkeypatch.setattr(host_environment, "_opens", lambda path: path != missing)
    monkeypatch.setattr(
        host_environment, "_has_socket", lambda family, *_: str(int(family)) != missing
    )
    monkeypatch.setattr(host_environment, "_has_module", lambda name: name != missing)
    found = host_environment._missing(line(type=kind, secret=secret))
    assert found == (f"{reason}; Debian's linux-image-amd64 has it" if reason else "")


def test_a_module_is_looked_up_in_the_kernels_module_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(host_environment, "_MODULES", tmp_path)
    assert not host_environment._has_module("ppp_mppe"), "a kernel without modules"
    folder = tmp_path / os.uname().release
    folder.mkdir()
    (folder / "modules.builtin").write_text("kernel/net/ipv4/esp4.ko\n")
    (folder / "modules.dep").write_text("kernel/drivers/net/ppp/ppp_mppe.ko: kernel/lib/arc4.ko\n")
    assert host_environment._has_module("ppp_mppe")
    assert host_environment._has_module("esp4")
    assert not host_environment._has_module("ppp")


def test_modules_count_as_present_if_the_folder_is_unreadable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_self: Path) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert host_environment._has_module("no_such_module")
