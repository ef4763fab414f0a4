"""Everything that has to pass before a change lands.

`script/test` on this machine's Debian release, and a part of it on the other, which is set up
meanwhile. A file with a failed test is run once more, alone: a test that fails twice fails the run,
one that passes then is listed as unstable in the last lines. Tests of promises are never repeated:
a leak that shows now and then is a leak.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "tests"
"""JUnit files of each pytest run of `script/test`."""
RESULTS_OTHER = ROOT / "build" / "tests-other-release"
RUNS = ("together.xml", "alone.xml")
"""The JUnit files of a whole run on this release, in order."""
OTHER_STEPS = ("unit", "demo", "leaks", "ruleset")
RUNS_OTHER = ("unit.xml", "leaks.xml", "in_the_kernel.xml")
"""The JUnit files of these steps on the other release."""
PREPARED = RESULTS_OTHER / "prepared.log"
"""The output of the other release's set-up."""
COVERAGE = RESULTS_OTHER / "coverage.json"
"""The coverage of the unit tests. The other release runs them once more, so they can be slower."""
TESTS_FAILED = 1
"""pytest's exit status when it came to its end and some tests failed."""

SLOWEST = 20
"""Tests and files of tests that are named with their durations."""

PROMISE = re.compile(r"test_p[1-7]_")


class Failure(Exception):
    """The run has failed; the text says why."""


class Test(NamedTuple):
    """A test that failed."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file}::{self.name}"

    @property
    def is_of_a_promise(self) -> bool:
        return self.file.startswith("tests/store/") or bool(PROMISE.match(self.name))


def failed_tests(results: Path) -> list[Test]:
    """Read the tests that failed, or whose fixtures did, from a JUnit file (family xunit1).

    Raises OSError and ElementTree.ParseError when the run did not come to its end.
    """
    failed = []
    for case in ElementTree.parse(results).iter("testcase"):  # noqa: S314 - pytest wrote it
        if case.find("failure") is not None or case.find("error") is not None:
            name, file = case.get("name", ""), case.get("file", "")
            failed.append(Test(file or name, name))
    return failed


def run(*argv: str) -> int:
    """Run a command of the checkout; return its exit status."""
    print(f"ci: {' '.join(argv)}", flush=True)
    begun = time.monotonic()
    status = subprocess.run(argv, cwd=ROOT, check=False).returncode
    took = time.monotonic() - begun
    print(f"ci: {argv[0]} ended with status {status} after {took:.0f} s", flush=True)
    return status


def passes(argv: tuple[str, ...], results: list[Path], repeat: tuple[str, ...]) -> list[Test]:
    """Run a command, and once more each file with a test that failed.

    `results` are the JUnit files that the command writes, and `repeat` the command that runs a
    file, which is appended to it. Returns the tests that failed once and not twice. Raises Failure.
    """
    status = run(*argv)
    if status == 0:
        return []
    if status != TESTS_FAILED:
        raise Failure(f"{shlex.join(argv)} ended with status {status}")
    try:
        failed = [test for file in results for test in failed_tests(file)]
    except (OSError, ElementTree.ParseError) as error:
        raise Failure(f"{shlex.join(argv)} did not come to its end: {error}") from error
    if not failed:
        raise Failure(f"{shlex.join(argv)} failed, and none of its tests did")
    if promises := [test for test in failed if test.is_of_a_promise]:
        raise Failure(f"not repeated, since they are promises': {', '.join(map(str, promises))}")
    for file in sorted({test.file for test in failed}):
        if run(*repeat, file):
            raise Failure(f"{file} failed twice")
    return failed


def slowest(results: list[Path]) -> list[str]:
    """Return a line for each of the files of tests that took longest, fixtures included.

    Raises OSError and ElementTree.ParseError as `failed_tests` does.
    """
    seconds: dict[str, float] = {}
    number: Counter[str] = Counter()
    for file in results:
        for case in ElementTree.parse(file).iter("testcase"):  # noqa: S314 - pytest wrote it
            name = case.get("file", case.get("name", ""))
            seconds[name] = seconds.get(name, 0.0) + float(case.get("time", 0))
            number[name] += 1
    return [
        f"{took:.0f} s for {number[name]} tests: {name}"
        for name, took in sorted(seconds.items(), key=lambda each: -each[1])[:SLOWEST]
    ]


def coverage() -> list[str]:
    """Return a line for each room and the lab: the part of its statements that unit tests run.

    Raises OSError if there is no report.
    """
    run_by_room: Counter[str] = Counter()
    all_by_room: Counter[str] = Counter()
    for path, report in json.loads(COVERAGE.read_text())["files"].items():
        room = path.removeprefix("src/").removeprefix("egressd/").partition("/")[0]
        for name in (room, "all rooms"):
            run_by_room[name] += report["summary"]["covered_lines"]
            all_by_room[name] += report["summary"]["num_statements"]
    return [
        f"{name}: {run_by_room[name] / number:.0%} of {number:,}"
        for name, number in sorted(all_by_room.items())
        if number
    ]


@contextmanager
def other_release_set_up() -> Iterator[None]:
    """Set up the other release beside what is done inside: it mostly waits for the network. Its run
    says what has failed, if something has.
    """
    PREPARED.parent.mkdir(parents=True, exist_ok=True)
    with PREPARED.open("w") as log:
        preparing = subprocess.Popen(
            ("script/other-release", "prepare"), cwd=ROOT, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            preparing.wait()
    print(PREPARED.read_text(errors="replace"), end="", flush=True)


def test_both_releases() -> list[Test]:
    """Run all tests; return those that failed once and not twice. Raises Failure."""
    own = [RESULTS / name for name in RUNS]
    if run("script/setup", "--dev"):
        raise Failure("this machine could not be set up")
    with other_release_set_up():
        unstable = passes(("script/test",), own, (".venv/bin/pytest", "-rs"))
        for line in slowest(own):
            print(f"ci: {line}")
    other = ("script/test", "other-release")
    theirs = [RESULTS_OTHER / name for name in RUNS_OTHER]
    return unstable + passes((*other, *OTHER_STEPS), theirs, other)


def main() -> int:
    for folder in (RESULTS, RESULTS_OTHER):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        unstable = test_both_releases()
    except Failure as failure:
        print(f"ci: FAILED: {failure}")
        return 1
    for line in coverage():
        print(f"ci: statements that unit tests run, {line}")
    for test in unstable:
        print(f"ci: unstable, failed once and passed alone: {test}")
    print(f"ci: passed, {len(unstable)} unstable")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("CI", "true")
    os.environ.setdefault("PYTEST_ADDOPTS", f"--durations={SLOWEST}")
    sys.exit(main())
