"""The internet's servers, seen from outside: starting them, querying their records."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from egressd_lab import spec as plan
from egressd_lab.authority import Authority
from egressd_lab.host import Host
from egressd_lab.internet.config import Config
from egressd_lab.observed import Seen
from egressd_lab.wire import Channel


class Internet(Host):
    """The namespace of the servers, and access to their records."""

    def __init__(self, lab: str, folder: Path) -> None:
        super().__init__(lab, "internet", folder)
        self.servers = Channel(folder / "servers.sock")

    def configure(self, authority: Authority, zone: Mapping[str, tuple[str, ...]]) -> list[str]:
        """Write the servers' configuration, and return the command that starts them."""
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
        return [sys.executable, "-m", "egressd_lab.internet", str(file)]

    def mark(self) -> int:
        """Return the present position in the servers' records: later requests come behind it."""
        return self.servers.call("mark", int)

    def seen(self, *, since: int = 0, service: str = "", text: str = "") -> list[Seen]:
        """Return the requests that the servers received from `since` on, by `service`, with `text`
        in them.
        """
        return self.servers.call("seen", list[Seen], mark=since, service=service, text=text)

    def put_name(self, name: str, *addresses: str) -> None:
        """Set the addresses of `name` in the resolvers; without addresses the name does
        not exist.
        """
        self.servers.call("put_name", type(None), name=name, addresses=addresses)

    def put_page(self, text: str, *, has_end: bool = True) -> None:
        """Set the text of ``/page``, where ``{ip}`` stands for the client's address. Without an end
        the answer stays incomplete.
        """
        self.servers.call("put_page", type(None), text=text, has_end=has_end)

    def close(self) -> None:
        """End the probing process."""
        self.servers.close()
        super().close()
