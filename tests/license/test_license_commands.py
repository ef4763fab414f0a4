from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from egressd.license.commands import license_group
from egressd.license.licensing import LicenseSettings

DEVICE = "0123-4567-89ab-cdef"


class Shop:
    """A vendor and one device, on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "vendor.key"
        self.installed = folder / "installed.json"
        self.public = self.run("keygen", str(self.key)).stdout.strip()

    def run(self, *argv: str) -> Result:
        settings = LicenseSettings(
            mode="enforced",
            path=self.installed,
            public_keys=(self.public,) if hasattr(self, "public") else (),
        )
        return CliRunner().invoke(license_group, list(argv), obj=settings)

    def issue(self, *options: str, device: str = DEVICE) -> Path:
        result = self.run("issue", "--key", str(self.key), "--device", device, *options)
        assert result.exit_code == 0, result.output
        path = self.folder / "issued.json"
        path.write_text(result.stdout)
        return path

    def shown(self, *argv: str) -> dict[str, Any]:
        result = self.run("show", "--json", *argv)
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr("egressd.license.commands.this_device", lambda: DEVICE)
    return Shop(tmp_path)


def test_a_license_is_issued_installed_and_shown(shop: Shop) -> None:
    file = shop.issue("--capability", "api", "--proxy-services", "12", "--expires", "2099-12-31")
    assert shop.shown()["reason"] == "no license is installed"
    assert shop.shown(str(file))["holds"]
    installed = shop.run("install", str(file))
    assert installed.exit_code == 0, installed.output
    shown = shop.shown()
    assert shown["holds"]
    assert shown["device"] == DEVICE
    assert shown["license"]["capabilities"] == ["api"]
    assert shown["license"]["expires_at"] == "2100-01-01T00:00:00Z"
    assert shown["grants"]["proxy_service_quota"] == 12
    assert not shown["grants"]["line_dns"]


def test_a_license_is_shown_as_text(shop: Shop) -> None:
    assert "does not hold: no license is installed" in shop.run("show").stdout
    shop.run("install", str(shop.issue("--trial-calls", "50")))
    text = shop.run("show").stdout
    assert "expires:         never" in text
    assert "API:             on trial" in text
    assert "capabilities:    none" in text


def test_an_invalid_license_is_not_installed_and_has_a_reason(shop: Shop) -> None:
    foreign = shop.issue("--capability", "api", device="aaaa-bbbb-cccc-dddd")
    result = shop.run("install", str(foreign))
    assert result.exit_code == 1
    assert "issued for the device aaaa-bbbb-cccc-dddd" in result.output
    assert "Traceback" not in result.output
    assert not shop.installed.exists()
    expired = shop.issue("--capability", "api", "--expires", "2020-01-01")
    assert "expired" in shop.shown(str(expired))["reason"]
    assert shop.shown(str(expired))["grants"]["api"] is False


def test_missing_files_and_existing_names_are_reported(shop: Shop) -> None:
    assert "no file" in shop.run("install", str(shop.folder / "none")).output
    assert "exists" in shop.run("keygen", str(shop.key)).output
    missing = shop.run("issue", "--key", str(shop.folder / "none"), "--device", "d")
    assert missing.exit_code == 1
    assert "No such file" in missing.output


def test_the_private_key_is_not_printed(shop: Shop) -> None:
    printed = shop.run("keygen", str(shop.folder / "second.key"))
    assert "PRIVATE" not in printed.output
    assert "PRIVATE" in (shop.folder / "second.key").read_text()


def test_an_expiry_on_the_last_possible_day_is_refused(shop: Shop) -> None:
    result = shop.run("issue", "--key", str(shop.key), "--device", "d", "--expires", "9999-12-31")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert "--expires" in result.output
