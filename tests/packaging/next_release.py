"""An apt repository of the packages that a Debian 12 machine gets from Debian 13."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from tests.support.packages import KEPT_S, dependencies, locked, root_of

OLD: Final = "bookworm"
NEW: Final = "trixie"

_DOWNLOAD: Final = """\
set -e
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
mount -t proc proc /proc
apt-get --yes --quiet install {packages}
apt-get clean
sed -i 's/{old}/{new}/g' /etc/apt/sources.list
apt-get --quiet update
apt-get --yes --quiet --download-only full-upgrade
"""


def pool() -> Path:
    """Return the folder, made again if it is older than a week. Raises Failed."""
    root = root_of(OLD)
    folder = root.with_name(f"{root.name}-to-{NEW}")
    index = folder / "Packages"
    with locked(folder):
        if index.exists() and time.time() - index.stat().st_mtime < KEPT_S:
            return folder
        files = folder.with_name(f"{folder.name}.new")
        for old in (folder, files):
            shutil.rmtree(old, ignore_errors=True)
        subprocess.run(["cp", "-a", root, files], check=True)
        script = _DOWNLOAD
        for name, value in (
            ("packages", " ".join(dependencies())),
            ("old", OLD),
            ("new", NEW),
        ):
            script = script.replace(f"{{{name}}}", value)
        done = subprocess.run(
            ["unshare", "--mount", "chroot", files, "sh"],
            input=script, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"download the packages of {NEW}", (done.stdout + done.stderr)[-1000:])
        shutil.copytree(files / "var/cache/apt/archives", folder)
        shutil.rmtree(files)
        listed = subprocess.run(
            ["apt-ftparchive", "packages", "."],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        index.write_text(listed.stdout)
    return folder
