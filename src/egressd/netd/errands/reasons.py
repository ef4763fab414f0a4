"""Reasons why errands fail: one line each, without parts of the errand's URL, which are secrets."""

from __future__ import annotations

import re
from typing import Final, Protocol
from urllib.parse import unquote

from egressd.model.names import one_line
from egressd.model.wording import Sentence, as_sentence

_SECRET_MIN: Final = 5
"""Characters of a part of a URL that is kept out of reasons."""
_REASON_MAX: Final = 300


class ReasonOf(Protocol):
    """A function that makes a reason of a text, as `reason_of` does for one errand's URL."""

    def __call__(self, text: str) -> Sentence: ...


def reason_of(url: str, text: str) -> Sentence:
    """Return a text in one line, without parts of the URL."""
    parts = re.split(r"[^\w.~-]+", f"{url} {unquote(url)}")
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SECRET_MIN:
            text = text.replace(part, "…")
    return as_sentence(" ".join(one_line(text).split())[:_REASON_MAX])
