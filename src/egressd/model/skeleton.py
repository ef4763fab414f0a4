"""What a text looks like: two texts with the same skeleton cannot be told apart (UTS #39, 4)."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from egressd.model.confusables import TABLE

IGNORABLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e001f\U000e0080-\U000e0fff"
)
"""Characters that show nothing (Unicode's Default_Ignorable_Code_Point), as a class of a regular
expression; less the tags by which flags of regions differ, which `names` allows there alone."""

_LONGEST: Final = 256
"""Characters: several times those of the longest name. Putting the marks of a text in order takes
time that grows with the square of their number."""
_IGNORED: Final = re.compile(f"[{IGNORABLE}]")


def skeleton(text: str) -> str:
    """Return the skeleton of a text: canonically decomposed, what shows nothing taken out, and
    each character in place of all that look like it. A text that is too long for a name is its own.
    """
    if len(text) > _LONGEST:
        return text
    if text.isascii():
        return text.translate(_table())
    plain = _IGNORED.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFD", plain.translate(_table()))


@cache
def _table() -> dict[int, str]:
    """Return the table that `str.translate` takes."""
    made: dict[int, str] = {}
    for group in TABLE.split(" "):
        prototype, _, characters = group.partition(":")
        looks = "".join(chr(int(point, 16)) for point in prototype.split("+"))
        made |= {int(point, 16): looks for point in characters.split(",")}
    return made
