"""``egressd update``: another version of the Debian package, and the way back from it.

The order of steps makes a power failure harmless at each of them: the machine boots with the whole
old or the whole new version, because dpkg's script changes the version by one rename. On the way
back the older database returns before the older version does: the newer version can read it, but
the older one could not read a newer database.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from egressd.app import update_record
from egressd.app.versions import InstalledVersions
from egressd.cli import config_option
from egressd.cli.remote import Remote
from egressd.cli.update_source import Wanted, from_apt, from_file, run
from egressd.model.errors import EgressdError, Failed, Invalid

if TYPE_CHECKING:
    from egressd.app.config import Config

_LOCK: Final = Path("/run/lock/egressd-update")
_BACKUPS: Final = "update"
"""The folder of backups, in the data directory."""
_APT_WAIT_S: Final = 120
"""Seconds to wait for another apt or dpkg."""
_HEALTHY_S: Final = 120.0
"""Seconds that a version has to become healthy."""
_LOOK_S: Final = 1.0
_REFUSAL: Final = "reads databases up to schema"
"""A part of the text with which a package's preinst refuses a newer version's database."""
_AS_DPKG_HAS_IT: Final = "--showformat=${db:Status-Status} ${Version}"
_PROBED: Final = 3
"""Clients that are probed at most, before and after."""
_PROBE_FOR: Final = "example.com"


@click.command()
@click.option("--to", "version", help="The version. Default: the newest that apt offers.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True, resolve_path=True),
    help="A package's file, instead of apt's repositories.",
)
@click.option(
    "--unsigned",
    is_flag=True,
    help="Accept a file, or a repository without a signature: you know its origin.",
)
@config_option
def update(version: str | None, file: Path | None, unsigned: bool, path: Path | None) -> None:
    """Install another version, and return to the present one if it does not work.

    The configuration is backed up first. The new version has to become healthy, and clients that
    leave by their egress before have to do so afterwards. Otherwise the present version and the
    backup are put back, `status` and the console report the reason, and the exit status is 1.
    Connections continue, as with `apt install`.
    """
    from egressd.app import config

    if os.geteuid() != 0:
        raise click.ClickException("it must be started by root: it installs a package")
    settings = config.load(path)
    versions = InstalledVersions()
    before = versions.in_force()
    if before is None:
        raise Invalid(
            "this egressd runs from a checkout: replace the checkout, and run script/install"
        )
    with _alone():
        wanted = from_file(file, unsigned) if file else from_apt(version, unsigned)
        if wanted.version == before and file is None:
            click.echo(f"version {before} is in force already")
            return
        _update(settings, versions, before, wanted)


@contextmanager
def _alone() -> Iterator[None]:
    """Raise Failed if another update runs."""
    with _LOCK.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failed("update", "another `egressd update` is running") from None
        yield


# --- The steps. ---


def _update(settings: Config, versions: InstalledVersions, before: str, wanted: Wanted) -> None:
    backup = _back_up(settings, before)
    probed = _probed(settings)
    click.echo(f"installing version {wanted.version} in place of {before}")
    try:
        try:
            _install(wanted)
        except Failed as error:
            if _REFUSAL not in str(error):
                raise
            _install_older(settings, versions, wanted)
        _await_health(settings)
        _probe(settings, probed)
    except EgressdError as error:
        reason = str(error)
        if versions.in_force() != before:
            click.echo(f"version {wanted.version} does not work: {reason}", err=True)
            click.echo(f"returning to version {before}", err=True)
            _return(settings, versions, before, backup)
        _have_dpkg_name(before)
        _leave(settings, wanted.version, before, reason)
        raise Failed(
            f"update to version {wanted.version}", f"{reason}; version {before} is in force"
        ) from error
    with suppress(OSError):
        update_record.withdraw(settings.data.dir)
    click.echo(f"version {versions.in_force()} is in force")


def _leave(settings: Config, wanted: str, in_force: str, reason: str) -> None:
    with suppress(OSError):  # a full disk: the command itself prints the reason
        update_record.leave(settings.data.dir, wanted=wanted, in_force=in_force, reason=reason)


def _back_up(settings: Config, version: str) -> Path:
    """Back the configuration up, and return the file. Raises Failed."""
    from egressd.store.database import Database

    folder = settings.data.dir / _BACKUPS
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise Failed("back the configuration up", str(error)) from error
    file = folder / f"{version}.backup"
    asyncio.run(Database(settings.api_data).backup(file))
    click.echo(f"the configuration is backed up to {file}")
    return file


def _install_older(settings: Config, versions: InstalledVersions, wanted: Wanted) -> None:
    """Install a version that cannot read the present database, with the backup that was made when
    it was replaced. Raises Failed.

    The api, which would begin with an empty database, is not started in between: netd leaves the
    present plan in force.
    """
    backup = settings.data.dir / _BACKUPS / f"{wanted.version}.backup"
    if not backup.exists():
        raise Failed(
            f"return to version {wanted.version}",
            f"it cannot read the database, and there is no backup of it ({backup})",
        )
    click.echo(f"it cannot read the database: restoring {backup}; later changes are lost")
    run("systemctl", "mask", "--runtime", "--now", "egressd-api.service")
    try:
        _install(wanted, EGRESSD_RESTORES="1")
        run(str(versions.program(wanted.version)), "restore", "--set-aside", str(backup))
    finally:
        run("systemctl", "unmask", "--runtime", "egressd-api.service")
        run("systemctl", "start", "egressd-api.service")


def _install(wanted: Wanted, **environment: str) -> None:
    run(
        "apt-get", "--yes", "--quiet", "--allow-downgrades", "--no-remove",
        "--option", f"DPkg::Lock::Timeout={_APT_WAIT_S}",
        "--option", "Dpkg::Options::=--force-confdef",
        "--option", "Dpkg::Options::=--force-confold",
        *wanted.options, "install", wanted.package,
        **environment,
    )  # fmt: skip


def _await_health(settings: Config) -> None:
    """Wait until the status is known and good, and print once what is reported meanwhile: a member
    of a site may need `egressd cluster migrate` first. Raises Failed.
    """
    deadline = time.monotonic() + _HEALTHY_S
    reason = "it does not answer"
    printed: set[str] = set()
    while time.monotonic() < deadline:
        try:
            answer = Remote.here(settings).get("/ops/health")
            if answer["status"] in ("running", "stopped"):
                return
            reason = f"its status is {answer['status']}"
        except EgressdError as error:
            reason = str(error)
        with suppress(EgressdError):
            problems = Remote.here(settings).get("/ops/overview")["problems"]
            for problem in (each for each in problems if each not in printed):
                printed.add(problem)
                click.echo(f"not healthy yet: {problem}", err=True)
        time.sleep(_LOOK_S)
    raise Failed("become healthy", f"{reason} ({_HEALTHY_S:.0f} s after the installation)")


def _probed(settings: Config) -> list[str]:
    """Return the addresses of clients that leave by their egress now."""
    clients: list[str] = []
    with suppress(EgressdError):
        rules = Remote.here(settings).rows("/rules")
        for rule in rules:
            if len(clients) == _PROBED:
                break
            address = str(rule["ip"])
            if rule["is_enabled"] and "/" not in address and _leaves(settings, address) == "":
                clients.append(address)
    click.echo(f"clients that leave now: {', '.join(clients) or 'none'}")
    return clients


def _probe(settings: Config, clients: Sequence[str]) -> None:
    """Raise Failed if a client that left before does not leave now."""
    for client in clients:
        for attempt in range(3):
            if not (reason := _leaves(settings, client)):
                break
            time.sleep(attempt + _LOOK_S)
        else:
            raise Failed(f"send client {client} out", reason)


def _leaves(settings: Config, client: str) -> str:
    """Return the reason why a client does not leave; empty if it does."""
    asked = {"client": client, "destination": _PROBE_FOR, "port": 443, "protocol": "tcp"}
    try:
        answer: dict[str, Any] = Remote.here(settings).send("POST", "/ops/probe", asked)
    except EgressdError as error:
        return str(error)
    return str(answer["error"]) if answer["delay"] < 0 else ""


def _return(settings: Config, versions: InstalledVersions, before: str, backup: Path) -> None:
    """Put the version before, and its configuration, in force again. Raises Failed."""
    run("systemctl", "stop", "egressd-api.service")
    if not _is_readable(versions, before, settings):
        click.echo("the database is a newer version's: restoring the backup")
        run(str(versions.program(before)), "restore", "--set-aside", str(backup))
    versions.put_in_force(before)
    run("systemctl", "daemon-reload")
    with suppress(Failed):  # one that does not start is started again by systemd
        run("systemctl", "reload", "egressd-netd.service")
    run("systemctl", "start", "egressd-api.service")
    _await_health(settings)


def _have_dpkg_name(version: str) -> None:
    """Have dpkg name the version in force, too; where apt has it no more, it stays as it is."""
    with suppress(Failed):
        if run("dpkg-query", "--show", _AS_DPKG_HAS_IT, "egressd") != f"installed {version}":
            _install(Wanted(version, f"egressd={version}"))


def _is_readable(versions: InstalledVersions, version: str, settings: Config) -> bool:
    """True if a version can read the present database: it backs it up."""
    trial = settings.data.dir / _BACKUPS / "trial.backup"
    try:
        run(str(versions.program(version)), "backup", str(trial))
    except Failed:
        return False
    finally:
        with suppress(OSError):
            trial.unlink(missing_ok=True)
    return True
