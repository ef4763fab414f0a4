"""An alert's message, sent by Apprise."""

from __future__ import annotations

import importlib
import logging
import ssl
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from egressd.model.wording import say
from egressd.netd.errands.order import ErrandOutcome, MessageErrand, Work
from egressd.netd.errands.reasons import ReasonOf

_LOADED: Final = (
    "email.mime.multipart",
    "email.mime.text",
    "encodings.idna",
    "html.parser",
    "smtplib",
    "urllib3.connectionpool",
)
"""Modules that Apprise loads when it sends, when files may be out of reach."""


def prepared(errand: MessageErrand, reason: ReasonOf) -> Work:
    """Return the function that sends the message."""
    last = _LastWarning()
    logging.basicConfig(handlers=[last], level=logging.INFO, force=True)
    handshakes = _Handshakes()
    handshakes.watch()
    module, _, name = errand.plugin.partition(":")
    kind = getattr(importlib.import_module(f"apprise.plugins.{module}"), name)
    for each in _LOADED:
        importlib.import_module(each)
    return partial(_send, kind, errand, last, handshakes, reason)


def _send(
    kind: Any, errand: MessageErrand, last: _LastWarning, handshakes: _Handshakes, reason: ReasonOf
) -> ErrandOutcome:
    from apprise import AppriseAsset, NotifyType, PersistentStoreMode

    parts: Mapping[str, Any] | None = kind.parse_url(errand.url)
    if not parts:
        return ErrandOutcome(is_done=False, reason=say("alert-url-unread"))
    asset = AppriseAsset(storage_mode=PersistentStoreMode.MEMORY, secure_logging=True)
    try:
        service = kind(**{**parts, "asset": asset, "tag": set()})
    except TypeError as error:
        said = reason(last.text or str(error))
        return ErrandOutcome(is_done=False, reason=say("alert-url-wrong", reason=said))
    if service.notify(body=errand.body, title=errand.title, notify_type=NotifyType.INFO):
        return ErrandOutcome(is_done=True)
    if handshakes.fault:
        return ErrandOutcome(
            is_done=False, reason=say("tls-failure", reason=reason(handshakes.fault))
        )
    return ErrandOutcome(is_done=False, reason=reason(last.text or "it says no reason"))


class _LastWarning(logging.Handler):
    """Keeps the text of the last warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.text = record.getMessage()


class _Handshakes:
    """Keeps the fault of the last TLS handshake: Apprise's warnings say that there is no
    connection, and not why.
    """

    def __init__(self) -> None:
        self.fault = ""

    def watch(self) -> None:
        """Look at each handshake of this process from now on."""
        begun = ssl.SSLSocket.do_handshake

        def do_handshake(connection: ssl.SSLSocket, block: bool = False) -> None:
            self.fault = ""
            try:
                begun(connection, block)
            except ssl.SSLError as error:
                self.fault = getattr(error, "verify_message", "") or error.reason or str(error)
                raise

        ssl.SSLSocket.do_handshake = do_handshake  # type: ignore[method-assign, assignment]
