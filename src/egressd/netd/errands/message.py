"""An alert's message, sent by Apprise."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from egressd.model.wording import say
from egressd.netd.errands.order import ErrandOutcome, MessageErrand

if TYPE_CHECKING:
    from egressd.netd.errands.runner import Told, Work

_LOADED: Final = (
    "email.mime.multipart",
    "email.mime.text",
    "encodings.idna",
    "html.parser",
    "smtplib",
    "urllib3.connectionpool",
)
"""Modules that Apprise loads when it sends, when files may be out of reach."""


def prepared(errand: MessageErrand, told: Told) -> Work:
    """Return the function that sends the message."""
    last = _LastWarning()
    logging.basicConfig(handlers=[last], level=logging.INFO, force=True)
    module, _, name = errand.plugin.partition(":")
    kind = getattr(importlib.import_module(f"apprise.plugins.{module}"), name)
    for each in _LOADED:
        importlib.import_module(each)
    return partial(_send, kind, errand, last, told)


def _send(kind: Any, errand: MessageErrand, last: _LastWarning, told: Told) -> ErrandOutcome:
    from apprise import AppriseAsset, NotifyType, PersistentStoreMode

    parts: Mapping[str, Any] | None = kind.parse_url(errand.url)
    if not parts:
        return ErrandOutcome(is_done=False, reason=say("alert-url-unread"))
    asset = AppriseAsset(storage_mode=PersistentStoreMode.MEMORY, secure_logging=True)
    try:
        service = kind(**{**parts, "asset": asset, "tag": set()})
    except TypeError as error:
        said = told(last.text or str(error))
        return ErrandOutcome(is_done=False, reason=say("alert-url-wrong", reason=said))
    if service.notify(body=errand.body, title=errand.title, notify_type=NotifyType.INFO):
        return ErrandOutcome(is_done=True)
    return ErrandOutcome(is_done=False, reason=told(last.text or "it says no reason"))


class _LastWarning(logging.Handler):
    """Keeps the text of the last warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text."""
        self.text = record.getMessage()
