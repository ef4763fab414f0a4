"""A hand's process: ``python -m egressd_lab.attack.hand NAME SEED CORE ARGUMENTS``.

It runs until it is ended, on one processor core. Each second it prints its attempts since the
beginning, a JSON object of words and numbers; it prints each breach at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections import Counter
from random import Random
from typing import Final

from egressd_lab.attack.hands import BREACH

_TELL_S: Final = 1.0


def main(name: str, seed: str, core: str, arguments: str) -> None:
    """Try, and print the attempts."""
    os.sched_setaffinity(0, {int(core)})
    module = importlib.import_module(f"egressd_lab.attack.hands.{name}")
    rng = Random(f"{name} {seed}")  # noqa: S311 - to be repeatable, not secret
    tried: Counter[str] = Counter()
    told_at = time.monotonic()
    for word in module.attack(rng, **json.loads(arguments)):
        tried[word] += 1
        if word.startswith(BREACH) or time.monotonic() - told_at > _TELL_S:
            told_at = time.monotonic()
            print(json.dumps(tried), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
