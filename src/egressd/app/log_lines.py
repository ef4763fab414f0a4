"""Lines of the log, in the forms that `logs` has, made by the standard library alone."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from typing import Any, Final, Literal, TextIO

LEVEL: Final = "EGRESSD_LOG_LEVEL"
FORMAT: Final = "EGRESSD_LOG_FORMAT"

_PRIORITIES: Final = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""Level -> priority of syslog(3), which sd-daemon(3) reads at the beginning of a line."""
_RESET, _BOLD, _DIM = "\x1b[0m", "\x1b[1m", "\x1b[2m"
_YELLOW, _CYAN, _MAGENTA = "\x1b[33m", "\x1b[36m", "\x1b[35m"


def warn(event: str, **values: object) -> None:
    """Write a warning to standard error, which may be a full disk's file, or a terminal that is
    gone: no work fails because of that.
    """
    if os.environ.get(LEVEL) == "error":
        return
    line = warning(destination(os.environ, sys.stderr), event, values, sys.stderr.isatty())
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except OSError:
        pass


def warning(form: str, event: str, values: Mapping[str, object], is_coloured: bool) -> str:
    """Return the line of a warning."""
    now_ns = time.time_ns()
    second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ns // 10**9))
    stamp = f"{second}.{now_ns // 1000 % 10**6:06}Z"
    if form == "text":
        return _text(stamp, event, values, is_coloured)
    every = {**values, "event": event, "level": "warning", "timestamp": stamp}
    if form == "journal":
        return journal_line(None, "", every)
    import json

    return json.dumps(every, ensure_ascii=False, default=str)


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


def _quoted(value: object) -> str:
    """Return a value that no text of another party can continue on a line of its own."""
    import json
    import re

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    is_plain = re.fullmatch(r"[^\s\"=\\]+", text)  # a value that is written without quotes
    if is_plain or not isinstance(value, str):
        return text
    return _one_line(json.dumps(text, ensure_ascii=False))


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _text(stamp: str, event: str, values: Mapping[str, object], is_coloured: bool) -> str:
    """Return a line for people, as `structlog.dev.ConsoleRenderer` writes it."""

    def painted(colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if is_coloured else text

    fields = (
        f"{painted(_CYAN, key)}={painted(_MAGENTA, _readable(value))}"
        for key, value in sorted(values.items())
    )
    level = f"[{painted(_YELLOW + _BOLD, 'warning  ')}]"
    head = f"{painted(_DIM, stamp)} {level} {painted(_BOLD, f'{event:<30}')}"
    return " ".join((head, *fields))


def _readable(value: object) -> str:
    if isinstance(value, str) and set(value).isdisjoint(" \t=\r\n\"'"):
        return value
    return repr(value)
