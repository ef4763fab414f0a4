"""Files that netd writes for itself, its daemons and workers."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: bytes, *, readers: int | None = None) -> None:
    """Replace a file atomically; only root, and the group `readers` if given, may read it.

    The file is not synced: a power cut may undo the change. Raises OSError.
    """
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        if readers is not None:
            os.fchown(descriptor, -1, readers)
            os.fchmod(descriptor, 0o640)
    beside.replace(path)
