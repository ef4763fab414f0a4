"""The connections that a client has open, as the kernel tracks them."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

CONNECTIONS_SHOWN: Final = 200
"""Connections of one client that are listed."""
CLOSED_AT_ONCE: Final = 4096
"""Connections that one request closes."""

ConnectionState: TypeAlias = Literal["opening", "unanswered", "open", "closing"]
"""``opening``: the handshake is not complete. ``unanswered``: nothing has come back yet (UDP and
others). ``open``: both sides have sent. ``closing``: one side has ended it."""


class TrackedConnection(msgspec.Struct, frozen=True, array_like=True):
    """A connection of a client. Bytes are of IP packets; None if the kernel has not counted all of
    them.
    """

    id: int
    """The kernel's number of it."""
    protocol: int
    """The number of the IP protocol."""
    state: ConnectionState
    mark: int
    """The mark of the target that it belongs to."""
    is_inbound: bool
    """True if the far end has opened it, through a port forward."""
    client_port: int
    far: str
    """The far end's address, as the client sees it."""
    far_port: int
    """0 if the protocol has no ports; `client_port` likewise."""
    sent: int | None
    received: int | None
    age_s: int | None
    """Seconds since it was opened; None if the kernel has not recorded it."""
    wan: str = ""
    """The WAN that an inbound one came in by."""
