"""``egressd config check`` and ``show``."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from egressd.app import config, toml_values
from egressd.cli.configuration import config_
from egressd.model.errors import Invalid

EVERYTHING = """\
[api]
listen = "127.0.0.1:8787"
[data]
dir = "/srv/a \\"quoted\\" name"
[wan]
interfaces = ["wan1", "wan2"]
gateways = { wan2 = "198.51.100.1" }
[dns]
return = ["223.5.5.5"]
local = { lan = "10.0.0.1", "corp.example" = ["10.0.1.5", "10.0.1.6"] }
[engine]
workers = 3
[console]
insecure = true
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(config_, arguments)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "egressd.toml"
    path.write_text(EVERYTHING)
    return path


def test_a_valid_file_is_called_so(file: Path) -> None:
    done = run("check", "--config", str(file))
    assert (done.exit_code, done.output) == (0, f"{file} is valid\n")


def test_each_fault_is_reported_with_its_key(file: Path) -> None:
    file.write_text("[api]\nlisten = 8787\n[nonsense]\nkey = 1\n")
    done = run("check", "--config", str(file))
    assert isinstance(done.exception, Invalid)
    text = str(done.exception)
    assert "api.listen: must be ADDRESS:PORT" in text
    assert "nonsense is not a key of the configuration" in text


def test_the_needs_of_systemd_are_checked_when_asked_for(file: Path) -> None:
    file.write_text('[api]\nlisten = "0.0.0.0:80"\n[run]\ndir = "/srv/run"\n')
    assert run("check", "--config", str(file)).exit_code == 0
    done = run("check", "--systemd", "--config", str(file))
    assert isinstance(done.exception, Invalid)
    text = str(done.exception)
    assert 'run.dir: the systemd units need "/run/egressd"' in text
    assert "api.listen: the api, which is not root, can listen at ports from 1024 on" in text


def test_the_output_of_show_is_the_same_configuration(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EGRESSD_ENGINE__WORKERS", "2")
    done = run("show", "--config", str(file))
    assert done.exit_code == 0
    shown = config.read(tomllib.loads(done.output))
    wanted = tomllib.loads(EVERYTHING) | {"engine": {"workers": 2}}
    assert shown == config.read(wanted)
    lines = done.output.splitlines()
    assert f'listen = "127.0.0.1:8787"  # {file}' in lines
    assert "workers = 2  # EGRESSD_ENGINE__WORKERS" in lines
    assert 'user = "egressd-engine"  # default' in lines


def test_show_prints_values_and_origins_as_json(file: Path) -> None:
    shown = json.loads(run("show", "--json", "--config", str(file)).output)
    assert shown["wan"]["gateways"] == {"value": {"wan2": "198.51.100.1"}, "origin": str(file)}
    assert shown["dns"]["return"]["value"] == ["223.5.5.5"]
    assert shown["run"]["dir"] == {"value": "/run/egressd", "origin": "default"}
    assert shown.keys() == toml_values.keys(config.Config).keys()
