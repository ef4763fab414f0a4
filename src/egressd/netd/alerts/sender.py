"""The sender: Apprise in a network namespace with nothing but a loopback.

Each host that Apprise looks up gets a listener on the loopback, whose descriptor the gate has: so
names are resolved, and connections made, by the channel's target alone. An address that Apprise
would connect to without a look-up is unreachable here.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from egressd.model.wording import Sentence, as_sentence, say
from egressd.netd.alerts import sandbox
from egressd.netd.alerts.order import SenderOrder, SendOutcome, WantedHost, pack
from egressd.netd.system import privileges

_MESSAGE_MAX: Final = 1 << 17
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""The system's certificate authorities: an operator may have added one."""
_LOADED: Final = (
    "email.mime.multipart",
    "email.mime.text",
    "encodings.idna",
    "html.parser",
    "smtplib",
    "urllib3.connectionpool",
)
"""Modules that Apprise loads when it sends, when files may be out of reach."""
_SECRET_MIN: Final = 5
"""Characters of a part of a URL that is kept out of reasons."""
_REASON_MAX: Final = 300

Answer = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]


class HostNames:
    """Replaces the look-up of names: each host's port gets a listener on the loopback."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._known: dict[tuple[str, int], int] = {}

    def install(self) -> None:
        """Replace `socket.getaddrinfo`, and what else asks for addresses."""
        socket.getaddrinfo = self.getaddrinfo  # type: ignore[assignment]

    def getaddrinfo(  # noqa: PLR0917 - as Python's own
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> list[Answer]:
        """Return the address of the host's listener."""
        del flags, proto
        name = host.decode() if isinstance(host, bytes) else host or ""
        if family not in (0, socket.AF_INET) or type not in (0, socket.SOCK_STREAM):
            raise socket.gaierror(socket.EAI_FAMILY, "only TCP by IPv4 leads out of here")
        number = _port(port)
        there = self._listener(name, number)
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, socket.IPPROTO_TCP, "", ("127.0.0.1", there))]

    def _listener(self, host: str, port: int) -> int:
        """Return the port of the host's listener on the loopback."""
        known = self._known.get((host, port))
        if known is not None:
            return known
        with socket.create_server(("127.0.0.1", 0)) as listener:
            there: int = listener.getsockname()[1]
            said = pack(WantedHost(host=host, port=port))
            socket.send_fds(self._channel, [said], [listener.fileno()])
        self._known[host, port] = there
        return there


def _port(port: bytes | str | int | None) -> int:
    if isinstance(port, int):
        return port
    text = port.decode() if isinstance(port, bytes) else port or "0"
    return int(text) if text.isdecimal() else socket.getservbyname(text)


def run(channel: socket.socket, uid: int, gid: int) -> None:
    """Read an order from `channel`, send the message, and write the outcome there."""
    sandbox.close_streams()
    sandbox.isolate()
    sandbox.limit()
    os.umask(0o077)
    privileges.begin_drop(uid, gid)
    order = msgspec.json.decode(channel.recv(_MESSAGE_MAX), type=SenderOrder)
    last = _LastWarning()
    logging.basicConfig(handlers=[last], level=logging.INFO, force=True)
    if _AUTHORITIES.exists():
        os.environ["REQUESTS_CA_BUNDLE"] = os.environ["SSL_CERT_FILE"] = str(_AUTHORITIES)
    try:
        kind = _plugin(order.plugin)
        privileges.finish_drop()
        sandbox.end_with_parent()
        HostNames(channel).install()
        outcome = _send(kind, order, last)
    except Exception as error:  # it is the end of the message, and is reported as such
        outcome = SendOutcome(
            is_sent=False, reason=_told(f"{type(error).__name__}: {error}", order)
        )
    with suppress(OSError):
        channel.send(pack(outcome))


def _plugin(name: str) -> Any:
    """Return a class of Apprise's plugins."""
    module, _, kind = name.partition(":")
    found = getattr(importlib.import_module(f"apprise.plugins.{module}"), kind)
    for each in _LOADED:
        importlib.import_module(each)
    return found


def _send(kind: Any, order: SenderOrder, last: _LastWarning) -> SendOutcome:
    from apprise import AppriseAsset, NotifyType, PersistentStoreMode

    parts: Mapping[str, Any] | None = kind.parse_url(order.url)
    if not parts:
        return SendOutcome(is_sent=False, reason=say("alert-url-unread"))
    asset = AppriseAsset(storage_mode=PersistentStoreMode.MEMORY, secure_logging=True)
    try:
        service = kind(**{**parts, "asset": asset, "tag": set()})
    except TypeError as error:
        said = last.text or str(error)
        return SendOutcome(is_sent=False, reason=say("alert-url-wrong", reason=_told(said, order)))
    if service.notify(body=order.body, title=order.title, notify_type=NotifyType.INFO):
        return SendOutcome(is_sent=True)
    return SendOutcome(is_sent=False, reason=_told(last.text or "it says no reason", order))


class _LastWarning(logging.Handler):
    """Keeps the text of the last warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.text = record.getMessage()


def _told(text: str, order: SenderOrder) -> Sentence:
    """Return the reason in one line, without parts of the URL, which are secrets."""
    for part in sorted(re.split(r"[^\w.~-]+", unquote(order.url)), key=len, reverse=True):
        if len(part) >= _SECRET_MIN:
            text = text.replace(part, "…")
    return as_sentence(" ".join(text.split())[:_REASON_MAX])
