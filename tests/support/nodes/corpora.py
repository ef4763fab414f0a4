"""Texts to import, in the shapes that panels, servers and programs write, with the right results.

A file of ``corpus/`` holds cases: a line with its title, the text, and a line for each node or
reason that the import must give, in order. Values are made up.

    ## title
    =type socks5                             (if it is not others)
    the text, as it is pasted
    => name {the engine's outbound} [notes]
    =! line 3: the reason that a row is refused for
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from egressd.formats.nodes import parse_nodes
from egressd.model.drafts import BadRow
from egressd.model.nouns import Node
from egressd.planner.options import options_of as engine_options
from egressd.planner.outbounds import build

CORPUS = Path(__file__).parents[2] / "formats" / "corpus"


class Case(msgspec.Struct, frozen=True):
    """A text to import, and the lines that describe its right result."""

    title: str
    text: str
    expected: tuple[str, ...]
    import_type: str = "others"

    def __str__(self) -> str:
        return self.title


def cases_of(file: Path) -> Iterator[Case]:
    """Yield the cases of a file."""
    for block in f"\n{file.read_text()}".split("\n## ")[1:]:
        title, *lines = block.removesuffix("\n").split("\n")
        kind = "others"
        if lines[0].startswith("=type "):
            kind = lines.pop(0).removeprefix("=type ")
        expected = [line for line in lines if line.startswith(("=> ", "=! "))]
        text = "\n".join(line for line in lines if not line.startswith(("=> ", "=! "))).strip("\n")
        yield Case(f"{file.stem}: {title}", text, tuple(expected), kind)


def cases() -> list[Case]:
    """Return the cases of all files."""
    return [case for file in sorted(CORPUS.glob("*.txt")) for case in cases_of(file)]


def options_of(protocol: str, config_json: str) -> dict[str, Any]:
    """Return a node's options for the engine."""
    node = Node(id=1, name="n", protocol=protocol, config_json=config_json, group="", created_at="")
    return engine_options(build(node))


def outbound_of(protocol: str, config_json: str) -> dict[str, Any]:
    """Return a node's options for the engine, without empty values."""
    return dict(_told(options_of(protocol, config_json)))


def imported(text: str, import_type: str = "others") -> list[str]:
    """Return the result of an import, in the notation of the corpus."""
    lines = []
    for row in parse_nodes(import_type, text):
        if isinstance(row, BadRow):
            lines.append(f"=! {row}")
            continue
        outbound = json.dumps(
            outbound_of(row.draft.protocol, row.draft.config_json),
            ensure_ascii=False,
            sort_keys=True,
        )
        notes = f" {json.dumps(row.notes, ensure_ascii=False)}" if row.notes else ""
        lines.append(f"=> {row.draft.name} {outbound}{notes}")
    return lines


def outbounds(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the outbounds that a case must give."""
    for line in case.expected:
        if line.startswith("=> "):
            begin = line.index(" {") + 1
            yield json.JSONDecoder().raw_decode(line, begin)[0]


def _told(value: Any) -> Any:
    if isinstance(value, dict):
        inner = ((key, _told(item)) for key, item in value.items())
        return {key: item for key, item in inner if item not in ("", {}, [], None)}
    return value
