"""The runner: it does one errand in a network namespace with nothing but a loopback."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from egressd.netd.errands import sandbox
from egressd.netd.errands.host_names import HostNames
from egressd.netd.errands.order import (
    Errand,
    ErrandOutcome,
    MessageErrand,
    PageChunk,
    PageErrand,
    Work,
    pack,
    unpack_errand,
)
from egressd.netd.errands.reasons import ReasonOf, reason_of
from egressd.netd.system import privileges

_ERRAND_MAX: Final = 1 << 17
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""The system's certificate authorities: an operator may have added one."""


def run(channel: socket.socket, uid: int, gid: int) -> None:
    """Read an errand from `channel`, do it, and write the outcome there."""
    sandbox.close_streams()
    sandbox.isolate()
    sandbox.limit()
    os.umask(0o077)
    privileges.begin_drop(uid, gid)
    errand = unpack_errand(channel.recv(_ERRAND_MAX))
    _choose_authorities()
    reason = partial(reason_of, errand.url)
    try:
        work = _prepared(errand, reason, channel)
        privileges.finish_drop()
        sandbox.end_with_parent()
        HostNames(channel).install()
        outcome = work()
    except Exception as error:  # it is the end of the errand, and is reported as such
        outcome = ErrandOutcome(is_done=False, reason=reason(f"{type(error).__name__}: {error}"))
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


def _prepared(errand: Errand, reason: ReasonOf, channel: socket.socket) -> Work:
    """Return the work of an errand, with everything loaded that it needs of the disk."""
    match errand:
        case MessageErrand():
            from egressd.netd.errands import message

            return message.prepared(errand, reason)
        case PageErrand():
            from egressd.netd.errands import page

            def deliver(content: bytes) -> None:
                channel.send(pack(PageChunk(content=content)))

            return page.prepared(errand, reason, deliver)
