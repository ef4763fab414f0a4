"""The guard of L2TP lines with a secret: not one of their packets leaves or comes in clear.

Without an IPsec association L2TP just comes up in clear, or goes on so when the association
ends. Such a line sends from a port of `LINE_PORTS`, and nothing else does; whatever the
daemons' state, a packet from or to those ports that IPsec does not carry is dropped.
"""

from __future__ import annotations

from typing import Final

from egressd.planner.registry import LINE_PORTS

_RANGE: Final = f"{LINE_PORTS.start}-{LINE_PORTS.stop - 1}"

CHAINS: Final[dict[str, tuple[str, ...]]] = {
    "output_lines": (
        "type filter hook output priority filter; policy accept;",
        f"udp sport {_RANGE} rt ipsec missing drop",
    ),
    "input_lines": (
        "type filter hook input priority filter; policy accept;",
        f"udp dport {_RANGE} meta ipsec missing drop",
    ),
}
"""Chains of egressd's own table, the hook first; fixed, so that they hold before any line is."""
