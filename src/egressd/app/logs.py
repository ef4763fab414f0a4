"""The log: one event a line.

In systemd's journal a line is readable text with a priority (``journalctl -p warning``), on a
terminal it is readable text with colours, and on a file or a pipe it is JSON.
``EGRESSD_LOG_FORMAT`` (``text`` or ``json``) in the environment selects another form, and
``EGRESSD_LOG_LEVEL`` the least important lines.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, Literal, TextIO, cast

import structlog

LEVEL: Final = "EGRESSD_LOG_LEVEL"
FORMAT: Final = "EGRESSD_LOG_FORMAT"
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""The levels that can be chosen: lines below it are left out."""
FORMATS: Final = ("text", "json")

_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Level -> priority of syslog(3), which sd-daemon(3) reads at the beginning of a line."""
_PLAIN: Final = re.compile(r"[^\s\"=\\]+")
"""A value that is written without quotes."""


class _StandardError:
    """Standard error. It may be a full disk's file, or a terminal that is gone: no work fails
    because of that.
    """

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()


def configure(process: str) -> None:
    """Log to standard error; every line names the process."""
    kind = destination(os.environ, sys.stderr)
    renderer: Any
    if kind == "json":
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False)
    elif kind == "journal":
        renderer = journal_line
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            LEVELS.get(os.environ.get(LEVEL, ""), logging.INFO)
        ),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _StandardError())),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)


def destination(
    environment: Mapping[str, str], stream: TextIO
) -> Literal["json", "journal", "text"]:
    """Return the form of lines on `stream`."""
    wanted = environment.get(FORMAT)
    if wanted == "json":
        return "json"
    if is_journal(environment.get("JOURNAL_STREAM", ""), stream):
        return "journal"
    return "text" if wanted == "text" or stream.isatty() else "json"


def is_journal(stated: str, stream: TextIO) -> bool:
    """True if `stream` leads to the journal, which systemd has `stated` as device and inode: a
    child's may have been redirected since (systemd.exec(5), ``$JOURNAL_STREAM``).
    """
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return stated == f"{found.st_dev}:{found.st_ino}"


def journal_line(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    """Return an event in text, each line with its priority. The journal has the time itself."""
    priority = f"<{_PRIORITIES.get(event.get('level', 'info'), 6)}>"
    fields = {
        key: value
        for key, value in event.items()
        if key not in ("event", "level", "timestamp", "process", "exception")
    }
    text = " ".join(
        [_one_line(str(event.get("event", ""))), *(f"{k}={_quoted(v)}" for k, v in fields.items())]
    )
    lines = [text, *str(event.get("exception", "")).splitlines()]
    return "\n".join(f"{priority}{line}" for line in lines)


def _quoted(value: Any) -> str:
    """Return a value that no text of another party can continue on a line of its own."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if _PLAIN.fullmatch(text) or not isinstance(value, str):
        return text
    return _one_line(json.dumps(text, ensure_ascii=False))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
