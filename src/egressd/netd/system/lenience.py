"""Steps that may fail without keeping those after them from being done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from egressd.model.errors import Failed

log = structlog.get_logger()


@contextmanager
def as_far_as_possible(action: str) -> Iterator[None]:
    """Log a failure of `action`, the block, and go on."""
    try:
        yield
    except (Failed, OSError) as error:
        log.warning("a step failed; continuing", action=action, error=str(error))
