"""The package on a Debian machine under systemd: installed, upgraded, removed, purged."""

from __future__ import annotations

from pathlib import Path

import pytest

from egressd_lab.device import Api
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from tests.packaging.machine import Machine
from tests.support.box import CONFIGURATION
from tests.support.device import SERVER, eventually
from tests.support.installed import PROGRAM, WEB, in_force, install, left, rule
from tests.support.packages import AFTER, BEFORE, ROOT, asked_for, dependencies, full, wanted

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

WORKER = "engine/worker-"
"""A part of the command line of each worker; the one that tests nodes has another name."""

CHECKOUT = "/opt/egressd"
"""The folder that README.md proposes; the package has its own files in it, too."""
UNITS = ("egressd-netd.service", "egressd-api.service", "egressd-block.service")


def test_it_installs_and_boots(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    assert lab.client(1).http(WEB).status == 200
    assert lab.client(2).http(WEB).status != 200
    assert box.run("egressd", "--version").startswith("egressd")
    for unit in ("xl2tpd.service", "strongswan.service"):
        assert box.state(unit) == "inactive", "egressd runs such daemons itself"
    failed = box.run("systemctl", "list-units", "--failed", "--plain", "--no-legend")
    assert "egressd" not in failed
    box.power_off()
    box.boot()
    box.wait_healthy()
    assert box.state("egressd-guard.service") == "active"
    assert lab.client(1).http(WEB).status == 200
    alert_by_a_node(box, lab)


def alert_by_a_node(box: Machine, lab: Lab) -> None:
    """Send an alert, with what netd's unit allows to it and to its sender."""
    node, token, channels = lab.nodes["socks5"], new_token(), "/ops/alerts/channels"
    api = box.api()
    api.post("/nodes", node.draft())
    body = {"name": "hook", "url": f"json://{SERVER}/{token}", "via": node.name}
    channel = api.ask("POST", channels, body).body["id"]
    tested = api.ask("POST", f"{channels}/{channel}/test", {}).body
    assert tested["is_sent"], tested["reason"]
    posts = [each for each in lab.internet.seen(text=token) if each.text.startswith("POST")]
    assert [each.source for each in posts] == [node.address]


def test_p1_an_upgrade_lets_nothing_out_and_cuts_nothing(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    node = lab.nodes["socks5"]
    box.api().post("/nodes", node.draft())
    rule(box, lab, 1, "DIRECT")
    rule(box, lab, 3, node.name)
    routed, proxied = lab.client(1).connect(SERVER), lab.client(3).connect(SERVER)
    workers = box.pids(WORKER)
    assert workers
    unruled, ruled = new_token(), new_token()
    with lab.internet.capture() as capture:
        floods = [lab.client(2).flood(unruled, kind=kind) for kind in ("udp", "tcp", "icmp")]
        floods.append(lab.client(1).flood(ruled, rate=100))
        netd = box.run("systemctl", "show", "-P", "MainPID", "egressd-netd.service")
        install(box, AFTER)
        eventually(
            lambda: netd != box.run("systemctl", "show", "-P", "MainPID", "egressd-netd.service")
        )
        box.wait_healthy()
        for flood in floods:
            assert flood.stop().sent > 100
        assert capture.flows(ruled), "the capture sees"
        assert capture.flows(unruled) == []
    assert routed.exchange("still there").ok
    assert proxied.exchange("still there").ok
    assert set(workers) <= set(box.pids(WORKER)), "workers are adopted"
    assert in_force(box) == AFTER


@asked_for
def test_a_removal_leaves_all_blocked_and_a_purge_leaves_nothing(box: Machine, lab: Lab) -> None:
    of_others = {name for name in left(box) if not name.startswith("/etc/egressd")}
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    assert lab.client(1).http(WEB).status == 200
    said = box.apt("remove", "egressd")
    assert "every client of this router stays blocked" in said
    assert not box.exists("/opt/egressd")
    assert not box.exists("/usr/bin/egressd")
    for _ in ("at once", "after the next boot"):
        assert not gets_out(lab)
        box.power_off()
        box.boot()
    install(box, BEFORE)
    assert lab.client(1).http(WEB).status == 200, "what was configured is still there"
    said = box.apt("purge", "egressd")
    assert left(box) == of_others
    assert lab.router.run("nft", "list", "ruleset").stdout == ""
    assert "230" not in lab.router.run("ip", "rule", "show").stdout
    assert gets_out(lab)


@asked_for
def test_a_purge_leaves_the_guard_if_asked_to(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    box.run("debconf-set-selections", stdin="egressd egressd/purge-guard boolean false\n")
    said = box.apt("purge", "egressd")
    assert "the guard stays" in said
    box.power_off()
    box.boot()
    assert box.state("egressd-guard.service") == "active"
    assert not gets_out(lab)


def gets_out(lab: Lab) -> bool:
    """True if anything of a client gets out while the machine forwards, as any router does."""
    for name in ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"):
        lab.router.sysctl(name, 1)
    token = new_token()
    with lab.internet.capture() as capture:
        capture.prove()
        lab.client(1).every_way(token)
        return bool(capture.flows(token, interface="isp1"))


@asked_for
def test_a_downgrade_goes_on_where_both_know_the_database(box: Machine, lab: Lab) -> None:
    install(box, AFTER)
    rule(box, lab, 1, "DIRECT")
    routed = lab.client(1).connect(SERVER)
    box.apt("install", "--allow-downgrades", wanted(box.suite, BEFORE))
    box.wait_healthy()
    assert routed.exchange("still there").ok
    assert in_force(box) == BEFORE


@asked_for
def test_a_downgrade_to_an_older_schema_is_refused_and_changes_nothing(
    box: Machine, lab: Lab
) -> None:
    install(box, AFTER)
    rule(box, lab, 1, "DIRECT")
    newer = "import sqlite3; d = sqlite3.connect('/var/lib/egressd/api/state.db');"
    newer += "d.execute('UPDATE alembic_version SET version_num = 9999'); d.commit()"
    box.run("python3", "-c", newer)
    processes = box.pids(PROGRAM)
    command = ("apt-get", "--yes", "install", "--allow-downgrades", wanted(box.suite, BEFORE))
    done = box.try_(*command)
    assert done.returncode
    assert "this one has schema 9999" in done.stdout
    assert box.run("dpkg-query", "-Wf${Status} ${Version}", "egressd").startswith(
        f"install ok installed {AFTER}"
    )
    assert box.pids(PROGRAM) == processes, "nothing was restarted"
    assert lab.client(1).http(WEB).status == 200


@asked_for
def test_it_takes_over_from_a_checkout(box: Machine, lab: Lab, repository: Path) -> None:
    as_a_checkout(box, repository)
    box.run("systemctl", "start", "egressd-netd.service", "egressd-api.service")
    box.wait_healthy()
    token = box.run(f"{CHECKOUT}/.venv/bin/egressd", "token", "show").strip()
    Api(lab.router, token).post("/rules", {"ip": lab.client(1).address, "target_node": "DIRECT"})
    routed = lab.client(1).connect(SERVER)
    said = install(box, AFTER)
    assert f"replaces the checkout in {CHECKOUT}" in said
    assert not [unit for unit in UNITS if box.exists(f"/etc/systemd/system/{unit}")]
    assert box.pids(f"{CHECKOUT}/.venv/bin/python -P -m egressd.app") == []
    assert routed.exchange("still there").ok
    box.power_off()
    box.boot()
    box.wait_healthy()
    assert lab.client(1).http(WEB).status == 200


def as_a_checkout(box: Machine, repository: Path) -> None:
    """Put into the machine what script/install does: an environment, units, users, packages."""
    (package,) = (repository / "pool" / box.suite).glob(f"egressd_{BEFORE}_*.deb")
    box.run("mkdir", "-p", f"{CHECKOUT}/packaging")
    box.run("dpkg-deb", "--extract", f"/srv/apt/pool/{box.suite}/{package.name}", "/tmp/files")
    box.run("mv", "/tmp/files/opt/egressd/unpacked", f"{CHECKOUT}/.venv")
    box.run("cp", f"{CHECKOUT}/.venv/guard/guard.nft", f"{CHECKOUT}/packaging/")
    program = f"{CHECKOUT}/.venv/bin/egressd"
    box.run("sed", "-i", f"1s#.*#\\#!{CHECKOUT}/.venv/bin/python#", program)
    for user in ("egressd", "egressd-engine", "egressd-alerts"):
        box.run("useradd", "--system", "--user-group", "--no-create-home", user)
    for unit in (*UNITS, "egressd-guard.service"):
        text = (ROOT / "packaging/systemd" / unit).read_text().replace("@ROOT@", CHECKOUT)
        box.write(f"/etc/systemd/system/{unit}", text)
    box.apt("install", *dependencies())
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "enable", "egressd-guard", "egressd-netd", "egressd-api")


@asked_for
def test_a_refused_configuration_leaves_the_old_version_in_force(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    processes = box.pids(PROGRAM)
    box.write("/etc/egressd/egressd.toml", f"{CONFIGURATION}[nonsense]\nkey = 1\n")
    done = box.try_("apt-get", "--yes", "install", wanted(box.suite, AFTER))
    assert done.returncode
    assert "egressd: nonsense is not a key of the configuration" in done.stdout
    assert f"{full(box.suite, AFTER)} is not in force yet" in done.stdout
    assert in_force(box) == BEFORE
    assert box.pids(PROGRAM) == processes, "nothing was restarted"
    assert lab.client(1).http(WEB).status == 200
    box.write("/etc/egressd/egressd.toml", CONFIGURATION)
    box.run("dpkg", "--configure", "egressd")
    box.wait_healthy()
    assert in_force(box) == AFTER


@asked_for
def test_packages_that_do_not_suit_the_machine_are_refused(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    pool = f"/srv/apt/pool/{box.suite}"
    half = f"$(($(stat -c %s {pool}/egressd_{AFTER}_*.deb) / 2))"
    box.run("sh", "-c", f"head -c {half} {pool}/egressd_{AFTER}_*.deb > /tmp/half.deb")
    other = "sed -i s/^Architecture:.*/Architecture:\\ riscv64/ /tmp/other/DEBIAN/control"
    box.run(
        "sh",
        "-ec",
        f"mkdir -p /tmp/other; dpkg-deb --control {pool}/egressd_{AFTER}_*.deb /tmp/other/DEBIAN;"
        f" {other}; rm /tmp/other/DEBIAN/conffiles; dpkg-deb --build /tmp/other /tmp/other.deb",
    )
    for file, said in (("half", "half.deb"), ("other", "riscv64")):
        done = box.try_("apt-get", "--yes", "install", f"/tmp/{file}.deb")
        assert done.returncode
        assert said in done.stdout
        assert in_force(box) == BEFORE
    box.run("dpkg", "--verify", "egressd")
    box.wait_healthy()


@asked_for
@pytest.mark.parametrize(
    "reached",
    [
        "ls /opt/egressd/unpacked/bin/*.dpkg-new",
        "[ -e /opt/egressd/.laying ]",
        f"ls -d /opt/egressd/{AFTER}+*",
        f"readlink /opt/egressd/current | grep {AFTER}",
    ],
)
def test_p1_the_power_fails_in_an_upgrade(box: Machine, lab: Lab, reached: str) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    unruled = new_token()
    with lab.internet.capture() as capture:
        capture.prove()
        flood = lab.client(2).flood(unruled)
        command = f"apt-get --yes install {wanted(box.suite, AFTER)} > /tmp/said 2>&1 &"
        box.run("sh", "-c", f"{command} until {reached} > /dev/null 2>&1; do :; done")
        box.power_off()
        box.boot()
        box.wait_healthy()
        assert lab.client(1).http(WEB).status == 200
        assert flood.stop().sent > 100
        assert capture.flows(unruled) == []
    found = in_force(box)
    programs = box.pids(PROGRAM)
    assert programs
    assert set(programs) <= set(box.pids(f"/opt/egressd/{found}")), "whole"
    (other,) = {BEFORE, AFTER} - {found}
    assert box.pids(f"/opt/egressd/{other}") == [], "and not mixed"
    box.run("dpkg", "--configure", "-a")
    box.apt("install", wanted(box.suite, AFTER))
    box.wait_healthy()
    assert in_force(box) == AFTER
    assert box.run("dpkg", "--audit") == ""
