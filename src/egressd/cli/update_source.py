"""The Debian package that an update installs: a file's, or one that apt offers."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed, Invalid

_LISTS: Final = Path("/var/lib/apt/lists")


@dataclass(frozen=True)
class Wanted:
    """A version that can be installed."""

    version: str
    package: str
    """The package as apt takes it: a name with a version, or a file."""
    options: tuple[str, ...] = ()


def from_file(file: Path, unsigned: bool) -> Wanted:
    """Return the version in a package's file. Raises Invalid unless it is one for this machine."""
    if not unsigned:
        raise Invalid(f"{file} has no signature; --unsigned accepts it if you know its origin")
    try:
        fields = run("dpkg-deb", "--field", str(file), "Package", "Version", "Architecture")
        run("dpkg-deb", "--contents", str(file))  # it reads the whole file
    except Failed as error:
        raise Invalid(f"{file} is no whole Debian package: {error.cause}") from error
    found = dict(re.findall(r"^(\w+): (.*)$", fields, re.MULTILINE))
    own = run("dpkg", "--print-architecture").strip()
    if found.get("Package") != "egressd":
        raise Invalid(f"{file} is no package of egressd")
    if found.get("Architecture") != own:
        raise Invalid(f"{file} is for {found.get('Architecture')}; this machine is {own}")
    # Otherwise apt leaves another build of the installed version alone.
    return Wanted(found["Version"], str(file), options=("--reinstall",))


def from_apt(version: str | None, unsigned: bool) -> Wanted:
    """Return a version that apt offers, the newest if it is None. Raises Invalid and Failed."""
    unread = _read_indexes()
    if not unsigned and (lists := unsigned_lists(_LISTS)):
        raise Invalid(
            f"apt's repository of egressd has no signature ({lists[0].name}); --unsigned accepts it"
            " if you know its origin"
        )
    offered = offered_versions(run("apt-cache", "madison", "egressd"))
    if not offered:
        reason = f"; apt could not read all of them: {' '.join(unread)}" if unread else ""
        raise Invalid(f"none of apt's repositories has a package of egressd{reason}")
    if version is None:
        return Wanted(offered[0], f"egressd={offered[0]}")
    for each in offered:
        if version in (each, each.partition("+deb")[0]):
            return Wanted(each, f"egressd={each}")
    raise Invalid(f"apt does not offer version {version}; it offers {', '.join(offered)}")


def _read_indexes() -> list[str]:
    """Have apt read the indexes of egressd's repositories, and of all others only if it knows none:
    Debian's mirrors may be unreachable, which would take minutes. Return its reasons for what it
    could not read. Raises Failed if that is an index of egressd's.
    """
    targets = run("apt-get", "indextargets", "--format", "$(SOURCESENTRY)|$(ORIGIN)")
    files = own_sources(targets)
    for file in files:
        run(
            "apt-get", "--quiet", "update", "--error-on=any",
            "--option", f"Dir::Etc::SourceList={file}",
            "--option", "Dir::Etc::SourceParts=-",
            "--option", "APT::Get::List-Cleanup=0",
        )  # fmt: skip
    if files:
        return []
    said = run("apt-get", "--quiet", "update")
    return [line for line in said.splitlines() if line.startswith("W: Failed to fetch ")]


def own_sources(targets: str) -> list[str]:
    """Return the files that name repositories of egressd, from rows of file, line and origin."""
    rows = (line.rpartition("|") for line in targets.splitlines())
    entries = (entry for entry, _, origin in rows if origin == "egressd")
    return list(dict.fromkeys(entry.rpartition(":")[0] for entry in entries))


def offered_versions(madison: str) -> list[str]:
    """Return the versions in the output of ``apt-cache madison``, the newest first."""
    rows = (line.split("|") for line in madison.splitlines())
    return list(dict.fromkeys(row[1].strip() for row in rows if len(row) == 3))


def unsigned_lists(folder: Path) -> list[Path]:
    """Return apt's index files of repositories of egressd without a signature.

    apt keeps a signed index as ``InRelease``, or as ``Release`` with ``Release.gpg``; it uses
    others only where ``[trusted=yes]`` allows it.
    """
    found = []
    for path in sorted(folder.glob("*Release")):
        text = path.read_text(errors="replace")
        if not re.search(r"^Origin: egressd$", text, re.MULTILINE):
            continue
        is_inline = text.startswith("-----BEGIN PGP SIGNED MESSAGE-----")
        if not is_inline and not path.with_name(f"{path.name}.gpg").exists():
            found.append(path)
    return found


def run(*argv: str, **more: str) -> str:
    """Run a program, with more in its environment, and return its output. Raises Failed with the
    lines that name the fault.
    """
    environment = {
        **os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **more,
    }  # fmt: skip
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", check=False, env=environment,
        )  # fmt: skip
    except OSError as error:
        raise Failed(f"run {argv[0]}", str(error)) from error
    if done.returncode:
        raise Failed(f"run {' '.join(argv[:2])}", reported(done.stdout))
    return done.stdout


def reported(output: str) -> str:
    """Return the lines of a program's output that name a fault: egressd's own, else dependencies
    that cannot be met, else errors of apt and dpkg, else the last one.
    """
    whole = re.sub(r"^(dpkg: .*:)\n +", r"\1 ", output, flags=re.MULTILINE)  # two lines of dpkg's
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    for pattern in (r"egressd: ", r"(egressd : )?(Pre-)?Depends: ", r"(E|dpkg|Err|ERROR)\b.*: "):
        if found := [line for line in lines if re.match(pattern, line)]:
            return " ".join(line.removeprefix("egressd: ") for line in found[:6])
    return lines[-1] if lines else "it reported no reason"
