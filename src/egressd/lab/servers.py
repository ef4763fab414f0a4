"""The internet's servers, seen from outside: starting them, asking whom they saw."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from egressd.lab import spec as plan
from egressd.lab.authority import Authority
from egressd.lab.host import Host
from egressd.lab.internet.config import Config
from egressd.lab.observed import Seen
from egressd.lab.wire import Channel


class Internet(Host):
    """The namespace of the servers, and their memory."""

    def __init__(self, lab: str, folder: Path) -> None:
        super().__init__(lab, "internet", folder)
        self.servers = Channel(folder / "servers.sock")

    def configure(self, authority: Authority, zone: Mapping[str, tuple[str, ...]]) -> list[str]:
        """Write what the servers need to know; the command that starts them."""
        names = [*plan.ZONE, *zone, *plan.WEB_SERVERS, *plan.SERVERS6]
        certificate, key = authority.certificate("servers", names)
        config = Config(
            control=str(self._folder / "servers.sock"),
            servers=(*plan.WEB_SERVERS, *plan.SERVERS6),
            resolvers=tuple(plan.RESOLVERS.values()),
            zone={**plan.ZONE, **zone},
            certificate=str(certificate),
            key=str(key),
        )
        file = self._folder / "servers.json"
        file.write_bytes(msgspec.json.encode(config))
        return [sys.executable, "-m", "egressd.lab.internet", str(file)]

    def mark(self) -> int:
        """A position in the servers' memory: everything later comes behind it."""
        return self.servers.call("mark", int)

    def seen(self, *, since: int = 0, service: str = "", text: str = "") -> list[Seen]:
        """What the servers were asked from `since` on, by `service`, with `text` in it."""
        return self.servers.call("seen", list[Seen], mark=since, service=service, text=text)

    def put_name(self, name: str, *addresses: str) -> None:
        """Let the resolvers answer `name` so; without addresses it does not exist."""
        self.servers.call("put_name", type(None), name=name, addresses=addresses)

    def close(self) -> None:
        """End the probing process."""
        self.servers.close()
        super().close()
