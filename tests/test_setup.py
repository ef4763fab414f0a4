"""Set-up: it reports a failure in a sentence, and continues once the cause is removed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest

from tests.support.scripts import load

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent

Say = Callable[..., None]


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script, for a checkout that has no virtual environment yet."""
    module = load("setup")
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    return module


@pytest.fixture
def programs(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Return a setter of programs' results: the first words of a command -> status and output."""

    def say(**said: tuple[int, str]) -> None:
        def captured(*argv: str, **_: object) -> subprocess.CompletedProcess[str]:
            (status, output), *_more = [found for word, found in said.items() if word in argv]
            return subprocess.CompletedProcess(argv, status, output)

        monkeypatch.setattr(setup, "captured", captured)

    return say


def sentence(call: Callable[[], object]) -> str:
    with pytest.raises(SystemExit) as ended:
        call()
    text = str(ended.value)
    assert "\n" not in text
    assert text.startswith("setup: ")
    return text


@pytest.mark.parametrize(
    ("python", "why"),
    [
        ("3.10", "this is Python 3.10"),
        ("3.14", "this is Python 3.14, for which immutables cannot be had"),
    ],
)
def test_an_unsupported_python_is_reported(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, python: str, why: str
) -> None:
    monkeypatch.setattr(setup, "PYTHON", python)
    told = sentence(setup.check_machine)
    assert told == f"setup: egressd runs on Python 3.11, 3.12 and 3.13; {why}"


def test_an_unsupported_processor_is_reported(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup.platform, "machine", lambda: "armv7l")
    assert sentence(setup.check_machine).endswith("runs on x86_64 and aarch64; this is armv7l")


# Messages of apt 3.0 and 2.6.
UNREACHED = (
    "W: Failed to fetch http://192.0.2.1/debian/dists/trixie/InRelease  "
    "Unable to connect to 192.0.2.1:80:\n"
    "W: Some index files failed to download. They have been ignored, or old ones used instead."
)
UNKNOWN = "E: Unable to locate package xl2tpd"


def test_an_unreachable_mirror_is_reported(setup: ModuleType, programs: Say) -> None:
    programs(update=(0, UNREACHED), install=(100, UNKNOWN))
    assert sentence(lambda: setup.apt_install(["xl2tpd"])) == (
        "setup: the mirror of Debian's packages cannot be reached: Failed to fetch"
        " http://192.0.2.1/debian/dists/trixie/InRelease  Unable to connect to 192.0.2.1:80"
    )


def test_a_mirror_that_fails_during_a_download_is_reported(
    setup: ModuleType, programs: Say
) -> None:
    failed = "E: Failed to fetch http://192.0.2.1/x.deb  404  Not Found\nE: Unable to fetch some"
    programs(update=(0, ""), install=(100, failed))
    told = sentence(lambda: setup.apt_install(["xl2tpd"]))
    assert told.startswith(
        "setup: the mirror of Debian's packages cannot be reached: Failed to fetch"
    )


def test_a_missing_package_is_reported(setup: ModuleType, programs: Say) -> None:
    programs(update=(0, ""), install=(100, UNKNOWN))
    told = sentence(lambda: setup.apt_install(["xl2tpd"]))
    assert told.endswith("(/etc/apt) has a package: Unable to locate package xl2tpd")


def test_an_unneeded_mirror_may_be_unreachable(setup: ModuleType, programs: Say) -> None:
    programs(update=(100, UNREACHED), install=(0, ""))
    setup.apt_install(["xl2tpd"])


def test_another_reason_of_apt_is_reported(setup: ModuleType, programs: Say) -> None:
    lock = "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 9 (apt)"
    programs(update=(0, ""), install=(100, lock))
    told = sentence(lambda: setup.apt_install(["ppp", "xl2tpd"]))
    assert told == f"setup: apt-get could not install ppp xl2tpd: {lock.removeprefix('E: ')}"


def test_an_unreachable_package_index_is_reported(setup: ModuleType, programs: Say) -> None:
    reason = "NewConnectionError('Temporary failure in name resolution')"
    tries = f"WARNING: Retrying (Retry(total=0)) after connection broken by '{reason}': /x/\n"
    programs(install=(1, f"{tries}ERROR: No matching distribution found for x==1"))
    told = sentence(lambda: setup.pip("requirements/x.txt", "install"))
    assert told == f"setup: the index of Python packages cannot be reached: {reason}"


def test_a_wrong_digest_is_reported(setup: ModuleType, programs: Say) -> None:
    programs(install=(1, "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS."))
    told = sentence(lambda: setup.pip("requirements/x.txt", "install"))
    assert told.startswith("setup: pip could not install requirements/x.txt: THESE PACKAGES DO NOT")


@pytest.mark.parametrize("left", ["nothing", "half", "other", "file"])
def test_an_incomplete_environment_is_made_again(setup: ModuleType, left: str) -> None:
    if left == "file":
        setup.VENV.touch()
    elif left != "nothing":
        version = "python3.9" if left == "other" else f"python{setup.PYTHON}"
        (setup.VENV / "lib" / version).mkdir(parents=True)
        (setup.VENV / "bin").mkdir()
        (setup.VENV / "bin" / "python").symlink_to(sys.executable)
        if left == "other":
            (setup.VENV / "bin" / "pip").write_text(f"#!{setup.VENV}/bin/python\n")
    assert not setup.has_venv()
    setup.make_venv()
    assert setup.has_venv()
    made = (setup.VENV / "pyvenv.cfg").stat().st_mtime_ns
    setup.make_venv()
    assert (setup.VENV / "pyvenv.cfg").stat().st_mtime_ns == made


def test_byte_code_is_made_where_it_is_missing_or_older(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(setup, "VENV", Path(sys.prefix))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    sources = [tmp_path / "package" / name for name in ("one.py", "two.py")]
    sources[0].parent.mkdir()
    for source in sources:
        source.write_text("NUMBER = 1\n")
        os.utime(source, (1, 1))
    setup.compile_modules(tmp_path)
    one, two = (Path(cache_from_source(source)) for source in sources)
    first = [each.stat().st_mtime_ns for each in (one, two)]
    sources[1].write_text("NUMBER = 22\n")
    setup.compile_modules(tmp_path)
    assert one.stat().st_mtime_ns == first[0]
    assert two.stat().st_mtime_ns > first[1]


def test_a_missing_byte_code_stops_nothing(
    setup: ModuleType, programs: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(compileall=(1, "*** PermissionError: [Errno 13] Permission denied: 'one.pyc'"))
    setup.compile_modules(ROOT / "src")
    said = capsys.readouterr().err
    assert said.startswith("setup: starts will be slow, without byte code: ")
    assert "Permission denied" in said


@pytest.mark.parametrize("option", [[], ["--device"], ["--dev"]])
def test_a_checkout_gets_the_lab_once_and_a_device_does_not(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, option: list[str]
) -> None:
    """A virtual environment of before, with all else in place, gets it without the network."""
    for step in ("check_machine", "install_packages", "packages_missing", "unpack_packages",
                 "make_users", "install_python", "compile_modules", "build_page",
                 "install_web"):  # fmt: skip
        monkeypatch.setattr(setup, step, lambda *_: None)
    asked: list[tuple[str, ...]] = []

    def captured(*argv: str, **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(argv)
        return subprocess.CompletedProcess(argv, 0, "")

    monkeypatch.setattr(setup, "captured", captured)
    monkeypatch.setattr(sys, "argv", ["setup", *option])
    setup.VENV.mkdir()
    for _ in range(2):
        setup.main()
    if option == ["--device"]:
        assert asked == []
    else:
        ((pip, *arguments),) = asked
        assert pip == str(setup.VENV / "bin" / "pip")
        assert arguments[-2:] == ["-e", str(ROOT / "lab")]
        assert {"--no-index", "--no-deps", "--no-build-isolation"} <= {*arguments}


def test_each_release_has_a_server_for_each_node_of_the_lab() -> None:
    """A package that is missing in one release has a replacement there."""
    found = load("setup").RELEASE_PACKAGES
    assert {"dante-server", "shadowsocks-v2ray-plugin"} <= found["bookworm"].keys()
    assert "v2ray" in found["trixie"]


@pytest.mark.lab
@pytest.mark.parametrize(("ci", "status"), [("true", 1), ("", 0)])
def test_without_a_root_file_system_ci_fails_and_others_skip(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    status: int,
) -> None:
    other = load("other-release")
    monkeypatch.setattr(other, "CACHE", tmp_path)
    monkeypatch.setattr(other, "mirror", lambda _: "http://127.0.0.1:9/debian")
    monkeypatch.setattr(sys, "argv", ["other-release", "unit"])
    monkeypatch.setenv("CI", ci)
    assert other.main() == status
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith(f"other-release: {'failed' if ci else 'skipped'}, with no root: ")
    assert [*tmp_path.iterdir()] == []


def test_the_longest_steps_of_the_other_release_run_beside_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = load("other-release")
    together = threading.Barrier(3)

    def enter(root: Path, command: str, *, output: IO[str]) -> int:
        together.wait()
        output.write(f"ran {command}\n")
        return 0

    monkeypatch.setattr(other, "enter", enter)
    assert other.run_steps(tmp_path, ["unit", "demo", "leaks"], tmp_path) == 0
    printed = capsys.readouterr()
    for step in ("unit", "demo", "leaks"):
        assert f"ran {other.STEPS[step]}\n" in printed.out
        assert f"{step} on {tmp_path.name}: passed" in printed.err


def test_the_other_release_can_be_set_up_without_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = load("other-release")
    entered = []

    def enter(root: Path, command: str, *, network: bool) -> int:
        entered.append((root, command.rpartition("; ")[2], network))
        return 0

    for name, replacement in {
        "root_of": lambda _: tmp_path,
        "copy_settings": lambda _: None,
        "copy_checkout": lambda _: None,
        "enter": enter,
    }.items():
        monkeypatch.setattr(other, name, replacement)
    monkeypatch.setattr(other.os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["other-release", "prepare"])
    assert other.main() == 0
    assert entered == [(tmp_path, "script/setup --dev", True)]


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ({}, 0),
        ({"leaks": 1}, 1),
        ({"tests/lab/test_roles.py": 1}, 1),
        ({"demo": 1}, 2),
        ({"unit": 1, "demo": 1}, 2),
        ({"unit": 4}, 2),
        ({"unit": -9, "leaks": 1}, 2),
    ],
)
def test_failed_tests_of_the_other_release_have_a_status_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: dict[str, int], status: int
) -> None:
    """CI repeats failed tests, and neither other checks nor tests that did not come to an end."""
    other = load("other-release")
    by_command = {other.command_of(step): code for step, code in ended.items()}
    monkeypatch.setattr(other, "enter", lambda _, command, output: by_command.get(command, 0))
    steps = ["unit", "demo", "leaks", "tests/lab/test_roles.py"]
    assert other.run_steps(tmp_path, steps, tmp_path) == status
