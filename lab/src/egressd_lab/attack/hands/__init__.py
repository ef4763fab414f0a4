"""One module for each way in. Its ``attack`` yields a word for each attempt.

A word that begins with `BREACH` is reported as a breach: a forbidden attempt succeeded.
"""

from __future__ import annotations

from typing import Final

BREACH: Final = "BREACH: "
