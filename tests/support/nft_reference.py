"""The reference of the nftables tables in ``docs/dataplane.md``, from the comments that their
objects bear.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from egressd.planner.chains import CHAINS, MAPS, SETS
from egressd.planner.declared import Chain, SetSpec
from egressd.planner.shaping import NETDEV

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "dataplane.md"
_BEGIN: Final = "<!-- The reference: written by `python -m tests.golden`. -->\n"
_END: Final = "<!-- The end of the reference. -->\n"
_JUMP: Final = re.compile(r"(?:goto|jump) (\w+)")
_VERDICTS: Final = {"@pairs": "to_narrow"}
"""Maps of verdicts, and the chain that their elements lead to."""


def document() -> str:
    """Return the document with the reference as it has to be. Raises ValueError if the document
    has no place for it.
    """
    before, begin, rest = DOCUMENT.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{DOCUMENT} has no reference between {_BEGIN!r} and {_END!r}")
    return f"{before}{begin}\n{_reference()}\n{end}{after}"


def hooks() -> dict[str, tuple[str, ...]]:
    """Return the hooks from which each chain is reached; a base chain's own is among them."""
    found: dict[str, list[str]] = {name: [] for name in CHAINS}
    for base, chain in CHAINS.items():
        if chain.hook:
            hook, waiting = chain.hook.split()[3], [base]
            while waiting:
                name = waiting.pop()
                if hook not in found[name]:
                    found[name].append(hook)
                    waiting += _next(CHAINS[name])
    return {name: tuple(of_chain) for name, of_chain in found.items()}


def _next(chain: Chain) -> Iterator[str]:
    for rule in chain.rules:
        yield from _JUMP.findall(rule)
        yield from (name for verdicts, name in _VERDICTS.items() if f"vmap {verdicts}" in rule)


def _reference() -> str:
    reached = hooks()
    chains = (
        (f"`{name}`", _at(chain) or ", ".join(reached[name]), _cell(chain.comment))
        for name, chain in CHAINS.items()
    )
    return "\n".join(
        (
            *_table(("set", "type", "what it holds"), _specs(SETS)),
            "",
            *_table(("map", "type", "what it holds"), _specs(MAPS)),
            "",
            *_table(("chain", "hook", "what it does"), chains),
            "",
            "Of the table of family netdev:",
            "",
            *_table(("set", "type", "what it holds"), _specs(NETDEV.sets)),
            "",
            *_table(("map", "type", "what it holds"), _specs(NETDEV.maps)),
            "",
        )
    )


def _at(chain: Chain) -> str:
    """Return the place of a base chain: its type, hook and priority."""
    if not chain.hook:
        return ""
    words = chain.hook.split(";")[0].split()
    return f"**{words[3]}**, {words[1]}, priority {words[5]}"


def _specs(specs: Mapping[str, SetSpec]) -> Iterator[tuple[str, ...]]:
    for name, each in specs.items():
        kind = each.spec.split(";")[0].removeprefix("typeof ").removeprefix("type ")
        yield f"`{name}`", f"`{kind}`", _cell(each.comment)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    for row in (head, ("---",) * len(head), *rows):
        yield f"| {' | '.join(row)} |"


def _cell(comment: str) -> str:
    return comment.replace("|", "\\|")
