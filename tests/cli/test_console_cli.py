"""``egressd console code``."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from egressd.cli import cli


def test_a_setup_code_is_printed_again_until_it_is_used(tmp_path: Path) -> None:
    config = tmp_path / "egressd.toml"
    config.write_text(f'[data]\ndir = "{tmp_path}"\n[api]\nuser = "root"\n')

    def code() -> str:
        result = CliRunner().invoke(cli, ["console", "code", "--config", str(config)])
        assert result.exit_code == 0, result.output
        return result.output.strip()

    first = code()
    assert re.fullmatch(r"(?:[2-9A-HJ-NP-Z]{4}-){2}[2-9A-HJ-NP-Z]{4}", first)
    assert code() == first
    (tmp_path / "api" / "setup-code").unlink()
    assert code() != first
