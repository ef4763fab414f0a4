"""The key that the secrets of a site are sealed with: a file in the data directory of the api."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Final

from egressd.app.config import Config
from egressd.model.errors import Failed
from egressd.store.files import replace_durably
from egressd.store.sealing import KEY_BYTES

NAME: Final = "site-key"
"""The name of the file."""


def read(settings: Config) -> bytes:
    """Return the site's key. Raises Failed if there is none."""
    path = _path(settings)
    try:
        key = base64.b64decode(path.read_bytes(), validate=True)
    except FileNotFoundError:
        raise Failed(
            "read the site's key", f"{path} is missing: run egressd cluster init"
        ) from None
    except (OSError, ValueError) as error:
        raise Failed("read the site's key", str(error)) from error
    if len(key) != KEY_BYTES:
        raise Failed("read the site's key", f"{path} has not {KEY_BYTES} bytes in base64")
    return key


def ensure(settings: Config) -> bytes:
    """Return the site's key; make one, for the folder's owner, if there is none. Raises Failed."""
    if not _path(settings).exists():
        keep(settings, new())
    return read(settings)


def new() -> bytes:
    """Return a new key for a site."""
    return secrets.token_bytes(KEY_BYTES)


def keep(settings: Config, key: bytes) -> None:
    """Write the site's key, for the folder's owner. Raises Failed."""
    try:
        replace_durably(_path(settings), base64.b64encode(key))
    except OSError as error:
        raise Failed("write the site's key", str(error)) from error


def _path(settings: Config) -> Path:
    return settings.api_data / NAME
