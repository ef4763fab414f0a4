"""The reason why netd could not go on, in a file for the api, which reports why clients are
blocked.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from egressd.app import accounts
from egressd.app.config import Config
from egressd.model.errors import EgressdError
from egressd.netd.system.files import write_private

_NAME: Final = "netd.problem"
_MAX: Final = 2000
"""Characters of the reason that are kept at most."""


def leave(settings: Config, why: str) -> None:
    """Write the reason why netd ends. A failure is ignored: the log has the reason, too."""
    with suppress(OSError, EgressdError):
        readers = accounts.account(settings.api.user).pw_gid
        write_private(settings.run.dir / _NAME, why[:_MAX].encode(), readers=readers)


def withdraw(settings: Config) -> None:
    """Remove the reason, since netd works."""
    with suppress(OSError):
        (settings.run.dir / _NAME).unlink(missing_ok=True)


def read(settings: Config) -> str:
    """Return the reason why netd could not go on; empty if it is not known."""
    with suppress(OSError):
        return f"it cannot go on: {(settings.run.dir / _NAME).read_text(errors='replace')}"
    return ""
