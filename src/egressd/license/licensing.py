"""The installed license of this device, read again when it changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from egressd.license.document import FILE_MAX
from egressd.license.grants import (
    ApiAccess,
    Finding,
    Grants,
    Mode,
    api_access,
    at,
    examine,
    grants_of,
)
from egressd.license.keys import KeyRing, key_ring
from egressd.model.errors import Failed, Invalid, OverQuota
from egressd.model.faults import fault


class LicenseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration file's ``[license]`` table."""

    mode: Mode = "off"
    path: Path
    """Path of the installed license."""
    public_keys: tuple[str, ...] = ()
    """The vendor's public keys, as ``license keygen`` prints them. Each may sign licenses."""


class TrialCallCounts(Protocol):
    """The durable counts of trial calls, by license: a crash does not give a call back."""

    def left(self, license_id: str, allowed: int) -> int:
        """Return the number of the license's `allowed` calls that are left."""
        ...

    async def spend(self, license_id: str, allowed: int) -> int:
        """Use one call, and return the number left. Raises OverQuota if none was left, Failed."""
        ...


def utc_now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)


def read_file(path: Path) -> bytes | None:
    """Return the license file, None if there is none. Raises Failed if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(FILE_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Failed(f"read the license {path}", error.strerror or str(error)) from error


def install(data: bytes, path: Path, trusted: KeyRing, device: str, now: datetime) -> Finding:
    """Write the license file `data` to `path`, durably, if it holds on `device`.

    Raises Invalid if it does not hold, and leaves the installed file; Failed if the file cannot
    be written.
    """
    finding = at(examine(data, trusted, device), now)
    if not finding.holds:
        raise Invalid(fault("", "license-refused", reason=finding.reason))
    try:
        _replace_durably(path, data)
    except OSError as error:
        raise Failed(f"write the license to {path}", error.strerror or str(error)) from error
    return finding


class Licensing:
    """The uses that are allowed now. It reads a replaced file again, so that a license takes effect
    without a restart, and checks the expiry on every call.

    `device` is this device's id (`device.this_device`). Raises Invalid if a pinned key is
    malformed.
    """

    def __init__(
        self,
        settings: LicenseSettings,
        *,
        device: str,
        trial_calls: TrialCallCounts,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._settings = settings
        self._trusted = key_ring(settings.public_keys)
        self._device = device
        self._trial_calls = trial_calls
        self._now = now
        self._seen: tuple[int, int, int] | None = None
        self._finding = Finding(None)

    @property
    def device(self) -> str:
        """This device's id."""
        return self._device

    @property
    def mode(self) -> Mode:
        """The configuration's mode."""
        return self._settings.mode

    def access(self) -> tuple[ApiAccess, int]:
        """Return the decision on API calls, and the number of trial calls left."""
        access, grants = self._access()
        left = self._trial_calls.left(grants.serial, grants.api_trial_calls)
        return access, left if grants.api_trial_calls else 0

    def install(self, data: bytes) -> str:
        """Replace the installed license file, and return the serial. It takes effect at once.

        Raises Invalid with the reason if it does not hold, Failed.
        """
        path = self._settings.path
        license_ = install(data, path, self._trusted, self._device, self._now()).license
        assert license_ is not None
        return license_.serial

    def finding(self) -> Finding:
        """Return the state of the installed file now."""
        seen = _identity(self._settings.path)
        if seen != self._seen or seen is None:
            self._finding = self._examine()
            self._seen = seen
        return at(self._finding, self._now())

    def grants(self) -> Grants:
        """Return the allowed uses."""
        if self._settings.mode == "off":
            return grants_of("off", Finding(None))
        return grants_of(self._settings.mode, self.finding())

    def refusal(self) -> str | None:
        """Return the error text of an API call that is refused, None if it is allowed."""
        access, _ = self._access()
        return access.value if access in (ApiAccess.REQUIRED, ApiAccess.EXHAUSTED) else None

    async def spend(self) -> bool:
        """Count an allowed API call. Return False if the trial calls were used up meanwhile.

        Raises Failed if the count cannot be stored.
        """
        access, grants = self._access()
        if access is ApiAccess.TRIAL:
            try:
                await self._trial_calls.spend(grants.serial, grants.api_trial_calls)
            except OverQuota:
                return False
        return True

    def _access(self) -> tuple[ApiAccess, Grants]:
        grants = self.grants()
        left = 0
        if not grants.api and grants.api_trial_calls:
            left = self._trial_calls.left(grants.serial, grants.api_trial_calls)
        return api_access(grants, left), grants

    def _examine(self) -> Finding:
        try:
            data = read_file(self._settings.path)
        except Failed as error:
            return Finding(None, str(error))
        return examine(data, self._trusted, self._device)


def _replace_durably(path: Path, data: bytes) -> None:
    """Write `data` to `path` durably: write, fsync, rename, fsync the folder. Raises OSError."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    # Root may be writing into a folder of the api's user: symbolic links are not followed.
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o644)  # the api reads it, also under a strict umask
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return values that change when the file at `path` is replaced; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
