"""``egressd uninstall`` in a lab's router: it is then as it was before the first start."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from egressd.model.errors import Failed
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import add_nodes, send
from tests.support.kernel_state import changes, kernel_state

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

OF_THE_LAB = ("egressd.toml", "egressd.log")


@pytest.fixture
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5",), clients=3)) as lab:
        yield lab


def snapshot(lab: Lab) -> dict[str, list[str]]:
    """Return the state of the router's kernel, and the files of egressd's folders."""
    folder = lab.folder / "egressd"
    # The lab writes the configuration, and the log.
    files = {path for path in folder.rglob("*") if path.name not in OF_THE_LAB}
    return {**kernel_state(lab.router), "files": sorted(map(str, files))}


def differences(lab: Lab, before: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return what differs, by kind: see `changes`."""
    return changes(before, snapshot(lab))


@pytest.mark.parametrize(
    ("forward", "said"), [(0, "will be BLOCKED"), (1, "will be OPEN")], ids=["blocked", "open"]
)
def test_an_uninstalled_router_is_as_before_the_first_start(
    lab: Lab, forward: int, said: str
) -> None:
    lab.router.sysctl("net/ipv4/ip_forward", forward)
    before = snapshot(lab)
    lab.start_egressd()
    add_nodes(lab)
    send(lab, 1, "DIRECT")
    send(lab, 2, "socks5")
    lab.api.post(
        "/rules",
        {"ip": lab.client(3).address, "target_node": "DIRECT", "download_limit_kbps": 9000},
    )
    assert {"nft list ruleset", "parameters", "files", "ip -4 rule", "ip -brief link"} <= {
        *differences(lab, before)
    }, "the snapshot sees what egressd changes"
    with pytest.raises(Failed, match="it still runs in this network namespace"):
        lab.device.run("uninstall", "--yes")
    assert lab.client(1).http("http://203.0.113.10/").status == 200, "nothing has changed"
    lab.device.stop()
    assert said in lab.device.run("uninstall", "--yes")
    assert differences(lab, before) == {}
    assert not lab.device.config.exists()
    assert [lab.device.pids(part) for part in ("egressd.app", "egressd.netd")] == [[], []]
    assert "is removed already" in lab.device.run("uninstall", "--yes")


def test_an_interrupted_removal_goes_on_at_the_next_call(lab: Lab) -> None:
    before = snapshot(lab)
    lab.start_egressd()
    send(lab, 1, "DIRECT")
    lab.device.kill()
    lab.device.start()
    lab.device.stop()
    busy = lab.device.data / "update"
    busy.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", busy], check=True)
    try:
        with pytest.raises(Failed, match="busy"):
            lab.device.run("uninstall", "--yes")
    finally:
        subprocess.run(["umount", busy], check=True)
    assert lab.device.config.exists()
    lab.device.run("uninstall", "--yes")
    assert differences(lab, before) == {}


def test_kept_data_are_in_force_again_at_the_next_start(lab: Lab) -> None:
    before = snapshot(lab)
    lab.start_egressd()
    send(lab, 1, "DIRECT")
    lab.device.stop()
    said = lab.device.run("uninstall", "--yes", "--keep-data")
    assert f"it keeps {lab.device.data} and {lab.device.config}" in said
    assert {*differences(lab, before)} == {"files"}
    lab.device.start()
    assert lab.client(1).http("http://203.0.113.10/").status == 200
    lab.device.stop()
