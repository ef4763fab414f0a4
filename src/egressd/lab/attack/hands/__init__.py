"""One module for each way in. Its ``attack`` yields a word for each thing that it has tried.

A word that begins with `BREACH` is told of as one: something went through that must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

BREACH: Final = "BREACH: "

Attack = Callable[..., Iterator[str]]
"""``attack(rng, **what it is told of the lab)``. It goes on for ever."""

Told = dict[str, Any]


def pick(rng: Random, ways: dict[str, Callable[[], object]]) -> str:
    """Do one of several things at random; its name."""
    name = rng.choice(list(ways))
    ways[name]()
    return name
