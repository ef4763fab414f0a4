"""The command line that calls a device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner, Result

from egressd.cli import cli
from tests.support.api_device import TOKEN, Device

if TYPE_CHECKING:
    from egressd.service.rules import Rules


class Shell:
    """Runs commands of ``egressd`` against a device, as one who has its token."""

    def __init__(self, device: Device, url: str, folder: Path) -> None:
        self.device = device
        self.folder = folder
        """The api's, in the folder of the device's data."""
        self.url = url
        self.token = TOKEN

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """One command, whatever comes of it."""
        env = {"EGRESSD_URL": self.url, "EGRESSD_TOKEN": self.token}
        return CliRunner(env=env).invoke(cli, arguments, input=stdin)

    def say(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of a command that must succeed."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output or result.exception
        return result.stdout

    def json(self, *arguments: str, stdin: str = "") -> Any:
        """Return the document that a command prints with ``--json``."""
        return json.loads(self.say(*arguments, "--json", stdin=stdin))

    def problem(self, *arguments: str, stdin: str = "") -> str:
        """Return the error of a command that must fail."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code != 0
        return str(result.exception)


def listed(rules: Rules) -> list[tuple[str, str, bool]]:
    """Address, target and switch of each rule."""
    return [(rule.host, rule.target_node, rule.is_enabled) for rule in rules.list()]
