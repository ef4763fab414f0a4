"""One module for each way in. Its ``attack`` yields a word for each thing that it has tried.

A word that begins with `BREACH` is told of as one: something went through that must not.
"""

from __future__ import annotations

from typing import Final

BREACH: Final = "BREACH: "
