"""CI's second try of a failed file: the files that get one, and the conditions to pass."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Protocol

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", "/dev/null")


class Suite(Protocol):
    """Makes a suite of one test, of its name and the body of its file."""

    def __call__(
        self, text: str, file: str = ...
    ) -> tuple[tuple[str, ...], list[Path], tuple[str, ...]]: ...


@pytest.fixture
def ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return CI's module, for the checkout in `tmp_path`."""
    spec = importlib.util.spec_from_file_location("ci_checks", ROOT / ".ci" / "checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "ci_checks", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Return a maker of a suite of one test, by its name and the body of its file."""

    def make(
        text: str, file: str = "tests/test_it.py"
    ) -> tuple[tuple[str, ...], list[Path], tuple[str, ...]]:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        results = tmp_path / "results.xml"
        family = ("-o", "junit_family=xunit1", f"--rootdir={tmp_path}")
        return (*PYTEST, *family, f"--junit-xml={results}", file), [results], (*PYTEST, *family)

    return make


FAILS_ONCE = """
from pathlib import Path
def {name}():
    seen = Path({marker!r})
    again = seen.exists()
    seen.touch()
    assert again
def test_another():
    pass
"""


def test_a_passing_run_has_no_unstable_tests(ci: ModuleType, suite: Suite) -> None:
    assert ci.passes(*suite("def test_it(): pass")) == []


def test_a_test_that_fails_once_is_reported_as_unstable(
    ci: ModuleType, suite: Suite, tmp_path: Path
) -> None:
    text = FAILS_ONCE.format(name="test_it", marker=str(tmp_path / "marker"))
    assert [str(test) for test in ci.passes(*suite(text))] == ["tests/test_it.py::test_it"]


def test_a_test_that_fails_twice_fails_the_run(ci: ModuleType, suite: Suite) -> None:
    with pytest.raises(ci.Failure, match=r"tests/test_it\.py failed twice"):
        ci.passes(*suite("def test_it(): assert False"))


@pytest.mark.parametrize("number", range(1, 8))
def test_a_test_of_a_promise_has_no_second_try(
    ci: ModuleType, suite: Suite, tmp_path: Path, number: int
) -> None:
    name = f"test_p{number}_holds"
    text = FAILS_ONCE.format(name=name, marker=str(tmp_path / "marker"))
    with pytest.raises(ci.Failure, match=f"promises': tests/test_it.py::{name}"):
        ci.passes(*suite(text))


def test_tests_of_the_store_have_no_second_try(ci: ModuleType) -> None:
    assert ci.Test("tests/store/test_crash.py", "test_a_commit").is_of_a_promise
    assert not ci.Test("tests/lab/test_roles.py", "test_a_lan").is_of_a_promise


@pytest.mark.parametrize(
    "text", ["import os\nos._exit(1)", "def test_it():\n import os; os._exit(1)"]
)
def test_an_interrupted_run_is_not_repeated(ci: ModuleType, suite: Suite, text: str) -> None:
    with pytest.raises(ci.Failure, match="did not come to its end"):
        ci.passes(*suite(text))


def test_an_error_of_pytest_itself_is_not_repeated(ci: ModuleType, suite: Suite) -> None:
    argv, results, repeat = suite("def test_it(): pass")
    with pytest.raises(ci.Failure, match="ended with status 4"):
        ci.passes((*argv, "--no-such-option"), results, repeat)


def test_a_failed_command_without_failed_tests_is_not_repeated(
    ci: ModuleType, suite: Suite
) -> None:
    argv, results, repeat = suite("def test_it(): pass")
    subprocess.run(argv, cwd=ci.ROOT, check=True, stdout=subprocess.DEVNULL)
    with pytest.raises(ci.Failure, match="none of its tests did"):
        ci.passes(("false",), results, repeat)


SCRIPTS = {
    "setup": "echo setup $1 >> log",
    # Each waits for the other.
    "test": 'if [ "${1-}" = other-release ]; then shift; echo "$@" >> log; exit; fi;'
    " until grep -q prepare log; do sleep 0.01; done; echo test >> log",
    "other-release": "echo $1 >> log; until grep -q test log; do sleep 0.01; done; echo set up",
}


def test_the_other_release_is_set_up_beside_the_tests_of_this_one(
    ci: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in SCRIPTS.items():
        script = tmp_path / "script" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
    monkeypatch.setattr(ci, "PREPARED", tmp_path / "results" / "prepared.log")
    monkeypatch.setattr(ci, "slowest", lambda results: [])
    assert ci.test_both_releases() == []
    steps = " ".join(ci.OTHER_STEPS)
    assert (tmp_path / "log").read_text().splitlines() == ["setup --dev", "prepare", "test", steps]
    assert "\nset up\n" in capsys.readouterr().out


def test_the_slowest_files_are_named_with_their_durations(
    ci: ModuleType, suite: Suite, tmp_path: Path
) -> None:
    quick = suite("def test_a(): pass\ndef test_b(): pass", "tests/test_quick.py")
    slow = suite("import time\ndef test_it(): time.sleep(0.6)", "tests/test_slow.py")
    results: list[Path] = []
    for argv, (result,), _ in (quick, slow):
        subprocess.run(argv, cwd=ci.ROOT, check=True, stdout=subprocess.DEVNULL)
        results.append(result.rename(tmp_path / f"{len(results)}.xml"))
    assert ci.slowest(results) == [
        "1 s for 1 tests: tests/test_slow.py",
        "0 s for 2 tests: tests/test_quick.py",
    ]
