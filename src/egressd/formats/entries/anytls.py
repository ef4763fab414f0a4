"""AnyTLS."""

from __future__ import annotations

from typing import Final

from egressd.formats.entries.entry import SERVER, TO_SERVER, Entry
from egressd.formats.fields import TEXT, Table, whole
from egressd.formats.layers import (
    TLS,
    certificate_bears_server_name,
    no_ech_in_reality,
    one_server_name,
)

ANYTLS: Final = Entry(
    Table(
        {
            **SERVER,
            **TLS,
            "password": TEXT,
            "idle-session-check-interval": whole(1, 86_400),
            "idle-session-timeout": whole(1, 86_400),
            "min-idle-session": whole(0, 1024),
        },
        TO_SERVER | {"password"},
    ),
    (one_server_name, certificate_bears_server_name, no_ech_in_reality),
)
