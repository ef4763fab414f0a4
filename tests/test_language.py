"""The language of code and documents: plain technical English, as CONTRIBUTING.md describes it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
ROOMS: Final = ("src", "lab", "tests", "bench", "script", ".ci")

OPENING: Final = re.compile(
    r"(What|Whether|How|Who|Whom|Whose|Those|That|Of|Whatever|Whoever|Whichever|Where|Wherever|Why"
    r"|Which|When)\b"
)
"""A docstring that opens so has no subject: "What is measured" instead of "A measurement"."""
PEOPLE: Final = re.compile(r"(?i)\b(nobody|somebody|everybody|whoever|whosever|told)\b")
"""Words in place of a client, a packet, a process or a report, which have names."""
LITERAL: Final = re.compile(r"``[^`]*``")
"""Text that is quoted as it is elsewhere, such as the name of a user."""
UNIT_IN_NAME: Final = re.compile(
    r"_(S|MS|NS|SECONDS|DAYS|BYTES|BITS|KBPS|KIB|MIB|MTU|MSS|MAX|MIN|PORTS?|VERSION|MASK|SHIFT)$"
)


def programs() -> list[Path]:
    """Return all programs and modules in Python, those without a suffix too."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix == ".py":
                found.append(path)
            elif path.is_file() and not path.suffix:
                with path.open("rb") as file:
                    if file.readline().startswith(b"#!/usr/bin/env python"):
                        found.append(path)
    return found


def blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield each list of statements."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(tree, field, None)
        if isinstance(block, list):
            if field not in ("handlers", "cases"):
                yield block
            for statement in block:
                yield from blocks(statement)


def text_of(statement: ast.stmt) -> str:
    """Return the text of a statement that is only a string, as docstrings are."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return value if isinstance(value, str) else ""
    return ""


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring, those of attributes and constants too."""
    for block in blocks(tree):
        for statement in block:
            if text := text_of(statement):
                yield statement.lineno, text.lstrip()


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def log_texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each call of a logger."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log")), args=[ast.Constant(value=str(text))]
            ):
                yield node.lineno, text


def bare_numbers(path: Path) -> Iterator[int]:
    """Yield the lines of module-level numbers that are not explained.

    A number has its unit in its name, or a docstring or comment, which a group may share. The
    constants in `uapi` have the kernel's names.
    """
    source = path.read_text()
    lines, body = source.splitlines(), ast.parse(source).body
    for place, statement in enumerate(body):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=value)):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                pass
            case _:
                continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        documented = place + 1 < len(body) and text_of(body[place + 1])
        commented = "#" in lines[statement.lineno - 1] or is_headed(lines, statement.lineno - 1)
        if not (UNIT_IN_NAME.search(name) or documented or commented):
            yield statement.lineno


def is_headed(lines: list[str], place: int) -> bool:
    """Return True if the lines without a gap above a line begin with a comment."""
    while place and lines[place - 1].strip() and not lines[place - 1].startswith(("#", '"""')):
        place -= 1
    return place > 0 and lines[place - 1].startswith("#")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document outside of code."""
    in_code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, re.sub(r"`[^`]*`", "", line)


@pytest.fixture(scope="module")
def sources() -> list[tuple[Path, str, ast.AST]]:
    """Return path, text and syntax tree of each program; this file names the words it looks for."""
    found = [(path, path.read_text()) for path in programs() if path != Path(__file__)]
    assert len(found) > 500
    return [(path.relative_to(ROOT), text, ast.parse(text)) for path, text in found]


def test_docstrings_have_a_subject(sources: list[tuple[Path, str, ast.AST]]) -> None:
    faults = [
        f"{path}:{line}: {text.splitlines()[0]}"
        for path, _, tree in sources
        for line, text in docstrings(tree)
        if OPENING.match(text)
    ]
    assert faults == []


def test_docstrings_comments_and_logs_name_what_they_mean(
    sources: list[tuple[Path, str, ast.AST]],
) -> None:
    faults = [
        f"{path}:{line}: {word[0]!r} in {text.splitlines()[0][:80]!r}"
        for path, source, tree in sources
        if PEOPLE.search(source)
        for line, text in (*docstrings(tree), *comments(source), *log_texts(tree))
        if (word := PEOPLE.search(LITERAL.sub("", text)))
    ]
    assert faults == []


def test_numbers_have_a_unit_or_an_explanation() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src" / "egressd").rglob("*.py"))
        if path.name != "uapi.py"
        for line in bare_numbers(path)
    ]
    assert faults == []


def test_documents_name_what_they_mean() -> None:
    documents = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    faults = [
        f"{path.relative_to(ROOT)}:{number}: {word[0]!r} in {line[:80]!r}"
        for path in sorted(documents)
        for number, line in prose(path)
        if (word := PEOPLE.search(line))
    ]
    assert faults == []
