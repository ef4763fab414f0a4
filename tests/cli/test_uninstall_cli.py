"""``egressd uninstall``: what it asks and refuses, without anything removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from egressd.app import removal
from egressd.app.versions import InstalledVersions
from egressd.cli import cli
from egressd.model.errors import Invalid


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration of a device that is never touched."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for name in ("stop_units", "clean_kernel", "remove_units", "remove_run", "remove_data"):
        monkeypatch.setattr(removal, name, lambda *_: pytest.fail("it removes something"))
    monkeypatch.setattr(removal, "remove_users", lambda: pytest.fail("it removes users"))
    file = tmp_path / "egressd.toml"
    file.write_text(f'[data]\ndir = "{tmp_path}/data"\n[run]\ndir = "{tmp_path}/run"\n')
    (tmp_path / "data" / "netd").mkdir(parents=True)
    return file


def uninstall(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["uninstall", "--config", str(config), *arguments])


def test_others_than_root_are_refused(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = uninstall(config, "--yes")
    assert result.exit_code == 1
    assert "must be started by root" in result.output


def test_without_a_terminal_it_needs_yes(config: Path) -> None:
    result = uninstall(config)
    assert isinstance(result.exception, Invalid)
    assert "--yes must be given" in str(result.exception)
    assert f"from the disk: {config.parent}/data, {config}" in result.output


@pytest.mark.parametrize(
    ("arguments", "kept"), [((), {}), (("--keep-data",), {"EGRESSD_KEEP_DATA": "1"})]
)
def test_a_package_is_purged_by_apt(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    kept: dict[str, str],
) -> None:
    called: list[tuple[tuple[str, ...], dict[str, str]]] = []

    def become(_: str, argv: tuple[str, ...], environment: dict[str, str]) -> None:
        called.append((argv, environment))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execvpe", become)
    monkeypatch.setattr(removal, "is_installed", lambda _: True)
    monkeypatch.setattr(InstalledVersions, "in_force", lambda _: "1.0+deb12")
    result = uninstall(config, "--yes", *arguments)
    assert "by apt-get: the package egressd" in result.output
    ((argv, environment),) = called
    assert argv == ("apt-get", "--yes", "--quiet", "purge", "egressd")
    assert {k: v for k, v in environment.items() if k.startswith("EGRESSD_KEEP")} == kept


def test_a_configuration_that_is_gone_is_not_the_default_one(config: Path) -> None:
    config.unlink()
    assert "is removed already" in uninstall(config, "--yes").output
