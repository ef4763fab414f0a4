"""The documents: each link leads to a file and heading; README.md leads to every document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS, ROOT

_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"(?:\]\(|\b(?:href|src|srcset)=\")([^)\"\s]+)")
"""A link of Markdown, or an attribute of HTML within it."""
_HEADING = re.compile(r"^#{1,6} (.+?) *#*$", re.MULTILINE)


def links(text: str) -> list[str]:
    """Return the targets of the links in Markdown text, those to other hosts left out."""
    prose = _CODE.sub("", _FENCED.sub("", text))
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings in Markdown text, as GitHub makes them: lower case, no
    punctuation but hyphens and underscores, hyphens for blanks, and a number for each repetition.
    """
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def broken(document: Path) -> Iterator[str]:
    """Yield the links of a document that lead nowhere."""
    for target in links(document.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if not file.exists() or (anchor and anchor not in anchors(file.read_text("utf-8"))):
            yield target


def test_links_and_anchors_are_parsed_as_on_github() -> None:
    text = (
        "# What is told, and `how` soon\n"
        "[a](b.md#c) [d](https://e.example/) `[f](g.md)`\n"
        "```sh\n# no heading [h](i.md)\n```\n"
        "## Same\n## Same\n## A [link](j.md)'s\n"
        '<picture><source srcset="k.png"><img alt="" src="l.png"></picture>\n'
    )
    assert links(text) == ["b.md#c", "j.md", "k.png", "l.png"]
    assert anchors(text) == {"what-is-told-and-how-soon", "same", "same-1", "a-links"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda it: str(it.relative_to(ROOT)))
def test_links_lead_to_existing_files_and_headings(document: Path) -> None:
    assert list(broken(document)) == []


def test_the_readme_links_to_every_document() -> None:
    reached: set[Path] = set()
    open_ends = [ROOT / "README.md"]
    while open_ends:
        document = open_ends.pop()
        reached.add(document)
        paths = (target.partition("#")[0] for target in links(document.read_text("utf-8")))
        named = {(document.parent / path).resolve() for path in paths if path.endswith(".md")}
        open_ends += sorted(named - reached - {*open_ends})
    assert {*DOCUMENTS} - reached == set()
