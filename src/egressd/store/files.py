"""Small files that are replaced whole: at any moment the old content or the new, never a part."""

from __future__ import annotations

import os
from pathlib import Path

from egressd.model.errors import Failed


def prepare_directory(path: Path, owner: tuple[int, int] | None = None) -> None:
    """Make the data directory unless it exists, accessible only to its owner (mode 0700).

    `owner` is the user and group id it is given; only root can give it to another user. Raises
    Failed, also if a file of another kind has the name.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Failed(f"prepare the directory {path}", error.strerror or str(error)) from error


def create_private(path: Path) -> int:
    """Return a descriptor of a new, empty file of mode 0600, owned by its folder's owner.

    An older file of that name is removed. A link at that path is not followed, because root may be
    writing into a folder of the api's user.
    """
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if os.geteuid() == 0:
        folder = path.parent.stat()
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def replace_durably(path: Path, content: bytes) -> None:
    """Put `content` at `path`: write, fsync, rename, fsync the folder. Raises OSError."""
    fresh = path.with_name(path.name + ".new")
    _fill(create_private(fresh), content)
    move_durably(fresh, path)


def rewrite_durably(path: Path, content: bytes, *, new_mode: int) -> None:
    """Put `content` at `path` as `replace_durably` does, in a file of another program or of an
    operator: it keeps its owner and mode. `new_mode` is that of one that was not there. Raises
    OSError, with nothing left behind.
    """
    status = path.stat() if path.exists() else None
    fresh = path.with_name(path.name + ".new")
    descriptor = create_private(fresh)
    try:
        if status is not None:
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, new_mode if status is None else status.st_mode & 0o7777)
        _fill(descriptor, content)
        move_durably(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _fill(descriptor: int, content: bytes) -> None:
    """Write a new file, durably, and close its descriptor."""
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def move_durably(source: Path, target: Path) -> None:
    """Rename within a folder so that the new name survives a power loss. Raises OSError."""
    source.replace(target)
    sync_directory(target.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
