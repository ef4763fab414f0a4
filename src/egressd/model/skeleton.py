"""The look of a text: two texts with the same skeleton look alike (UTS #39, 4)."""

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
expression; without the tags by which flags of regions differ, which `names` allows only there."""

_LONGEST: Final = 256
"""Characters: several times the longest name. The time to put combining marks in order grows with
the square of their number."""
_IGNORED: Final = re.compile(f"[{IGNORABLE}]")


def skeleton(text: str) -> str:
    """Return the skeleton of a text: canonically decomposed, without invisible characters, and with
    each character replaced by the prototype of all that look like it. A text that is too long for a
    name is its own skeleton.
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
    # Some prototypes decompose into characters that have prototypes themselves, as U+FEF5's does.
    return {
        point: unicodedata.normalize("NFD", looks).translate(made) for point, looks in made.items()
    }
