from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from egressd.license.device import device_id, this_device
from egressd.license.document import LICENSE_VERSION, License, sign
from egressd.license.grants import NOTHING, ApiAccess
from egressd.license.keys import key_ring, public_key_text
from egressd.license.licensing import LicenseSettings, Licensing, install
from egressd.model.errors import Failed, Invalid, OverQuota

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = public_key_text(KEY.public_key())
TRUSTED = key_ring([PUBLIC])
DEVICE = "0123-4567-89ab-cdef"
NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
FULL = License(
    version=LICENSE_VERSION,
    serial="5f0c",
    device=DEVICE,
    capabilities=("api", "line_dns"),
    proxy_service_quota=7,
    api_trial_calls=0,
    issued_at="2026-11-20T22:58:40Z",
    expires_at="2026-11-22T00:00:00Z",
)
TRIAL = replace(FULL, capabilities=(), api_trial_calls=2)


class Counts:
    """Trial calls in memory."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}

    def left(self, license_id: str, allowed: int) -> int:
        return allowed - self.spent.get(license_id, 0)

    async def spend(self, license_id: str, allowed: int) -> int:
        if not self.left(license_id, allowed):
            raise OverQuota("used up")
        self.spent[license_id] = self.spent.get(license_id, 0) + 1
        return self.left(license_id, allowed)


class Device:
    """A device in enforced mode whose clock the test sets."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "license.json"
        self.now = NOW
        self.counts = Counts()
        self.licensing = Licensing(
            LicenseSettings(mode="enforced", path=self.path, public_keys=(PUBLIC,)),
            device=DEVICE,
            trial_calls=self.counts,
            now=lambda: self.now,
        )

    def install(self, license_: License) -> None:
        install(sign(license_, KEY), self.path, TRUSTED, DEVICE, self.now)

    async def call(self) -> str | None:
        """One API call: what refuses it."""
        refusal = self.licensing.refusal()
        if refusal is None and not await self.licensing.spend():
            return "spent"
        return refusal


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


async def test_a_license_is_valid_from_its_installation(device: Device) -> None:
    assert await device.call() == "API_ACCESS_REQUIRED"
    assert device.licensing.grants() == NOTHING
    device.install(FULL)
    assert await device.call() is None
    assert device.licensing.grants().proxy_service_quota == 7
    assert device.counts.spent == {}


async def test_a_license_is_invalid_when_expired_damaged_or_removed(device: Device) -> None:
    device.install(FULL)
    assert await device.call() is None
    device.now = NOW + timedelta(days=1)
    assert await device.call() == "API_ACCESS_REQUIRED"
    device.now = NOW
    assert await device.call() is None
    device.path.write_bytes(device.path.read_bytes()[:-20])
    assert await device.call() == "API_ACCESS_REQUIRED"
    assert "cut short" in device.licensing.finding().reason
    device.path.unlink()
    assert await device.call() == "API_ACCESS_REQUIRED"


async def test_a_trial_ends_after_its_calls_and_a_full_license_replaces_it(device: Device) -> None:
    device.install(TRIAL)
    assert [await device.call() for _ in range(3)] == [None, None, "API_TRIAL_QUOTA_EXHAUSTED"]
    device.install(replace(FULL, serial="next"))
    assert await device.call() is None


async def test_access_shows_the_trial_calls_left(device: Device) -> None:
    assert device.licensing.access() == (ApiAccess.REQUIRED, 0)
    device.install(TRIAL)
    assert device.licensing.access() == (ApiAccess.TRIAL, 2)
    await device.call()
    assert device.licensing.access() == (ApiAccess.TRIAL, 1)
    await device.call()
    assert device.licensing.access() == (ApiAccess.EXHAUSTED, 0)
    device.install(replace(FULL, serial="full"))
    assert device.licensing.access() == (ApiAccess.OPEN, 0)


def test_a_license_is_installed_from_its_bytes(device: Device) -> None:
    umask = os.umask(0o077)
    try:
        assert device.licensing.install(sign(FULL, KEY)) == FULL.serial
    finally:
        os.umask(umask)
    assert device.path.stat().st_mode & 0o777 == 0o644, "the api's user reads it, too"
    assert device.licensing.access() == (ApiAccess.OPEN, 0)
    before = device.path.read_bytes()
    with pytest.raises(Invalid, match="the license is not installed"):
        device.licensing.install(sign(replace(FULL, device="another"), KEY))
    assert device.path.read_bytes() == before


async def test_an_admitted_call_is_refused_if_the_last_one_was_taken_first(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    device.install(replace(TRIAL, api_trial_calls=1))
    taken = device.counts.spend

    async def spend_after_another(license_id: str, allowed: int) -> int:
        await taken(license_id, allowed)
        return await taken(license_id, allowed)

    monkeypatch.setattr(device.counts, "spend", spend_after_another)
    assert device.licensing.refusal() is None
    assert await device.licensing.spend() is False


async def test_an_unreadable_license_has_a_reason(device: Device) -> None:
    device.path.mkdir()
    assert await device.call() == "API_ACCESS_REQUIRED"
    assert "directory" in device.licensing.finding().reason


def test_an_invalid_license_does_not_replace_the_installed_one(device: Device) -> None:
    device.install(FULL)
    before = device.path.read_bytes()
    with pytest.raises(Invalid, match="issued for the device"):
        device.install(replace(FULL, device="ffff"))
    with pytest.raises(Invalid, match="expired"):
        device.install(replace(FULL, expires_at="2020-01-01T00:00:00Z"))
    assert device.path.read_bytes() == before
    assert list(device.path.parent.iterdir()) == [device.path]


async def test_a_symbolic_link_is_replaced_and_not_followed(device: Device) -> None:
    victim = device.path.parent / "victim"
    victim.write_text("precious")
    device.path.with_name("license.json.new").symlink_to(victim)
    device.install(FULL)
    assert victim.read_text() == "precious"
    assert await device.call() is None


def test_installing_a_license_on_an_unwritable_place_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failed, match="write the license"):
        install(sign(FULL, KEY), tmp_path / "file" / "license.json", TRUSTED, DEVICE, NOW)


async def test_mode_off_reads_no_file(tmp_path: Path) -> None:
    licensing = Licensing(
        LicenseSettings(path=tmp_path / "none"), device=DEVICE, trial_calls=Counts()
    )
    assert licensing.refusal() is None
    assert await licensing.spend()


def test_a_device_id_is_stable_and_does_not_reveal_the_machine_id(tmp_path: Path) -> None:
    machine_id = "0123456789abcdef0123456789abcdef"
    path = tmp_path / "machine-id"
    path.write_text(machine_id + "\n")
    assert this_device(path) == device_id(machine_id) == device_id(machine_id + "\n")
    assert len(this_device(path)) == 19
    assert machine_id[:4] not in this_device(path)
    assert device_id("0" * 32) != device_id("1" * 32)


@pytest.mark.parametrize("content", [None, "", "uninitialized\n", "\xff"])
def test_a_machine_without_an_id_fails(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "machine-id"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(Failed, match="machine id"):
        this_device(path)
