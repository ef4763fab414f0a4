"""The package in a machine with a kernel, a boot and a power switch of its own (QEMU).

An installation, an upgrade and three boots take about twenty minutes without KVM, so
``script/test machines`` has to ask for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd_lab.packets import new_token
from tests.support.packages import AFTER, BEFORE, asked_for, wanted
from tests.vm import boot, machine
from tests.vm.emulated import Emulated

pytestmark = [pytest.mark.vm, pytest.mark.timeout(0)]

_HEALTHY = """\
until python3 -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:8787/ops/health")' \
    2> /dev/null; do sleep 1; done
"""
_INSTALL = """\
apt-get --yes --quiet --no-install-recommends install {package}
{healthy}
readlink /opt/egressd/current
"""
_REFRESH = """\
apt-get update -oDir::Etc::sourcelist=/etc/apt/sources.list.d/egressd.list \
    -oDir::Etc::sourceparts=- -oAPT::Get::List-Cleanup=0
"""


@pytest.fixture(scope="module")
def side(namespaces: None) -> Iterator[machine.Side]:
    boot.kernel()
    with machine.side() as made:
        yield made


def install(box: Emulated, version: str) -> str:
    """Return the script that installs one version and waits until it is healthy."""
    return _INSTALL.format(package=wanted(box.suite, version), healthy=_HEALTHY)


@asked_for
def test_p1_installed_upgraded_and_cut_off_in_a_whole_machine(
    side: machine.Side, suite: str, repository: Path, tmp_path: Path
) -> None:
    before, unruled, ruled = new_token(), new_token(), new_token()
    client, other = side.client(machine.UNRULED), side.client(machine.RULED)
    with Emulated(tmp_path, side, suite, repository) as box:
        print(f"boot: {box.boot():.0f} s")
        box.run(_REFRESH)
        with side.capture(keep=True) as capture:
            flood = client.flood(before, rate=50)
            box.wait(lambda: bool(capture.flows(before, interface="wan")), "see the flood leave")
            flood.stop()
            box.run(install(box, BEFORE))
            box.run(f"egressd rules add {machine.RULED} DIRECT")

            floods = [client.flood(unruled, rate=200, kind=kind) for kind in ("udp", "icmp")]
            floods.append(other.flood(ruled, rate=20))
            said = box.run(install(box, AFTER))
            assert f"{AFTER}+deb" in said
            left = len(capture.packets(ruled))
            assert capture.flows(ruled, interface="wan"), "the rule applies"
            print(box.run("uname -r; systemctl --no-pager status egressd-netd egressd-api"))
            assert "egressd" not in box.run("systemctl list-units --failed --plain --no-legend")

            # The power fails while the version before is installed again, and once more later.
            box.request(
                f"apt-get --yes --allow-downgrades install {wanted(box.suite, BEFORE)}"
                " > /srv/shared/apt 2>&1 & until [ -e /opt/egressd/.laying ]; do sleep 0.1; done;"
                " touch /srv/shared/laying"
            )
            box.wait(lambda: box.marked("laying"), "lay a version")
            box.power_off()
            print(f"boot after the power cut: {box.boot():.0f} s")
            said = box.run(f"{_HEALTHY}readlink /opt/egressd/current; egressd --version")
            assert f"{AFTER}+deb" in said
            box.run("dpkg --configure -a")
            said = box.run(f"{_HEALTHY}readlink /opt/egressd/current; dpkg --audit")
            assert said.strip().startswith(f"{BEFORE}+deb")
            box.wait(lambda: len(capture.packets(ruled)) > left, "see the client with a rule")
            for each in floods:
                assert each.stop().sent > 100
            assert capture.flows(unruled, interface="lan", outgoing=True)
            assert capture.flows(unruled, interface="wan") == []
