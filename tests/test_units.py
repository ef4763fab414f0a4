"""The systemd units: systemd reads them as intended, and they are confined."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UNITS = sorted((ROOT / "packaging" / "systemd").iterdir())

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze"
)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the units as script/install writes them."""
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text().replace("@ROOT@", str(ROOT)))
    return tmp_path


def settings(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (ROOT / "packaging" / "systemd" / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).extend(value.split())
    return found


@needs_systemd
def test_systemd_reports_no_problem(installed: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", *installed.iterdir()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    ours = [line for line in done.stderr.splitlines() if "egressd" in line]
    assert not [line for line in ours if "is not executable" not in line]


@needs_systemd
@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("egressd-api", 2.0),
        ("egressd-netd", 4.8),
        ("egressd-block", 3.5),
        ("egressd-timed-backup", 4.0),
    ],
)
def test_the_exposure_level_is_low(installed: Path, name: str, limit: float) -> None:
    unit = installed / f"{name}.service"
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", unit],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    level = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert level is not None, done.stderr
    assert float(level[1]) <= limit


def test_netd_reads_the_list_of_kernel_modules_and_loads_none() -> None:
    """`ProtectKernelModules` would hide the list, and each module would count as unknown."""
    netd = settings("egressd-netd.service")
    assert "ProtectKernelModules" not in netd
    assert "CAP_SYS_MODULE" not in netd["CapabilityBoundingSet"]
    assert netd["CapabilityBoundingSet"][0].startswith(
        "CAP_"
    )  # a list of what is left, not of losses
    # systemd.exec(5): @module is no part of @system-service.
    assert netd["SystemCallFilter"] == ["@system-service", "@mount", "bpf"]


def test_p1_the_guard_of_the_boot_needs_no_egressd_process() -> None:
    guard = settings("egressd-guard.service")
    assert {"network-pre.target", "egressd-netd.service"} <= set(guard["Before"])
    assert guard["DefaultDependencies"] == ["no"]
    assert guard["After"] == ["nftables.service"]  # its ruleset begins with a flush
    assert guard["ExecStart"][0] == "/usr/sbin/nft"
    assert guard["RemainAfterExit"] == ["yes"]  # or a later start of netd would start it again
    assert "ExecStop" not in guard


def test_p1_netd_starts_before_the_network_and_always_restarts() -> None:
    """Past fault: if the kernel ended one worker for lack of memory, systemd stopped the whole
    unit, lines included (`OOMPolicy`).
    """
    netd = settings("egressd-netd.service")
    assert "network-pre.target" in netd["Before"]
    assert "network-pre.target" in netd["Wants"]
    # otherwise it would be ordered after sysinit.target
    assert netd["DefaultDependencies"] == ["no"]
    assert netd["Type"] == ["notify"]  # not started before the guard is in force
    assert netd["KillMode"] == ["process"]
    assert netd["OOMPolicy"] == ["continue"]  # otherwise the loss of a worker would stop the unit
    assert netd["Restart"] == ["always"]
    assert netd["StartLimitIntervalSec"] == ["0"]
    assert "ExecStopPost" not in netd


def test_p1_clients_are_blocked_if_a_stopped_netd_did_not_block_them() -> None:
    block, netd = settings("egressd-block.service"), settings("egressd-netd.service")
    assert block["PartOf"] == ["egressd-netd.service"]  # stopped with it,
    assert "egressd-netd.service" in block["Before"]  # and after it
    assert "egressd-block.service" in netd["Wants"]
    assert " ".join(block["ExecStop"]).endswith("-P -m egressd.app block; sleep 0.1; done'")
    assert block["RemainAfterExit"] == ["yes"]
    # It removes the fast path of known flows, which it finds by the kernel's list of programs.
    assert "bpf" in block["SystemCallFilter"]
    assert "CAP_SYS_ADMIN" in block["CapabilityBoundingSet"]


def test_the_api_has_no_capabilities_and_its_own_user() -> None:
    api = settings("egressd-api.service")
    assert api["CapabilityBoundingSet"] == api["AmbientCapabilities"] == []
    assert api["User"] == ["egressd"]


def test_a_path_that_systemd_cannot_express_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "of mine & yours" / "script" / "install"
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / "script" / "install", script)
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "cannot name" in done.stderr
    assert "/of mine & yours:" in done.stderr
