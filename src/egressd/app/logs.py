"""The log: one event a line.

In systemd's journal a line is readable text with a priority (``journalctl -p warning``), on a
terminal it is readable text with colours, and on a file or a pipe it is JSON.
``EGRESSD_LOG_FORMAT`` (``text`` or ``json``) in the environment selects another form, and
``EGRESSD_LOG_LEVEL`` the least important lines.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import structlog

from egressd.app.log_lines import LEVEL, destination, journal_line

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
"""The levels that can be chosen: lines below it are left out."""
FORMATS: Final = ("text", "json")


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
