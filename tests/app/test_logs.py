"""Log lines that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest

from egressd.app import log_lines

SPEAK = """
import structlog
from egressd.app import logs

logs.configure("netd")
for _ in range(3):
    structlog.get_logger().warning("a line of no use")
print("at work")
"""


def test_p2_a_failed_log_write_stops_no_work() -> None:
    with Path("/dev/full").open("wb") as full:  # like a full disk, or a terminal that is gone
        done = subprocess.run(
            [sys.executable, "-c", SPEAK], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert done.stdout == b"at work\n"


def pipe_with(stated: str) -> tuple[TextIO, str]:
    """Return a stream, and the device and inode that systemd would state, or `stated`."""
    read, write = os.pipe()
    os.close(read)
    found = os.fstat(write)
    return os.fdopen(write, "w"), stated or f"{found.st_dev}:{found.st_ino}"


@pytest.mark.parametrize(
    ("stated", "wanted", "form"),
    [
        ("", None, "journal"),
        ("1:2", None, "json"),
        ("", "json", "json"),
        ("1:2", "text", "text"),
        ("", "text", "journal"),
    ],
)
def test_the_form_of_lines_follows_their_destination(
    stated: str, wanted: str | None, form: str
) -> None:
    stream, journal = pipe_with(stated)
    with stream:
        environment = {"JOURNAL_STREAM": journal} | ({log_lines.FORMAT: wanted} if wanted else {})
        assert log_lines.destination(environment, stream) == form


def test_a_terminal_has_readable_lines() -> None:
    main, other = os.openpty()
    with os.fdopen(other, "w") as stream:
        assert log_lines.destination({}, stream) == "text"
        assert log_lines.destination({log_lines.FORMAT: "json"}, stream) == "json"
    os.close(main)


@pytest.mark.parametrize(("level", "priority"), [("info", 6), ("warning", 4), ("error", 3)])
def test_a_line_of_the_journal_has_its_priority(level: str, priority: int) -> None:
    event = {
        "event": "node tokyo fails", "level": level, "timestamp": "2026-01-01", "process": "netd",
        "node": "tokyo", "delay": 12, "error": "connection refused",
    }  # fmt: skip
    line = log_lines.journal_line(None, level, event)
    assert line == f'<{priority}>node tokyo fails node=tokyo delay=12 error="connection refused"'


def test_text_of_others_makes_no_line_of_its_own() -> None:
    event = {"event": "a\nb", "level": "info", "name": "x\n<0>forged\u2028<0>again"}
    assert log_lines.journal_line(None, "info", event).splitlines() == [
        '<6>a b name="x\\n<0>forged <0>again"'
    ]


def test_each_line_of_a_traceback_has_the_priority() -> None:
    event = {"event": "fault", "level": "error", "exception": "Traceback:\n  here\nValueError"}
    lines = log_lines.journal_line(None, "error", event).splitlines()
    assert lines == ["<3>fault", "<3>Traceback:", "<3>  here", "<3>ValueError"]


def test_lines_below_the_chosen_level_are_left_out() -> None:
    speak = SPEAK.replace("warning(", "info(").replace('"at work"', '"done"')
    for level, lines in (("info", 3), ("warning", 0), ("", 3), ("nonsense", 3)):
        done = subprocess.run(
            [sys.executable, "-c", speak],
            env={**os.environ, log_lines.LEVEL: level}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert len(done.stderr.splitlines()) == lines
