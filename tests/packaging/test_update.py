"""``egressd update`` on a Debian machine: another version, and the way back from a broken one."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from egressd_lab.lab import Lab
from tests.packaging.machine import Machine
from tests.support.device import SERVER
from tests.support.installed import PROGRAM, WEB, in_force, install, rule
from tests.support.packages import AFTER, BEFORE, asked_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

BROKEN = "0.0.3"
"""The version of a package that does not work."""
MARK = "bin/mark"
"""A file that only one build of a version has."""

_REMAKE = """\
set -e
rm -rf /tmp/broken
dpkg-deb --raw-extract /srv/apt/pool/{suite}/egressd_{after}_*.deb /tmp/broken
cd /tmp/broken
sed -i 's/{after}+deb/{broken}+deb/' DEBIAN/control DEBIAN/p* opt/egressd/unpacked/bin/egressd*
{change}
sha256sum $(find opt/egressd/unpacked/bin -type f) > opt/egressd/unpacked/.contents
DPKG_DEB_COMPRESSOR_TYPE=none dpkg-deb --build /tmp/broken /tmp/broken.deb
"""
NO_START = """\
for file in opt/egressd/unpacked/lib/python3*/site-packages/egressd/app/{}_process.py; do
    echo 'raise SystemExit("broken")' > "$file"
done
"""
MIGRATION = r"""
cd opt/egressd/unpacked/lib/python3*/site-packages/egressd/store/migrations/versions
newest=$(ls v*.py | tail -n 1 | cut -c 2-5)
sed 's/^revision = .*/revision = "9000"/; s/^down_revision.*/down_revision = "'$newest'"/' \
    MADE_FROM > v9000_next.py
sed -i "s/('$newest')/('9000')/" ../../newest.sql
cd /tmp/broken
"""
NEWER_SCHEMA = MIGRATION.replace("MADE_FROM", "/tmp/next.py")
NO_CHANGE = """\
revision = ""
down_revision = ""


def upgrade() -> None:
    '''Change nothing but the number of the schema.'''
"""
CHANGES = {
    "netd does not start": NO_START.format("netd"),
    "the api does not start": NO_START.format("api"),
    # What the second migration makes is there already.
    "its migration fails": MIGRATION.replace("MADE_FROM", "v0002_console.py"),
}


_REPACKED = """\
rm -rf /tmp/other
mkdir /tmp/other
dpkg-deb --control {package} /tmp/other/DEBIAN
rm -f /tmp/other/DEBIAN/conffiles
sed -i '{change}' /tmp/other/DEBIAN/control
dpkg-deb --build /tmp/other /tmp/bad.deb
"""
_LOCKED = """\
import fcntl, time
locked = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(locked, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(1000)
"""


_SOURCE_MENDED = "cd /etc/apt/sources.list.d; mv egressd.list.was egressd.list"


class Refused(NamedTuple):
    """An update that cannot be made, and the machine stays as it was."""

    spoil: str
    """A script."""
    arguments: str
    says: str
    mend: str = "true"
    """A script."""


REFUSED = {
    "no package": Refused(
        "cp /etc/passwd /tmp/bad.deb", "--file /tmp/bad.deb", "is no whole Debian package"
    ),
    "half of a package": Refused(
        "head -c 5000000 {package} > /tmp/bad.deb",
        "--file /tmp/bad.deb",
        "is no whole Debian package",
    ),
    "a package for another architecture": Refused(
        _REPACKED.replace("{change}", "s/^Architecture: .*/Architecture: armhf/"),
        "--file /tmp/bad.deb",
        "/tmp/bad.deb is for armhf; this machine is",
    ),
    "a package for another release": Refused(
        _REPACKED.replace("{change}", "s/python3 (>= [^)]*)/python3 (>= 9)/"),
        "--file /tmp/bad.deb",
        "python3 (>= 9)",
    ),
    "a package of something else": Refused(
        _REPACKED.replace("{change}", "s/^Package: .*/Package: else/"),
        "--file /tmp/bad.deb",
        "/tmp/bad.deb is no package of egressd",
    ),
    "no network": Refused(
        "sed -i.was s#file:/srv/apt#http://127.0.0.1:1/apt# /etc/apt/sources.list.d/egressd.list",
        "",
        "connect to 127.0.0.1:1",
        _SOURCE_MENDED,
    ),
    "a repository that is gone": Refused(
        "mount -t tmpfs tmpfs /srv/apt", "", "/srv/apt/dists", "umount /srv/apt"
    ),
    "a repository without this release": Refused(
        "sed -i.was s/{suite}/nosuch/ /etc/apt/sources.list.d/egressd.list",
        "",
        "nosuch",
        _SOURCE_MENDED,
    ),
    "no space for the package": Refused(
        "mount -t tmpfs -o size=20m tmpfs /opt/egressd/unpacked",
        "",
        "No space left on device",
        "umount /opt/egressd/unpacked",
    ),
    "no space for the backup": Refused(
        "mkdir -p /var/lib/egressd/update;"
        " mount -t tmpfs -o size=4k,mode=700 tmpfs /var/lib/egressd/update",
        "",
        "back the database up",
        "umount /var/lib/egressd/update",
    ),
    "another apt": Refused(
        "systemd-run --quiet --unit=another-apt python3 /tmp/lock.py;"
        " until journalctl --unit=another-apt | grep -q locked; do sleep 0.1; done",
        "",
        "is another process using it",
        "systemctl stop another-apt",
    ),
    "a configuration that the new version refuses": Refused(
        "sed -i.was '$ a [nonsense]\\nkey = 1' /etc/egressd/egressd.toml",
        "",
        "nonsense is not a key of the configuration",
        "cd /etc/egressd; mv egressd.toml.was egressd.toml",
    ),
}


@asked_for
def test_an_update_that_cannot_be_made_changes_nothing(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    package = f"/srv/apt/pool/{box.suite}/egressd_{AFTER}_*.deb"
    box.write("/tmp/lock.py", _LOCKED)
    processes = box.pids(PROGRAM)
    routed = lab.client(1).connect(SERVER)
    for name, case in REFUSED.items():
        spoil = case.spoil.replace("{package}", package).replace("{suite}", box.suite)
        box.run("sh", "-ec", spoil)
        done = box.try_("egressd", "update", "--unsigned", *case.arguments.split())
        box.run("sh", "-ec", case.mend)
        assert done.returncode == 1, name
        assert case.says in done.stdout, name
        assert "Traceback" not in done.stdout, name
        assert in_force(box) == BEFORE, name
        assert box.pids(PROGRAM) == processes, name
        shown = box.run("dpkg-query", "--show", "--showformat=${Status} ${Version}", "egressd")
        assert shown.startswith(f"install ok installed {BEFORE}"), name
    assert routed.exchange("still there").ok
    box.run("egressd", "update", "--unsigned")
    assert in_force(box) == AFTER


@asked_for
def test_an_update_puts_the_newest_version_in_force(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    done = box.try_("egressd", "update")
    assert done.returncode
    assert "has no signature" in done.stdout
    assert in_force(box) == BEFORE
    said = box.run("egressd", "update", "--unsigned")
    assert f"version {AFTER}+deb" in said
    assert in_force(box) == AFTER
    assert lab.client(1).http(WEB).status == 200
    assert "is in force already" in box.run("egressd", "update", "--unsigned")
    box.run("egressd", "update", "--unsigned", "--to", BEFORE)
    assert in_force(box) == BEFORE
    done = box.try_("egressd", "update", "--unsigned", "--to", "9.9")
    assert "apt does not offer version 9.9; it offers" in done.stdout


@asked_for
def test_a_file_of_another_build_of_the_same_version_is_installed(box: Machine, lab: Lab) -> None:
    install(box, AFTER)
    rule(box, lab, 1, "DIRECT")
    held = lab.client(1).connect(SERVER)
    change = f"echo built again > opt/egressd/unpacked/{MARK}"
    box.run(
        "sh", "-c", _REMAKE.format(suite=box.suite, after=AFTER, broken=AFTER, change=change)
    )  # fmt: skip
    box.run("egressd", "update", "--file", "/tmp/broken.deb", "--unsigned")
    assert box.exists(f"/opt/egressd/current/{MARK}")
    assert held.exchange("still there").ok
    assert in_force(box) == AFTER


@asked_for
@pytest.mark.parametrize("fault", CHANGES)
def test_a_broken_version_ends_with_the_old_one_in_force(
    box: Machine, lab: Lab, fault: str
) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    script = _REMAKE.format(suite=box.suite, after=AFTER, broken=BROKEN, change=CHANGES[fault])
    box.run("sh", "-c", script)
    done = box.try_("egressd", "update", "--file", "/tmp/broken.deb", "--unsigned")
    assert done.returncode == 1, done.stdout
    assert f"returning to version {BEFORE}" in done.stdout
    assert in_force(box) == BEFORE
    box.wait_healthy()
    assert lab.client(1).http(WEB).status == 200
    assert lab.client(2).http(WEB).status != 200
    assert f"the update to version {BROKEN}" in box.run("egressd", "status")
    dpkg = box.run("dpkg-query", "--show", "--showformat=${Status} ${Version}", "egressd")
    assert dpkg.startswith(f"install ok installed {BEFORE}")
    box.power_off()
    box.boot()
    box.wait_healthy()
    assert in_force(box) == BEFORE
    assert lab.client(1).http(WEB).status == 200


@asked_for
def test_a_version_that_cannot_read_the_database_returns_with_its_backup(
    box: Machine, lab: Lab
) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    box.write("/tmp/next.py", NO_CHANGE)
    script = _REMAKE.format(suite=box.suite, after=AFTER, broken=BROKEN, change=NEWER_SCHEMA)
    box.run("sh", "-c", script)
    box.run("egressd", "update", "--file", "/tmp/broken.deb", "--unsigned")
    assert in_force(box) == BROKEN
    rule(box, lab, 2, "DIRECT")
    routed = lab.client(1).connect(SERVER)
    said = box.run("egressd", "update", "--unsigned", "--to", BEFORE)
    assert "later changes are lost" in said
    assert in_force(box) == BEFORE
    assert routed.exchange("still there").ok
    assert lab.client(1).http(WEB).status == 200
    assert lab.client(2).http(WEB).status != 200, "its rule is younger than the backup"
    assert box.exists("/var/lib/egressd/api/state.db.bad-1")
