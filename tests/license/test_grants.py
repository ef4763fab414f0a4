from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from egressd.license.document import LICENSE_VERSION, License, sign
from egressd.license.grants import (
    EVERYTHING,
    NOTHING,
    ApiAccess,
    Finding,
    Grants,
    api_access,
    at,
    examine,
    grants_of,
)
from egressd.license.keys import key_ring, public_key_text

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TRUSTED = key_ring([public_key_text(KEY.public_key())])
DEVICE = "0123-4567-89ab-cdef"
END = datetime(2027, 11, 21, tzinfo=UTC)
LICENSE = License(
    version=LICENSE_VERSION,
    serial="5f0c",
    device=DEVICE,
    capabilities=("api",),
    proxy_service_quota=7,
    api_trial_calls=3,
    issued_at="2026-11-20T22:58:40Z",
    expires_at="2027-11-21T00:00:00Z",
)


def found(license_: License, now: datetime = END - timedelta(days=1)) -> Finding:
    return at(examine(sign(license_, KEY), TRUSTED, DEVICE), now)


def test_a_valid_license_holds_until_its_expiry() -> None:
    assert found(LICENSE, END - timedelta(seconds=1)).holds
    expired = found(LICENSE, END)
    assert not expired.holds
    assert expired.reason == "it expired at 2027-11-21T00:00:00Z"


def test_a_license_without_an_expiry_does_not_expire() -> None:
    assert found(replace(LICENSE, expires_at=""), END + timedelta(days=100_000)).holds


def test_a_license_of_another_device_does_not_hold() -> None:
    finding = found(replace(LICENSE, device="ffff-0000-ffff-0000"))
    assert not finding.holds
    assert "ffff-0000-ffff-0000" in finding.reason


def test_a_missing_and_a_broken_file_have_a_reason() -> None:
    assert examine(None, TRUSTED, DEVICE).reason == "no license is installed"
    assert "cut short" in examine(sign(LICENSE, KEY)[:50], TRUSTED, DEVICE).reason


def test_mode_off_allows_everything_with_any_license() -> None:
    assert grants_of("off", Finding(None, "no license is installed")) == EVERYTHING
    assert grants_of("off", found(LICENSE)) == EVERYTHING
    assert EVERYTHING.proxy_service_quota == 1000


def test_mode_enforced_allows_only_the_licensed_capabilities() -> None:
    assert grants_of("enforced", found(LICENSE)) == Grants(
        api=True, line_dns=False, proxy_service_quota=7, api_trial_calls=3, serial="5f0c"
    )
    assert grants_of("enforced", found(LICENSE, END)) == NOTHING
    assert grants_of("enforced", Finding(None, "no license is installed")) == NOTHING


@pytest.mark.parametrize(
    ("grants", "left", "access"),
    [
        (EVERYTHING, 0, ApiAccess.OPEN),
        (Grants(api=True, api_trial_calls=5), 0, ApiAccess.OPEN),
        (NOTHING, 0, ApiAccess.REQUIRED),
        (NOTHING, 5, ApiAccess.REQUIRED),
        (Grants(api_trial_calls=5), 5, ApiAccess.TRIAL),
        (Grants(api_trial_calls=5), 1, ApiAccess.TRIAL),
        (Grants(api_trial_calls=5), 0, ApiAccess.EXHAUSTED),
    ],
)
def test_api_access_follows_the_grants_and_the_trial_calls_left(
    grants: Grants, left: int, access: ApiAccess
) -> None:
    assert api_access(grants, left) is access
