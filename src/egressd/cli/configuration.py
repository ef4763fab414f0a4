"""``egressd config check`` and ``show``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from egressd.app import config, toml_values
from egressd.cli import config_option
from egressd.cli.output import json_option, show_json
from egressd.model.errors import Invalid
from egressd.model.pair import PairLink

_FIRST_PORT = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


@click.group("config")
def config_() -> None:
    """The configuration file: check it, or print all settings."""


@config_.command()
@config_option
@click.option(
    "--systemd", is_flag=True, help="Check what the systemd units need, too; run as the api's user."
)
def check(path: Path | None, systemd: bool) -> None:
    """Check the configuration file, and change nothing.

    Each fault is printed with its key, and the exit status is then 1.
    """
    settings = config.load(path)
    if systemd:
        _check_units(settings)
    file = path or config.DEFAULT_PATH
    click.echo(f"{file} is valid" if file.exists() else f"there is no {file}; all keys are default")


def _check_units(settings: config.Config) -> None:
    """Raise Invalid if systemd cannot run egressd with this configuration."""
    from egressd.console.page import Page

    try:
        Page()
    except OSError as error:
        raise Invalid(f"the api, which is not root, cannot read {error.filename}") from None
    usual, faults = config.Config(), []
    for key, value, default in (
        ("data.dir", settings.data.dir, usual.data.dir),
        ("run.dir", settings.run.dir, usual.run.dir),
        ("api.user", settings.api.user, usual.api.user),
    ):
        if value != default:
            faults.append(f'{key}: the systemd units need "{default}"')
    first = int(_FIRST_PORT.read_text())
    for key, endpoint in (
        ("api.listen", settings.api.listen),
        ("api.tls_listen", settings.api.tls_listen),
    ):
        if endpoint.port < first:
            faults.append(
                f"{key}: the api, which is not root, can listen at ports from {first} on"
                " (net.ipv4.ip_unprivileged_port_start)"
            )
    if faults:
        raise Invalid(*faults)


@config_.command()
@config_option
@json_option
def show(path: Path | None, as_json: bool) -> None:
    """Print all settings as a configuration file, each with its origin.

    An origin is the file, a variable of the environment, or the default.
    """
    settings, origins = config.explained(path)
    tables = {
        name: {
            key: {"value": value, "origin": origins.get((name, key), "default")}
            for key, value in _settings(getattr(settings, name))
        }
        for name in toml_values.keys(config.Config)
    }
    if as_json:
        show_json(tables)
        return
    for name, table in tables.items():
        click.echo(f"[{name}]")
        for key, found in table.items():
            click.echo(f"{_key(key)} = {_toml(found['value'])}  # {found['origin']}")
        click.echo()


def _settings(table: toml_values.IsTable) -> Iterator[tuple[str, Any]]:
    """Yield key and value of each setting of a table, as the file has them. A file has no value for
    a setting that is None.
    """
    for key, name in toml_values.keys(type(table)).items():
        value = getattr(table, name)
        if value is not None:
            yield key, _plain(value)


def _plain(value: Any) -> Any:
    """Return a value of the types that TOML and JSON share."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, PairLink):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value)


def _toml(value: Any) -> str:
    """Return a value in TOML. A JSON string is a basic string of TOML, less the DEL character,
    which no setting may have.
    """
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(k)} = {_toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name, ensure_ascii=False)
