"""The one-time code that allows choosing the console's password.

A file beside the token, for the same reasons: root can create one without opening a database that
belongs to another user, and the running service sees it at once. A user who can create one, at the
device's shell, may also replace a forgotten password.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd.store.files import replace_durably, sync_directory

_LETTERS: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""Letters and digits, without those that are easily confused."""
_GROUPS: Final = (4, 4, 4)
"""Letters per group: 60 random bits."""


class SetupCode:
    """The code's file in the data directory: mode 0600."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "setup-code"

    def code(self) -> str | None:
        """Return the code that counts at this moment; None if none can be read. Raises Failed."""
        try:
            return self._path.read_bytes().decode().strip() or None
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        except OSError as error:
            raise Failed("read the setup code", str(error)) from error

    def renew(self) -> str:
        """Make a new code; an earlier one stops counting. Raises Failed."""
        fresh = "-".join("".join(secrets.choice(_LETTERS) for _ in range(n)) for n in _GROUPS)
        try:
            replace_durably(self._path, fresh.encode() + b"\n")
        except OSError as error:
            raise Failed("write the setup code", str(error)) from error
        return fresh

    @contextmanager
    def used_up(self) -> Iterator[None]:
        """Invalidate the code for good, unless the block fails: then it counts again.

        Raises Failed.
        """
        aside = self._path.with_name("setup-code.used")
        try:
            self._path.replace(aside)
            try:
                sync_directory(self._path.parent)
                yield
            except Exception:  # a cancelled block may have completed its work
                # Renaming works on a full disk. A newer code remains valid.
                if not self._path.exists():
                    aside.replace(self._path)
                raise
            finally:
                aside.unlink(missing_ok=True)
        except OSError as error:
            raise Failed("use up the setup code", str(error)) from error
