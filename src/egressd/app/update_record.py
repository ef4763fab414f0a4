"""The outcome of the last ``egressd update``, in a file for the api, which reports a failed one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from egressd.model.wording import Sentence, say
from egressd.store.files import replace_durably

_NAME: Final = "update.json"
_MAX: Final = 500
"""Characters of a reason that are kept at most."""


def leave(folder: Path, *, wanted: str, in_force: str, reason: str) -> None:
    """Write in the data `folder` that the update to `wanted` failed for `reason`, and which version
    is `in_force`. Only root may write in that folder. Raises OSError.
    """
    record = {"wanted": wanted, "in_force": in_force, "reason": reason[:_MAX]}
    path = folder / _NAME
    replace_durably(path, json.dumps(record).encode())
    path.chmod(0o644)  # root writes it, and the api reads it


def withdraw(folder: Path) -> None:
    """Remove the record: the last update was successful. Raises OSError."""
    (folder / _NAME).unlink(missing_ok=True)


def problems(folder: Path) -> tuple[Sentence, ...]:
    """Return a sentence if the last update failed."""
    try:
        record = json.loads((folder / _NAME).read_text())
        wanted, in_force, reason = record["wanted"], record["in_force"], record["reason"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    if not all(isinstance(value, str) for value in (wanted, in_force, reason)):
        return ()
    return (say("update-failed", wanted=wanted, in_force=in_force, reason=reason),)
