"""An upgrade of the nftables library under a running device is seen, and the device adopts it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import SERVER, eventually, send
from tests.support.programs import socks

pytestmark = pytest.mark.lab

LIBRARY = "libnftables.so.1"


@pytest.fixture
def libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder whose copy of the library the device loads."""
    (installed,) = Path("/usr/lib").glob(f"*/{LIBRARY}")
    tmp_path.chmod(0o755)
    shutil.copy(installed, tmp_path / LIBRARY)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return tmp_path


@pytest.fixture
def lab(namespaces: None, libraries: Path) -> Iterator[Lab]:
    with Lab(LabSpec(wans=2, nodes=())) as lab:
        lab.start_egressd()
        yield lab


def is_told(lab: Lab) -> bool:
    problems: list[str] = lab.api.ask("GET", "/ops/overview").body["problems"]
    return any("nftables library was upgraded" in problem for problem in problems)


def test_an_upgrade_is_reported_and_a_reload_adopts_it(lab: Lab, libraries: Path) -> None:
    send(lab, 1, "Interface:wan2")
    body = {"name": "s", "outbound_interface": "wan2", "port": 1080, "is_enabled": True}
    lab.api.post("/proxy-services", {**body, "username": "", "password": ""})
    flow = lab.client(1).connect(SERVER)
    with lab.client(1).host.socket(str(LAN_ADDRESS), 1080) as control:
        control.settimeout(3)
        socks.negotiate(control, "", "")
        relay = socks.request(control, socks.ASSOCIATE, "0.0.0.0", 0)
        assert not is_told(lab)
        shutil.copy(libraries / LIBRARY, libraries / "newer")
        (libraries / "newer").rename(libraries / LIBRARY)  # as dpkg(1) replaces a file
        eventually(lambda: is_told(lab))
        (pid,) = lab.device.pids("egressd.app netd")
        os.kill(pid, signal.SIGUSR1)  # the signal of `systemctl reload egressd-netd`
        eventually(lambda: lab.device.pids("egressd.app netd") not in ([], [pid]), 20)
        eventually(lambda: lab.api.ask("GET", "/ops/health").status == 200, 20)
        assert not is_told(lab)
        assert flow.exchange("still here").text == "still here"
        listed = lab.router.run("nft", "list", "map", "inet", "egressd", "relay_ports").stdout
        assert f"{relay[1]:#x} :" in listed
