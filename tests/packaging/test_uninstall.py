"""``egressd uninstall`` of the package, with everything in use that it can have."""

from __future__ import annotations

import pytest

from egressd_lab.lab import Lab
from tests.packaging.machine import Machine
from tests.support.installed import WEB, install, left, rule
from tests.support.kernel_state import changes, kernel_state
from tests.support.packages import BEFORE, asked_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

TIMER = "egressd-timed-backup.timer"
BACKUPS = "/srv/backups"


@asked_for
@pytest.mark.parametrize(
    ("forward", "said"), [(0, "BLOCKED"), (1, "OPEN")], ids=["blocked", "open"]
)
def test_an_uninstalled_package_leaves_nothing(
    box: Machine, lab: Lab, forward: int, said: str
) -> None:
    lab.router.sysctl("net/ipv4/ip_forward", forward)
    files, kernel = left(box), state(box, lab)
    in_use(box, lab)
    assert {"nft list ruleset", "parameters", "ip -4 rule", "ip -brief link"} <= {
        *changes(kernel, state(box, lab))
    }, "the state has what egressd changes"
    done = box.try_("egressd", "uninstall")
    assert done.returncode == 1
    assert "--yes must be given" in done.stdout
    assert lab.client(1).http(WEB).status == 200, "nothing has changed"

    announced = box.run("egressd", "uninstall", "--yes")
    assert f"every client whose gateway this machine is will be {said}" in announced
    assert "by apt-get: the package egressd" in announced
    assert changes(kernel, state(box, lab)) == {}
    more = left(box) - files
    assert more == set()
    assert not box.exists("/etc/egressd")


def state(box: Machine, lab: Lab) -> dict[str, list[str]]:
    """Return the state of the machine's kernel."""
    return kernel_state(lab.router, box.run("nft", "list", "ruleset"))


def in_use(box: Machine, lab: Lab) -> None:
    """Install it, with rules, a node, a speed limit, timed backups, and a changed unit."""
    install(box, BEFORE)
    node = lab.nodes["socks5"]
    box.api().post("/nodes", node.draft())
    rule(box, lab, 1, "DIRECT")
    rule(box, lab, 2, node.name)
    limited = {"ip": lab.client(3).address, "target_node": "DIRECT", "download_limit_kbps": 9000}
    box.api().post("/rules", limited)
    assert lab.client(2).http(WEB).status == 200
    box.run("mkdir", "-p", BACKUPS)
    box.run("egressd", "backup", "--every", "24h", "--to", BACKUPS)
    assert box.state(TIMER) == "active"
    box.write(
        "/etc/systemd/system/egressd-api.service.d/override.conf",
        "[Service]\nEnvironment=EGRESSD_LOG_LEVEL=debug\n",
    )
