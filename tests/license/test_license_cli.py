from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from egressd.cli import cli


def test_the_commands_use_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.license.commands.this_device", lambda: "0123-4567-89ab-cdef")
    run = CliRunner().invoke
    public = run(cli, ["license", "keygen", str(tmp_path / "vendor.key")]).stdout.strip()
    configuration = tmp_path / "egressd.toml"
    configuration.write_text(
        f'[data]\ndir = "{tmp_path}"\n[license]\nmode = "enforced"\npublic_keys = ["{public}"]\n'
    )
    issued = tmp_path / "issued"
    key, device = str(tmp_path / "vendor.key"), "0123-4567-89ab-cdef"
    issue = ["license", "issue", "--key", key, "--device", device, "--capability", "api"]
    issued.write_text(run(cli, issue).stdout)
    on_device = ["license", "--config", str(configuration)]
    installed = run(cli, [*on_device, "install", str(issued)])
    assert installed.exit_code == 0, installed.output
    shown = json.loads(run(cli, [*on_device, "show", "--json"]).stdout)
    assert shown["holds"]
    assert shown["mode"] == "enforced"
    assert (tmp_path / "api" / "license").read_bytes() == issued.read_bytes()
