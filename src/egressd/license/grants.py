"""Pure: what a license allows on this device at this time."""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Final, Literal

import msgspec

from egressd.license.document import License, Untrusted, read
from egressd.license.keys import KeyRing

Mode = Literal["off", "enforced"]
"""``off`` allows everything, for operators of their own device; ``enforced`` is for vendors."""

UNLICENSED_QUOTA: Final = 1000
"""Proxy services allowed in mode ``off``."""


class Finding(msgspec.Struct, frozen=True):
    """The result of reading the license file: a license, or the reason why none holds.

    A license that does not hold is kept to be shown. It holds only if ``reason`` is empty.
    """

    license: License | None
    reason: str = ""

    @property
    def holds(self) -> bool:
        """True if there is a license in force."""
        return self.license is not None and not self.reason


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The allowed uses."""

    api: bool = False
    line_dns: bool = False
    proxy_service_quota: int = 0
    api_trial_calls: int = 0
    serial: str = ""
    """Serial of the license: trial calls are counted by license."""


EVERYTHING: Final = Grants(api=True, line_dns=True, proxy_service_quota=UNLICENSED_QUOTA)
NOTHING: Final = Grants()


class ApiAccess(enum.Enum):
    """The decision on an API call. The value of a refusal is the error's text."""

    OPEN = "open"
    TRIAL = "trial"
    """The call is allowed, and uses one of the license's trial calls."""
    REQUIRED = "API_ACCESS_REQUIRED"
    EXHAUSTED = "API_TRIAL_QUOTA_EXHAUSTED"


def examine(data: bytes | None, trusted: KeyRing, device: str) -> Finding:
    """Read the license file `data` (None if there is no file) for `device`, without its expiry."""
    if data is None:
        return Finding(None, "no license is installed")
    try:
        license_ = read(data, trusted)
    except Untrusted as error:
        return Finding(None, str(error))
    if license_.device != device:
        return Finding(license_, f"it was issued for the device {license_.device}")
    return Finding(license_)


def at(finding: Finding, now: datetime) -> Finding:
    """Return `finding` as of `now`: its license may have expired."""
    license_ = finding.license
    if license_ is None or finding.reason or license_.expiry is None or now < license_.expiry:
        return finding
    return Finding(license_, f"it expired at {license_.expires_at}")


def grants_of(mode: Mode, finding: Finding) -> Grants:
    """Return the allowed uses in `mode` with the result of `examine`."""
    if mode == "off":
        return EVERYTHING
    if finding.license is None or not finding.holds:
        return NOTHING
    license_ = finding.license
    return Grants(
        api="api" in license_.capabilities,
        line_dns="line_dns" in license_.capabilities,
        proxy_service_quota=license_.proxy_service_quota,
        api_trial_calls=license_.api_trial_calls,
        serial=license_.serial,
    )


def api_access(grants: Grants, trial_calls_left: int) -> ApiAccess:
    """Decide on an API call, by the number of trial calls left."""
    if grants.api:
        return ApiAccess.OPEN
    if not grants.api_trial_calls:
        return ApiAccess.REQUIRED
    return ApiAccess.TRIAL if trial_calls_left > 0 else ApiAccess.EXHAUSTED
