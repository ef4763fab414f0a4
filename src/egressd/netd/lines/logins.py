"""The logins that have worked: a server that refuses one may hold an earlier session for a while.

They are known by the `dial_key` of their line, which changes with every edit that a server may see,
and outlive netd and reboots in a small file: after a power cut servers hold sessions, too.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress
from pathlib import Path

import msgspec
import structlog

from egressd.netd.files import write_private

log = structlog.get_logger()


class Logins:
    """The lines, by key, that were online as they are configured."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._worked: set[str] = set()

    def load(self) -> None:
        """Take up what an earlier netd knew. Without a file that can be read: nothing."""
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
        """Write them down. A failure only costs lines long pauses after a restart."""
        try:
            write_private(self._path, msgspec.json.encode(sorted(self._worked)))
        except OSError as error:
            log.warning("could not write down which logins have worked", error=str(error))
