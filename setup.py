"""Refuse to build a wheel or a source archive that would lack files; pyproject.toml has the rest.

The console's page is built by Node and not in git. setuptools would leave it out without a word.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
PAGE = ROOT / "src" / "egressd" / "console" / "page"
SERVICES = ("api", "block", "guard", "netd", "timed-backup")
DATA = (
    "guard.nft",
    "sysusers.conf",
    *(f"systemd/egressd-{name}.service" for name in SERVICES),
    "systemd/egressd-timed-backup.timer",
)
"""Files below packaging/ that the wheel installs to share/egressd."""


def check() -> None:
    """Exit with a sentence if files are missing."""
    if lacking := page_lacking():
        sys.exit(
            f"egressd: the console's page is not complete: {PAGE} has no {lacking}. It is not in"
            " git: `script/setup` builds it. Run that in this checkout, then build again"
        )
    if missing := [name for name in DATA if not (ROOT / "packaging" / name).is_file()]:
        sys.exit(
            f"egressd: packaging/{missing[0]} is missing: build from a whole checkout, or from a"
            " source archive that was made of one"
        )


def page_lacking() -> str:
    """Return the name of a file that the page lacks; empty if it is complete."""
    index = PAGE / "index.html"
    if not index.is_file():
        return index.name
    named = re.findall(r'(?:src|href)="\./([^"]+)"', index.read_text())
    wanted = ["licenses.txt", *named]
    return next((name for name in wanted if not (PAGE / name).is_file()), "")


class BuildModules(build_py):
    """Modules and data of the wheel, without those of earlier builds."""

    def run(self) -> None:
        if not self.editable_mode:  # script/setup installs the checkout before it builds the page
            check()
            # The page's files have digests in their names, so those of earlier builds would stay.
            shutil.rmtree(Path(self.build_lib) / "egressd", ignore_errors=True)
        super().run()


class SourceArchive(sdist):
    """The archive that ``python -m build`` makes first, with the page in it."""

    def run(self) -> None:
        check()
        super().run()


setup(cmdclass={"build_py": BuildModules, "sdist": SourceArchive})
