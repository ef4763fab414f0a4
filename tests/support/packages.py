"""Packages of egressd, and the minimal Debian releases that they are tried on."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from egressd.model.errors import Failed

ROOT: Final = Path(__file__).resolve().parent.parent.parent

asked_for = pytest.mark.skipif(
    "EGRESSD_MACHINES" not in os.environ, reason="script/test machines asks for it"
)
"""The mark of tests that need minutes each."""

BEFORE: Final = "0.0.1"
AFTER: Final = "0.0.2"
"""The versions of the repository's packages, both made from this checkout."""


NUMBERS: Final = {"bookworm": 12, "trixie": 13}
"""Release -> its number, which is a part of the package's version."""


def _codename() -> str:
    """Return the name of this machine's release; empty if it has none."""
    found = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _own_suite() -> str:
    """Return this machine's release; of an unknown one, the newest known."""
    return _codename() if _codename() in NUMBERS else [*NUMBERS][-1]


SUITES: Final = tuple(os.environ.get("EGRESSD_SUITES", _own_suite()).split(","))
"""The releases that packages are tried on: this machine's, or those in EGRESSD_SUITES."""
ARCHITECTURE: Final = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")

CACHE: Final = Path("/var/cache/egressd/machines")
KEPT_S: Final = 7 * 24 * 3600.0
"""Seconds that a root is kept before it is made anew."""
_INCLUDED: Final = (
    "ca-certificates", "dbus", "init", "iproute2", "iputils-ping", "nftables", "procps", "python3",
)  # fmt: skip
_NOT_THERE: Final = (
    "systemd-udevd.service", "systemd-udev-trigger.service", "systemd-networkd.service",
    "systemd-resolved.service", "systemd-logind.service", "console-getty.service", "getty.target",
    "apt-daily.timer", "apt-daily-upgrade.timer",
)  # fmt: skip
"""Units that a machine without hardware, or a test, has no use for."""


def dependencies() -> list[str]:
    """Return the packages that egressd's depends on, less versions and alternatives."""
    text = (ROOT / "packaging" / "debian" / "control").read_text()
    found = re.search(r"^Depends: ((?:.|\n )*)", text, re.MULTILINE)
    assert found is not None
    return [re.split(r"[ |(]", name.strip())[0] for name in found[1].split(",")]


def root_of(suite: str) -> Path:
    """Return the root of a release, made again if it is older than a week. Raises Failed.

    Its name has a digest of the packages in it: checkouts that need others have a root of their
    own.
    """
    wanted = " ".join((*_INCLUDED, *dependencies()))
    root = CACHE / f"{suite}-{hashlib.sha256(wanted.encode()).hexdigest()[:8]}"
    with locked(root):
        made = root / "etc" / "egressd-made"
        if not made.exists() or time.time() - made.stat().st_mtime > KEPT_S:
            _make_root(suite, root)
            made.write_text(wanted)
    return root


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from making what is at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make_root(suite: str, root: Path) -> None:
    fresh = root.with_name(f"{root.name}.new")
    for old in (root, fresh):
        if old.exists():
            subprocess.run(["rm", "-r", "--one-file-system", str(old)], check=True)
    # mmdebstrap's own settings leave out recommended packages, which an operator's apt installs.
    download = "apt-get --yes --quiet --download-only -oAPT::Install-Recommends=true install"
    argv = [
        "mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_INCLUDED)}",
        "--skip=cleanup/apt",
        f'--customize-hook=chroot "$1" {download} {" ".join(dependencies())}',
        suite, str(fresh), _mirror(),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"make a root of {suite}", done.stderr[-1000:])
    units = fresh / "etc" / "systemd" / "system"
    for unit in _NOT_THERE:
        (units / unit).unlink(missing_ok=True)
        (units / unit).symlink_to("/dev/null")
    (fresh / "etc" / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    fresh.rename(root)


def _mirror() -> str:
    """Return the address of the mirror that this machine uses for its own release."""
    asked = [
        "apt-get",
        "indextargets",
        "--format",
        "$(CODENAME) $(REPO_URI)",
        "Created-By: Packages",
    ]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        codename, address = line.split(" ")
        if codename == _codename():
            return address.rstrip("/")
    raise Failed("find a mirror", "apt knows none of this release (apt-get update)")


def wanted(suite: str, version: str) -> str:
    """Return what names a version's package to apt."""
    return f"egressd={full(suite, version)}"


def full(suite: str, version: str) -> str:
    """Return a package's version: the program's, and the release."""
    return f"{version}+deb{NUMBERS[suite]}"


def package(
    arguments: Sequence[str], output: Path, version: str, *, prefix: Sequence[str] = ()
) -> None:
    """Run script/package, with little compression. Raises Failed."""
    quick = {"DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    argv = [ROOT / "script/package", "--output", output, "--version", version, *arguments]
    done = subprocess.run(
        [*prefix, *map(str, argv)],
        env={**os.environ, **quick}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Failed("build a package", done.stderr)


def repository_in(folder: Path, suite: str) -> Path:
    """Return a folder that is an apt repository of two versions for one release. Raises Failed.

    EGRESSD_REPOSITORY names one that is there already, of an earlier run for instance.
    """
    if made := os.environ.get("EGRESSD_REPOSITORY"):
        return Path(made)
    for version in (BEFORE, AFTER):
        package(["--suite", suite, "--arch", ARCHITECTURE], folder, version)
    return folder


def repository_of_run(folder: Path, suite: str) -> Path:
    """Return such a repository that all workers of a test run share, below their `folder`. The
    first one that needs it makes it. Raises Failed.
    """
    shared = folder / f"apt-{suite}"
    with locked(shared):
        if not shared.exists():
            shared.symlink_to(repository_in(folder / f"{shared.name}-made", suite))
    return shared.resolve()
