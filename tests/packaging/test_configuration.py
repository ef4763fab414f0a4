"""A changed configuration file on a Debian machine under systemd, by the commands of
docs/operations.md.
"""

from __future__ import annotations

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS
from tests.packaging.machine import Machine
from tests.support.box import CONFIGURATION
from tests.support.device import SERVER, eventually
from tests.support.installed import WEB, install, rule
from tests.support.packages import BEFORE, asked_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

FILE = "/etc/egressd/egressd.toml"
CHANGED = CONFIGURATION.replace("0.0.0.0", str(LAN_ADDRESS)) + '[wan]\ninterfaces = ["wan1"]\n'


@asked_for
def test_a_changed_file_comes_into_force_and_cuts_nothing(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    node = lab.nodes["socks5"]
    box.api().post("/nodes", node.draft())
    rule(box, lab, 1, "DIRECT")
    rule(box, lab, 3, node.name)
    held = [lab.client(number).connect(SERVER) for number in (1, 3)]
    assert listening(box) == {"0.0.0.0:8787", "0.0.0.0:8788"}
    box.write(FILE, CHANGED)
    box.run("egressd", "config", "check")
    box.run("systemctl", "restart", "egressd-api")
    assert listening(box) == {f"{LAN_ADDRESS}:8787", "0.0.0.0:8788"}
    assert wans(box) == {"wan1", "wan2"}
    box.run("systemctl", "reload", "egressd-netd")
    eventually(lambda: wans(box) == {"wan1"})
    assert all(connection.exchange("still there").ok for connection in held)


@asked_for
def test_p1_a_file_that_is_refused_leaves_the_plan_in_force(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    held = lab.client(1).connect(SERVER)
    box.write(FILE, f"{CONFIGURATION}[nonsense]\nkey = 1\n")
    assert "nonsense is not a key" in box.try_("egressd", "config", "check").stdout
    box.run("systemctl", "reload", "egressd-netd")
    eventually(lambda: "nonsense is not a key" in box.log())
    assert held.exchange("still there").ok
    assert lab.client(1).http(WEB).status == 200
    assert lab.client(2).http(WEB).status != 200
    box.write(FILE, CONFIGURATION)
    eventually(lambda: box.state("egressd-netd") == "active")
    box.wait_healthy()


def listening(box: Machine) -> set[str]:
    """Return the endpoints at which the API listens."""
    rows = box.run("ss", "-Htln").splitlines()
    return {row.split()[3] for row in rows if row.split()[3].endswith((":8787", ":8788"))}


def wans(box: Machine) -> set[str]:
    """Return the interfaces that netd treats as WANs."""
    seen = box.api().ask("GET", "/ops/overview").body
    return {each["name"] for each in seen["interfaces"] if each["role"] == "wan"}
