"""Removes what egressd has put on this machine: from the kernel, and from the disk.

Each step may be repeated, and a removal that was interrupted goes on at the next call. Forwarding
is put back first, so that no client gets out meanwhile on a machine that did not forward before.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.app.config import Config
from egressd.model.errors import Failed
from egressd.netd.cluster import gateway, sync_guard
from egressd.netd.engine import launch
from egressd.netd.kernel import addresses, fast_path, routes, sysctl_record
from egressd.netd.kernel.nft import Nft
from egressd.netd.system import daemon_group, orphans
from egressd.planner.registry import HELPER_INTERFACES, NFT_TABLE

UNIT_FOLDER: Final = Path("/etc/systemd/system")
UNITS: Final = (
    "egressd-timed-backup.timer",
    "egressd-timed-backup.service",
    "egressd-api.service",
    "egressd-netd.service",
    "egressd-block.service",
    "egressd-guard.service",
)
"""Units of ``script/install``, in the order in which they are stopped."""
USERS: Final = ("egressd", "egressd-engine", "egressd-alerts")
"""The users that ``script/setup`` makes."""
_DATA: Final = ("api", "netd", "update", "update.json", "timed-backup.json")
"""Names in the data folder."""
_RUN: Final = ("netd", "engine", "lines", "pair", "netd.sock", "netd.problem")
"""Names in the run folder."""


def is_installed(settings: Config) -> bool:
    """True if the package, or ``script/install``, may have installed this service: they need the
    default data folder. Units and users of the machine are not those of another ``egressd serve``.
    """
    return settings.data.dir == Config().data.dir


def forwards_afterwards(settings: Config) -> bool:
    """True if the machine will forward packets without egressd, as it did before."""
    recorded = sysctl_record.read(settings.sysctl_record).get(sysctl_record.FORWARD)
    return (recorded or _read(sysctl_record.ROOT / sysctl_record.FORWARD)).strip() == "1"


def clean_kernel(settings: Config) -> list[str]:
    """Remove everything from the kernel, in this network namespace, and put its parameters back.
    Return a sentence for each parameter that could not be. Raises Failed.
    """
    nft = Nft()
    try:
        if not nft.claim():
            raise Failed(
                "remove egressd",
                "it still runs in this network namespace: end `egressd serve` first",
            )
        orphans.end(lambda it: launch.is_worker(it) or daemon_group.folder_of(it) is not None)
        try:
            fast_path.close()
            problems = sysctl_record.restore(settings.sysctl_record)
            if not problems:
                settings.sysctl_record.unlink(missing_ok=True)
            _delete_tables(nft)
            addresses.remove(gateway.left_in(settings.pair_folder))
            routes.sync((), ())
            _delete_links()
        except OSError as error:
            raise Failed("remove egressd from the kernel", error.strerror or str(error)) from error
        return problems
    finally:
        nft.close()


def _delete_tables(nft: Nft) -> None:
    # To add a table that is there changes nothing, and one that is missing cannot be deleted.
    for family in ("inet", "netdev"):
        nft.run(f"add table {family} {NFT_TABLE}\ndelete table {family} {NFT_TABLE}\n")
    nft.run(sync_guard.removal())


def _delete_links() -> None:
    for _, name in socket.if_nameindex():
        if name in HELPER_INTERFACES:
            _run("ip", "link", "delete", "dev", name)


# --- The disk. ---


def stop_units() -> None:
    """Stop and disable the units; clients are blocked from here on. Raises Failed."""
    if not _has_systemd():
        return
    for name in UNITS:
        if (UNIT_FOLDER / name).exists():
            _run("systemctl", "--quiet", "disable", "--now", name)


def remove_units() -> None:
    """Remove the units, and what ``systemctl edit`` has written. Raises Failed."""
    for name in UNITS:
        _delete(UNIT_FOLDER / name)
        _delete(UNIT_FOLDER / f"{name}.d")
    if _has_systemd():
        _run("systemctl", "daemon-reload")


def remove_run(settings: Config) -> None:
    """Remove the run folder. Raises Failed."""
    _empty(settings.run.dir, _RUN)


def remove_users() -> None:
    """Remove the users that ``script/setup`` has made. Raises Failed."""
    for name in USERS:
        with suppress(KeyError):
            pwd.getpwnam(name)
            _run("userdel", name)


def remove_data(settings: Config, config_file: Path) -> None:
    """Remove the data and, at last, the configuration, which says where they are. Raises Failed."""
    _empty(settings.data.dir, _DATA)
    _delete(config_file)
    if config_file.parent == Path("/etc/egressd"):
        _empty(config_file.parent, ())


def present(settings: Config) -> Iterator[Path]:
    """Yield what there is of units, run folder and data."""
    units = [UNIT_FOLDER / name for name in UNITS] if is_installed(settings) else []
    for path in (*units, settings.run.dir, settings.data.dir):
        if path.exists():
            yield path


def _empty(folder: Path, names: tuple[str, ...]) -> None:
    """Remove these names from a folder, and the folder if nothing else is in it. Raises Failed."""
    for name in names:
        _delete(folder / name)
    with suppress(OSError):
        folder.rmdir()


def _delete(path: Path) -> None:
    """Remove a file, a link or a folder, if it is there. Raises Failed."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise Failed(f"remove {path}", error.strerror or str(error)) from error


def _has_systemd() -> bool:
    return Path("/run/systemd/system").is_dir()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _run(*argv: str) -> None:
    """Run a program. Raises Failed with its last line."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", check=False, env={**os.environ, "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except OSError as error:
        raise Failed(f"run {argv[0]}", error.strerror or str(error)) from error
    if done.returncode:
        said = done.stdout.strip().splitlines() or ["it reported no reason"]
        raise Failed(f"run {' '.join(argv)}", said[-1])
