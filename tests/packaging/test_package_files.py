"""The content of a package, without a machine."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from egressd.app import config, toml_values
from tests.support.packages import AFTER, ARCHITECTURE, BEFORE, full, package

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


def deb(repository: Path, suite: str, version: str) -> Path:
    return repository / f"pool/{suite}/egressd_{version}_{suite}_{ARCHITECTURE}.deb"


@pytest.fixture(scope="session")
def files(repository: Path, suite: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the unpacked package."""
    folder: Path = tmp_path_factory.mktemp("files")
    built = deb(repository, suite, BEFORE)
    subprocess.run(["dpkg-deb", "--raw-extract", built, folder], check=True)
    return folder


def test_a_package_does_not_depend_on_when_and_by_whom_it_is_built(
    repository: Path, suite: str, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    command = f'umask 077; export TMPDIR="{tmp_path}/elsewhere" TZ=Asia/Shanghai; exec "$@"'
    package(
        ["--suite", suite, "--arch", ARCHITECTURE],
        tmp_path,
        AFTER,
        prefix=["sh", "-c", command, "-"],
    )
    first, second = deb(repository, suite, AFTER), deb(tmp_path, suite, AFTER)
    assert (
        hashlib.sha256(first.read_bytes()).digest() == hashlib.sha256(second.read_bytes()).digest()
    )


def test_all_belongs_to_root_and_nothing_is_compiled(repository: Path, suite: str) -> None:
    listed = subprocess.run(
        ["dpkg-deb", "--contents", deb(repository, suite, BEFORE)],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert {line.split()[1] for line in listed} == {"root/root"}
    modes = {line.split()[0] for line in listed}
    assert modes == {"drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x", "lrwxrwxrwx"}
    assert not [line for line in listed if ".pyc" in line or "__pycache__" in line]
    assert [line for line in listed if line.endswith("/egressd/console/page/index.html")]


def test_a_process_keeps_to_the_version_it_began_with(files: Path, suite: str) -> None:
    for name in ("egressd", "egressd-process"):
        first, *_ = (files / "opt/egressd/unpacked/bin" / name).read_text().splitlines()
        assert first == f"#!/opt/egressd/{full(suite, BEFORE)}/bin/python -P"


def test_units_name_nothing_of_a_checkout(files: Path) -> None:
    tree = files / "opt/egressd/unpacked"
    units = [*(tree / "systemd").iterdir(), tree / "guard/egressd-guard.service"]
    assert len(units) == 6
    for unit in units:
        text = unit.read_text()
        assert "@" not in re.sub(r"@system-service|@mount|@privileged|@resources", "", text)
        assert ".venv" not in text
        assert "script/install" not in text
    for unit in (tree / "systemd").iterdir():
        if unit.suffix == ".service":
            assert "/opt/egressd/current/bin/egressd-process" in unit.read_text()
        link = files / "usr/lib/systemd/system" / unit.name
        assert str(link.readlink()) == f"/opt/egressd/current/systemd/{unit.name}"
    # It outlives the package.
    assert "/opt" not in units[-1].read_text()
    assert "/usr/sbin/nft -f /etc/egressd/guard.nft" in units[-1].read_text()


def test_files_that_an_operator_may_change_are_configuration(files: Path) -> None:
    listed = (files / "DEBIAN/conffiles").read_text().split()
    assert listed == [
        f"/{p.relative_to(files)}" for p in sorted(files.glob("etc/**/*.*")) if p.is_file()
    ]


@pytest.mark.parametrize("name", SCRIPTS)
def test_maintainer_scripts_are_of_the_plain_shell(files: Path, name: str) -> None:
    script = files / "DEBIAN" / name
    assert "@" not in script.read_text().replace("$@", "")
    subprocess.run(["dash", "-n", script], check=True)


def test_the_sample_of_the_configuration_changes_nothing(files: Path) -> None:
    text = (files / "usr/share/doc/egressd/examples/egressd.toml").read_text()
    assert config.read(tomllib.loads(text)) == config.Config()
    keys = re.sub(r"^# ", "", text, flags=re.MULTILINE)
    assert config.read(tomllib.loads(keys))
    assert keys.count("\n[") == len(toml_values.keys(config.Config)) - 1


def test_licenses_and_manual_travel_in_it(files: Path) -> None:
    documents = files / "usr/share/doc/egressd"
    assert "svelte" in (documents / "licenses-of-the-console.txt").read_text()
    for name in ("NOTICE", "copyright", "docs/operations.md"):
        assert (documents / name).exists()
    packages = files / "opt/egressd/unpacked/lib"
    assert [*packages.glob("python3.*/site-packages/sing_box_python-*/licenses/LICENSE*")]
    manual = files / "usr/share/man/man1"
    assert {"egressd.1.gz", "egressd-rules-add.1.gz"} <= {page.name for page in manual.iterdir()}
    for page in manual.iterdir():
        said = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", page],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert said.stderr == ""
