"""The bytecode of egressd's table from the release's nftables: ``python -m tests.lab.ruleset``
prints it.

The bytecode is the kernel's own language (nft(8), ``--debug=netlink``). Two releases that print the
same bytecode read each other's tables. `script/other-release` compares them.
"""

from __future__ import annotations

import re
import subprocess
from typing import Final

from egressd.planner import nft

_KEPT: Final = re.compile(r"  \[ .* \]|inet egressd \w+|\w+ egressd [0-9a-f]+( size \d+)?")
"""An expression, the chain of a rule, and a set with its flags."""
_RANGE: Final = re.compile(r"\[ cmp gte (reg \d+ \w+) \]\n  \[ cmp lte reg \d+ (\w+) \]")
"""A range in nftables 1.0; version 1.1 has one expression for it."""

_UDP_CHECKSUM: Final = " csum_type 1 csum_off 6 csum_flags 0x0 ]"
_UDP_CHECKSUM_LATER: Final = " csum_type 0 csum_off 0 csum_flags 0x1 ]"
"""Two ways to update the checksum of a datagram after a change of its port: nftables 1.0 names its
place, 1.1 lets the kernel find it (NFT_PAYLOAD_L4CSUM_PSEUDOHDR).
"""


def bytecode() -> str:
    """Return the expressions of all rules, loaded in a network namespace of their own."""
    text = nft.load({name: {} for name in nft.INET.names}, is_gated=True)
    loading = ["unshare", "--net", "nft", "--debug=netlink", "-f", "-"]
    done = subprocess.run(loading, input=text, capture_output=True, text=True, check=True)
    lines = (line.rstrip() for line in done.stdout.splitlines())
    kept = "\n".join(line for line in lines if _KEPT.fullmatch(line))
    kept = kept.replace(_UDP_CHECKSUM, _UDP_CHECKSUM_LATER)
    return _RANGE.sub(r"[ range eq \1 \2 ]", kept)


if __name__ == "__main__":
    print(bytecode())
