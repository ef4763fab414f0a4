"""The files of rule sets that instances read when they start.

They lie in a folder that is every worker's working directory; root writes, the engine's group
reads. A file is named by its content, so it never changes.

sing-box also watches each file that it reads, for changes that never come. If its user may have no
more inotify instances (``fs.inotify.max_user_instances``, 128 by default) it says so in the
worker's log, and works all the same.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd.netd.system.files import write_private

FOLDER: Final = "rule-sets"
"""The folder's name, beside the workers' sockets."""


class RuleSets:
    """The folder, for the engine's group `gid`."""

    def __init__(self, run_dir: Path, gid: int) -> None:
        self._folder = run_dir / FOLDER
        self._gid = gid

    def open(self) -> None:
        """Make the folder. Repeat-safe."""
        self._folder.mkdir(mode=0o750, exist_ok=True)
        os.chown(self._folder, 0, self._gid)

    def put(self, contents: Mapping[str, bytes]) -> None:
        """Write the files that are missing. Raises Failed."""
        for name, content in contents.items():
            path = self._folder / name
            if path.exists():
                continue
            try:
                write_private(path, content, readers=self._gid)
            except OSError as error:
                raise Failed(f"write the rule set {name}", str(error)) from error

    def keep(self, names: Collection[str]) -> None:
        """Remove all files but these. Instances that run have read theirs."""
        for path in self._folder.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)
