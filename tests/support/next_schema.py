"""The next egressd, made by the tests: this one, with another schema of the site's database.

Its migration adds a column and a table, and lets older ones write no more. It knows one more format
of the log, which proxy services need: as if they had got a field.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import egressd
from egressd.store import edit_log
from egressd.store.postgres.connection import NEWEST
from egressd_lab.device import COMMAND, Device
from egressd_lab.process import Program

SCHEMA: Final = "p9001"
VERSION: Final = "9.0.1"
_MIGRATION: Final = f"""
import sqlalchemy as sa
from alembic import op

revision = "{SCHEMA}"
down_revision = "{NEWEST}"


def upgrade() -> None:
    op.execute("UPDATE schema_reader SET min_reader = '{SCHEMA}'")
    op.add_column("rules", sa.Column("next", sa.Text, nullable=False, server_default=""))
    op.create_table("next", sa.Column("id", sa.BigInteger, primary_key=True))
"""
_CHANGED: Final = {
    "__init__.py": (f'"{egressd.__version__}"', f'"{VERSION}"'),
    "store/postgres/connection.py": (f'"{NEWEST}"', f'"{SCHEMA}"'),
    "store/edit_log.py": (
        f"FORMAT: Final = {edit_log.FORMAT}\n",
        f"FORMAT: Final = {edit_log.FORMAT + 1}\n",
    ),
}
"""Module -> a text that is there once, and its replacement."""
_FORMAT: Final = ("_SINCE: Final = {", f'_SINCE: Final = {{"services": {edit_log.FORMAT + 1}, ')


class NextRelease:
    """The next egressd, in a folder from which Python imports it in place of this one."""

    def __init__(self, folder: Path) -> None:
        self._environment = {"PYTHONPATH": str(folder)}
        package = folder / "egressd"
        shutil.copytree(Path(egressd.__file__).parent, package)
        for name, change in (*_CHANGED.items(), ("store/edit_log.py", _FORMAT)):
            text = (package / name).read_text()
            assert text.count(change[0]) == 1, (name, change)
            (package / name).write_text(text.replace(*change))
        (package / "store/postgres/migrations/versions" / f"{SCHEMA}_next.py").write_text(
            _MIGRATION
        )

    def install(self, device: Device) -> None:
        """Have a box that does not run start as the next egressd."""
        former = device.program
        device.program = Program(
            former.namespace,
            former.argv,
            former.log,
            {**device.environment, **self._environment},
        )

    def command(self, device: Device, *argv: str) -> list[str]:
        """Return the command line of an ``egressd`` command of the next egressd on a box."""
        variables = (f"{name}={value}" for name, value in self._environment.items())
        return ["env", *variables, *COMMAND, *argv, "--config", str(device.config)]
