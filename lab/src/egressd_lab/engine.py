"""A sing-box of the lab's own, as a proxy node's server or as a client that uses a node.

Run as ``python -m egressd_lab.engine CONFIG`` with a sing-box JSON document; it serves until it is
ended.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from egressd_lab.spec import RESOLVERS


def node_document(inbounds: Sequence[dict[str, Any]], addresses: Sequence[str]) -> dict[str, Any]:
    """Return a server with one inbound per address, each leaving by its own address.

    An inbound is as sing-box documents it, without ``tag`` and ``listen``.
    """
    numbered = list(enumerate(zip(inbounds, addresses, strict=True), start=1))
    return {
        "log": {"level": "warn"},
        "dns": {"servers": [{"tag": "node", "type": "udp", "server": RESOLVERS["node"]}]},
        "inbounds": [
            {**inbound, "tag": f"in{n}", "listen": address} for n, (inbound, address) in numbered
        ],
        "outbounds": [
            {"type": "direct", "tag": f"out{n}", "inet4_bind_address": address}
            for n, (_, address) in numbered
        ],
        "route": {
            "rules": [
                # One timeout for every session: servers of other makes do not choose it by content.
                {"network": "udp", "action": "route-options", "udp_timeout": "5m"},
                *({"inbound": f"in{n}", "outbound": f"out{n}"} for n, _ in numbered),
            ],
            "final": "out1",
            "default_domain_resolver": {"server": "node", "strategy": "ipv4_only"},
        },
    }


def started_file(config: Path) -> Path:
    """Return the file that exists once the engine of that configuration listens."""
    return config.with_suffix(".started")


def serve(path: Path) -> None:
    """Run the document until SIGTERM or SIGINT. Raises SingBoxError if it is refused."""
    import singbox

    stopping = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    with singbox.SingBox() as engine:
        engine.startFromJSON(path.read_text())
        started_file(path).touch()
        signal.sigwait(stopping)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
