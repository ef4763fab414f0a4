"""The runner: it does one errand in a network namespace with nothing but a loopback."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote

from egressd.model.names import one_line
from egressd.model.wording import Sentence, as_sentence
from egressd.netd.errands import sandbox
from egressd.netd.errands.host_names import HostNames
from egressd.netd.errands.order import (
    Errand,
    ErrandOutcome,
    MessageErrand,
    PageChunk,
    PageErrand,
    pack,
    unpack_errand,
)
from egressd.netd.system import privileges

Work = Callable[[], ErrandOutcome]

_ERRAND_MAX: Final = 1 << 17
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""The system's certificate authorities: an operator may have added one."""
_SECRET_MIN: Final = 5
"""Characters of a part of a URL that is kept out of reasons."""
_REASON_MAX: Final = 300


class Told(Protocol):
    """A function that makes a reason of a text, without parts of the errand's URL."""

    def __call__(self, text: str) -> Sentence: ...


def run(channel: socket.socket, uid: int, gid: int) -> None:
    """Read an errand from `channel`, do it, and write the outcome there."""
    sandbox.close_streams()
    sandbox.isolate()
    sandbox.limit()
    os.umask(0o077)
    privileges.begin_drop(uid, gid)
    errand = unpack_errand(channel.recv(_ERRAND_MAX))
    _choose_authorities()
    told = partial(_told, errand.url)
    try:
        work = _prepared(errand, told, channel)
        privileges.finish_drop()
        sandbox.end_with_parent()
        HostNames(channel).install()
        outcome = work()
    except Exception as error:  # it is the end of the errand, and is reported as such
        outcome = ErrandOutcome(is_done=False, reason=told(f"{type(error).__name__}: {error}"))
    with suppress(OSError):
        channel.send(pack(outcome))


def _choose_authorities() -> None:
    """Have OpenSSL and requests, which has some of its own, trust the same authorities: those that
    an administrator has set for OpenSSL, or else the system's.
    """
    if not {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys() and _AUTHORITIES.exists():
        os.environ["SSL_CERT_FILE"] = str(_AUTHORITIES)
    chosen = os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")
    if chosen:
        os.environ["REQUESTS_CA_BUNDLE"] = chosen


def _prepared(errand: Errand, told: Told, channel: socket.socket) -> Work:
    """Return the work of an errand, with everything loaded that it needs of the disk."""
    match errand:
        case MessageErrand():
            from egressd.netd.errands import message

            return message.prepared(errand, told)
        case PageErrand():
            from egressd.netd.errands import page

            def deliver(content: bytes) -> None:
                channel.send(pack(PageChunk(content=content)))

            return page.prepared(errand, told, deliver)


def _told(url: str, text: str) -> Sentence:
    """Return the reason in one line, without parts of the URL, which are secrets."""
    parts = re.split(r"[^\w.~-]+", f"{url} {unquote(url)}")
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= _SECRET_MIN:
            text = text.replace(part, "…")
    return as_sentence(" ".join(one_line(text).split())[:_REASON_MAX])
