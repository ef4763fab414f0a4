"""The versions of egressd that the Debian package has put on this machine.

Each has a folder of its own beside the others, and the link ``current`` names the one in force
(``packaging/debian/postinst``). One rename changes it, so it names a whole version at each moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd.store.files import move_durably

HOME: Final = Path("/opt/egressd")


class InstalledVersions:
    """The folder of versions."""

    def __init__(self, home: Path = HOME) -> None:
        self._home = home
        self._current = home / "current"

    def in_force(self) -> str | None:
        """Return the version in force; None if no package is installed."""
        try:
            return str(self._current.readlink())
        except OSError:
            return None

    def program(self, version: str) -> Path:
        """Return the command line's program of a version."""
        return self._home / version / "bin" / "egressd"

    def has(self, version: str) -> bool:
        """True if the version's files are here."""
        return self.program(version).exists()

    def put_in_force(self, version: str) -> None:
        """Have ``current`` name `version`, also after a power failure. Raises Failed."""
        if not self.has(version):
            raise Failed(f"put version {version} in force", f"{self._home} does not have it")
        fresh = self._home / "current.new"
        try:
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(version)
            move_durably(fresh, self._current)
        except OSError as error:
            raise Failed(f"put version {version} in force", str(error)) from error
