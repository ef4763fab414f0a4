"""Commands that other distributions add to ``egressd``, the lab above all."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import egressd.cli as command_line
from egressd.cli import COMMANDS, GROUP, cli


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """A command line looks for distributions once."""
    command_line._added.cache_clear()
    yield
    command_line._added.cache_clear()


def add(monkeypatch: pytest.MonkeyPatch, folder: Path, *commands: str) -> None:
    """Make a further distribution that adds commands, each a module with `it`."""
    about = folder / "other-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: other\nVersion: 1\n")
    lines = [f"{name} = other_{name}:it" for name in commands]
    (about / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
    for name in commands:
        text = f"import click\nit = click.Command({name!r}, help='Of the other.')\n"
        (folder / f"other_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(folder)


def names() -> list[str]:
    return cli.list_commands(click.Context(cli))


def test_a_checkout_has_the_lab() -> None:
    assert names() == [*COMMANDS, "lab"]
    shown = CliRunner().invoke(cli, ["--help"])
    assert re.search("\n  lab +A network in namespaces: ", shown.output)
    shown = CliRunner().invoke(cli, ["lab", "--help"])
    assert shown.exit_code == 0
    assert "\n  demo " in shown.output


@pytest.mark.parametrize("arguments", [["lab"], ["lab", "demo"], ["lab", "--help"]])
def test_a_device_says_that_it_has_no_lab(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: ())
    assert names() == [*COMMANDS]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 2
    assert refused.output.splitlines()[-1] == (
        "Error: No such command 'lab': the lab is a distribution of its own, which comes with a"
        " checkout of egressd and is installed by the checkout's script/setup."
    )


def test_another_unknown_command_is_not_said_to_be_of_the_lab() -> None:
    refused = CliRunner().invoke(cli, ["labs"])
    assert refused.exit_code == 2
    assert refused.output.splitlines()[-1].startswith("Error: No such command 'labs'.")


def test_other_distributions_add_commands_and_replace_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add(monkeypatch, tmp_path, "z", "a", "completion")
    assert names() == [*COMMANDS, "a", "lab", "z"]
    assert (
        CliRunner().invoke(cli, ["a", "--help"]).output.splitlines()[2].strip() == "Of the other."
    )
    assert "Of the other." not in CliRunner().invoke(cli, ["completion", "--help"]).output


def test_own_commands_do_not_wait_for_the_others() -> None:
    program = (
        "import sys; from egressd.cli import cli;"
        " cli(['completion', 'bash'], standalone_mode=False);"
        " sys.exit('importlib.metadata' in sys.modules or 'egressd_lab' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
