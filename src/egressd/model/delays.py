"""The result of one measurement of a node, as engine workers, netd and the api exchange it."""

from __future__ import annotations

import msgspec

from egressd.model.wording import NONE, Sentence


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """The measured ``delay`` in whole milliseconds, or -1 with the reason in ``error``."""

    delay: int
    error: Sentence = NONE
    page: bytes = b""
    """The content that the site sent, as far as the probe asked for it."""
