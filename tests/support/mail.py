"""A mail server in a lab's internet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from egressd_lab.authority import Authority
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from tests.support.device import SERVER, eventually

MAIL: Final = "mail.example"
PORT: Final = 2525
_SCRIPT: Final = Path(__file__).parent / "programs" / "mail_server.py"


class MailServer:
    """The server, and the messages that it has taken."""

    def __init__(self, lab: Lab, authority: Authority | None) -> None:
        certificate = [] if authority is None else map(str, authority.certificate(MAIL))
        command = [sys.executable, str(_SCRIPT), SERVER, str(PORT), *certificate]
        self._log = lab.folder / "mail.log"
        self._log.unlink(missing_ok=True)
        self.program = Program(lab.internet.namespace, command, self._log, {})

    def taken(self, text: str) -> list[dict[str, Any]]:
        """Return the messages with `text` in them."""
        lines = self._log.read_text().splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return [each for each in found if text in each["text"]]


@contextmanager
def mail_server(lab: Lab, authority: Authority | None = None) -> Iterator[MailServer]:
    """Run the server, under its name, for the block. It has a certificate of the authority."""
    lab.internet.put_name(MAIL, SERVER)
    server = MailServer(lab, authority)
    server.program.start()
    try:
        eventually(lambda: "ready" in server.program.tail() or not server.program.running)
        assert server.program.running, server.program.tail()
        yield server
    finally:
        server.program.kill()
        lab.internet.put_name(MAIL)
