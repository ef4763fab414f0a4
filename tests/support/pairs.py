"""A pair of boxes, as one of them is configured."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Final

from egressd.model.pair import Pair, PairLink
from egressd.netd.cluster import flows, vrrp

FOLDER: Final = Path("/run/egressd/cluster")

PAIR: Final = Pair(
    lan=PairLink("lan0", IPv4Address("10.77.0.2"), IPv4Address("10.77.0.3")),
    sync=PairLink("sync0", IPv4Address("192.168.77.1"), IPv4Address("192.168.77.2")),
    shared={
        "lan0": IPv4Interface("10.77.0.1/16"),
        "wan0": IPv4Interface("100.64.0.10"),
        "wan1": IPv4Interface("100.64.1.10"),
    },
)

OWN: Final = (
    IPv4Address("10.77.0.2"),
    IPv4Address("100.64.0.2"),
    IPv4Address("100.64.1.2"),
    IPv4Address("100.64.1.10"),  # shared, and here at this moment
)


def texts() -> dict[str, str]:
    """Return the configurations of the daemons of `PAIR`, by the names of their files."""
    return {
        vrrp.CONFIGURATION: vrrp.configuration(PAIR, FOLDER),
        flows.CONFIGURATION: flows.configuration(PAIR, FOLDER, OWN),
    }
