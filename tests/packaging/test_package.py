"""script/package and the maintainer scripts, without a package built."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import pytest

import egressd.cli as command_line
from egressd.cli import COMMANDS, update
from egressd.planner import registry
from tests.support.scripts import load

ROOT = Path(__file__).resolve().parent.parent.parent
DEBIAN = ROOT / "packaging" / "debian"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load("package")


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_suite_and_processor_has_all_wheels(
    script: ModuleType, suite: str, machine: str
) -> None:
    python = script.SUITES[suite].python
    lock = (ROOT / f"requirements/runtime-{python}.txt").read_text()
    wheels = script.pinned(python, machine)
    pinned = {f"{wheel.package}=={wheel.version}" for wheel in wheels}
    assert pinned == set(re.findall(r"^[a-z0-9-]+==\S+", lock, re.MULTILINE)) - {
        f"setuptools=={re.search('^setuptools==(.*) ', lock, re.MULTILINE)[1]}"  # type: ignore[index]
    }
    native = {wheel.file for wheel in wheels if not wheel.file.endswith("-any.whl")}
    assert native
    assert all(machine in file for file in native)


def test_purge_finds_what_egressd_marks_as_its_own() -> None:
    text = (DEBIAN / "postrm").read_text()
    assert f"protocol={registry.ROUTE_PROTOCOL} " in text
    for name in (registry.NFT_TABLE, registry.NFT_HOLD_TABLE):
        assert f"inet {name}'" in text
    for name in (registry.UPLOAD_DEVICE, registry.DOWNLOAD_DEVICE):
        assert f"/sys/class/net/{name}*" in text


def test_the_purge_script_starts_debconf_outside_of_functions() -> None:
    """Past fault: debconf starts the script again with the arguments of the function that loads it,
    so nothing was purged.
    """
    text = (DEBIAN / "postrm").read_text()
    assert "confmodule" in text.partition("case $1 in")[2]
    assert ". /usr/share/debconf/confmodule" not in text.partition("case $1 in")[0]


def test_update_recognises_the_refusal_of_a_database() -> None:
    assert update._REFUSAL in (DEBIAN / "preinst").read_text()


def test_manual_pages_are_of_egressd_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout's command line has the lab's commands, too; a device's has not."""
    added = click.Command("lab", help="Not a device's.")
    monkeypatch.setitem(sys.modules, "other_distribution", SimpleNamespace(lab=added))
    monkeypatch.setattr(command_line, "_added", lambda: {"lab": "other_distribution:lab"})
    assert "lab" in command_line.cli.list_commands(click.Context(command_line.cli))
    load("manual.py", "packaging").main(tmp_path)
    found = {page.name for page in (tmp_path / "man1").iterdir()}
    assert {f"egressd-{name}.1" for name in COMMANDS} < found
    assert not [name for name in found if name.startswith("egressd-lab")]
    assert "lab" not in (tmp_path / "man1" / "egressd.1").read_text()


@pytest.mark.slow
def test_a_suite_or_version_that_there_is_not() -> None:
    for argv, said in (
        (["--suite", "sid"], "invalid choice: 'sid'"),
        (["--arch", "armhf"], "invalid choice: 'armhf'"),
        (["--version", "1.0-1"], 'the version "1.0-1" must be'),
    ):
        done = subprocess.run(
            [ROOT / "script/package", *argv], capture_output=True, text=True, check=False
        )
        assert done.returncode
        assert said in done.stderr
