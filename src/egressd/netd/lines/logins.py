"""The logins that have worked. A server that refuses such a login may still hold an earlier
session.

The key of a login is the `dial_key` of its line, which changes with every edit that a server may
see. A small file keeps the logins over restarts of netd and reboots: servers hold sessions after a
power cut, too.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from egressd.netd.system.files import write_private

log = structlog.get_logger()


class Logins:
    """The lines, by key, that were online as they are configured."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._worked: set[str] = set()

    def load(self) -> None:
        """Load the logins that an earlier netd saved; none if the file cannot be read."""
        with suppress(OSError, msgspec.DecodeError):
            self._worked = msgspec.json.decode(self._path.read_bytes(), type=set[str])

    def has_worked(self, key: str) -> bool:
        """True if the line with that key was online."""
        return key in self._worked

    def note(self, key: str) -> None:
        """Remember that the line with that key is online."""
        if key not in self._worked:
            self._worked.add(key)
            self._save()

    def keep_only(self, keys: Set[str]) -> None:
        """Forget all lines but these."""
        if forgotten := self._worked - keys:
            self._worked -= forgotten
            self._save()

    def _save(self) -> None:
        """Save the logins. After a failure lines only have longer pauses after a restart."""
        try:
            write_private(self._path, msgspec.json.encode(sorted(self._worked)))
        except OSError as error:
            log.warning("could not write down which logins have worked", error=str(error))
