"""docs/formats.md: its example prints the shown output."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"


def test_the_example_prints_the_shown_output() -> None:
    source, shown = re.findall(r"```(?:python|text)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(source, str(GUIDE), "exec"), {})
    assert printed.getvalue() == shown
