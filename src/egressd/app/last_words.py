"""The reason that netd could not go on, in a file: the api is asked why clients are blocked."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from egressd.app import accounts
from egressd.app.config import Config
from egressd.model.errors import EgressdError
from egressd.netd.files import write_private

_NAME: Final = "netd.problem"
_MAX: Final = 2000
"""Characters of it that are told."""


def leave(settings: Config, why: str) -> None:
    """Write down why netd ends. What cannot be written is in the log all the same."""
    with suppress(OSError, EgressdError):
        readers = accounts.account(settings.api.user).pw_gid
        write_private(settings.run.dir / _NAME, why[:_MAX].encode(), readers=readers)


def withdraw(settings: Config) -> None:
    """netd works."""
    with suppress(OSError):
        (settings.run.dir / _NAME).unlink(missing_ok=True)


def read(settings: Config) -> str:
    """Return the reason that netd could not go on; empty where it is not known."""
    with suppress(OSError):
        return f"it cannot go on: {(settings.run.dir / _NAME).read_text(errors='replace')}"
    return ""
