"""A server of lists of nodes in a lab's internet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from egressd_lab.lab import Lab
from egressd_lab.process import Program
from tests.support.device import SERVER, eventually

NAME: Final = "lists.example"
PORT: Final = 8099
_SCRIPT: Final = Path(__file__).parent / "programs" / "list_server.py"


class ListServer:
    """The server, and what it answers."""

    def __init__(self, lab: Lab) -> None:
        self._file = lab.folder / "list.json"
        self.answer()
        command = [sys.executable, str(_SCRIPT), SERVER, str(PORT)]
        self._log = lab.folder / "lists.log"
        self.program = Program(lab.internet.namespace, [*command, str(self._file)], self._log, {})

    def answer(self, **told: Any) -> None:
        """Answer like that from now on."""
        self._file.write_text(json.dumps(told))

    def serve(self, *entries: dict[str, Any], **headers: str) -> None:
        """Serve a list of Clash entries."""
        self.answer(body=json.dumps({"proxies": entries}), headers=headers)

    def callers(self, path: str) -> set[str]:
        """Return the addresses that have asked for a path."""
        lines = self._log.read_text().splitlines()
        return {line.split()[2] for line in lines if line.endswith(f" {path}")}


@contextmanager
def list_server(lab: Lab) -> Iterator[ListServer]:
    """Run the server, under its name, for the block."""
    lab.internet.put_name(NAME, SERVER)
    server = ListServer(lab)
    server.program.start()
    try:
        eventually(lambda: "ready" in server.program.tail() or not server.program.running)
        assert server.program.running, server.program.tail()
        yield server
    finally:
        server.program.kill()


def entry(lab: Lab, name: str, node: str, **fields: Any) -> dict[str, Any]:
    """Return a Clash entry that leads to a node of the lab."""
    draft = lab.nodes[node].draft()
    config = json.loads(draft["config_json"])
    return {"name": name, "type": draft["protocol"], **config, **fields}
