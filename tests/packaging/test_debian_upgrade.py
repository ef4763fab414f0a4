"""Debian 12 becomes Debian 13 with egressd in force, step by step as docs/operations.md says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from tests.packaging import next_release
from tests.packaging.machine import Machine
from tests.packaging.next_release import NEW, OLD
from tests.support.box import CONFIGURATION
from tests.support.device import SERVER
from tests.support.installed import WEB, install, rule
from tests.support.packages import AFTER, BEFORE, asked_for, full, repository_in

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

OPTIONS = ("-oDpkg::Options::=--force-confold",)
"""Keep changed configuration files, as an answer to dpkg's question would."""


@asked_for
def test_p1_debian_12_becomes_13_and_nothing_gets_out(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "apt"
    for suite in (OLD, NEW):
        made = repository_in(tmp_path / "made", suite)
    subprocess.run(["cp", "-a", "--link", made, folder], check=True)
    subprocess.run(["cp", "-a", "--link", next_release.pool(), folder / "debian"], check=True)
    unruled = new_token()
    with Machine(lab.router, OLD, folder) as box:
        box.boot()
        box.write("/etc/egressd/egressd.toml", CONFIGURATION)
        box.add_repository()
        install(box, BEFORE)
        rule(box, lab, 1, "DIRECT")
        routed = lab.client(1).connect(SERVER)
        with lab.internet.capture() as capture:
            capture.prove()
            flood = lab.client(2).flood(unruled, rate=200)
            box.run("egressd", "backup", "/root/before.backup")
            box.write("/etc/apt/sources.list", "deb [trusted=yes] file:/srv/apt/debian ./\n")
            box.run("sed", "-i", f"s/{OLD}/{NEW}/", "/etc/apt/sources.list.d/egressd.list")
            box.apt("update")
            box.apt(*OPTIONS, "upgrade", "--without-new-pkgs")
            assert routed.exchange("still there").ok
            box.apt(*OPTIONS, "full-upgrade")
            box.wait_healthy()
            assert "VERSION_CODENAME=trixie" in box.run("cat", "/etc/os-release")
            assert box.run("readlink", "/opt/egressd/current").strip() == full(NEW, AFTER)
            assert box.run("dpkg", "--audit") == ""
            assert routed.exchange("still there").ok
            box.power_off()
            box.boot()
            box.wait_healthy()
            assert box.state("egressd-guard.service") == "active"
            assert lab.client(1).http(WEB).status == 200
            assert flood.stop().sent > 100
            assert capture.flows(unruled) == []
