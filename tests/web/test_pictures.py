"""The documents' pictures of the console are those of `tests.web.pictures`, which can make them."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS
from tests.web.pictures import FOLDER, PICTURES, make

SIZE_MAX = 150_000
"""Bytes of a picture. Each clone of the project contains all of them."""
SIZES = {name: picture.size for name, picture in PICTURES.items()}


def size(file: Path) -> tuple[int, int]:
    """Return width and height of a PNG file with a palette, after a check of its pixels.

    The file's signature and the first chunk's length and type precede them (RFC 2083, sections 3
    and 4.1.1).
    """
    data = file.read_bytes()
    width, height = struct.unpack(">16x2I", data[:24])
    (colours,) = struct.unpack(">33xI4x", data[:41])
    start = 33 + 12 + colours
    (packed,) = struct.unpack(">I4x", data[start : start + 8])
    rows = zlib.decompress(data[start + 8 : start + 8 + packed])
    assert len(rows) == height * (1 + width)
    assert max(rows) < colours // 3
    return width, height


def sizes(folder: Path) -> dict[str, tuple[int, int]]:
    """Return width and height of each file by name."""
    return {file.stem: size(file) for file in folder.iterdir()}


def test_the_documents_show_all_pictures_and_no_others() -> None:
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"\bpictures/([\w-]+)\.png", document.read_text("utf-8"))
    }
    assert named == PICTURES.keys()


def test_the_pictures_have_the_sizes_that_are_made_now() -> None:
    assert sizes(FOLDER) == SIZES


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_small(name: str) -> None:
    assert (FOLDER / f"{name}.png").stat().st_size < SIZE_MAX


@pytest.mark.lab
@pytest.mark.browser
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("namespaces")
def test_the_pictures_can_be_made(tmp_path: Path) -> None:
    make(tmp_path, history_s=10)
    assert sizes(tmp_path) == SIZES
