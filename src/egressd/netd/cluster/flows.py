"""conntrackd, which puts each flow into the kernel of the peer, too.

Entries go straight into the standby's kernel (``DisableExternalCache``), so that they are there
before the addresses are: keepalived adds an address first and runs scripts later, and packets that
arrive in between would end their flows.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from egressd.model.pair import Pair

CONFIGURATION: Final = "conntrackd.conf"

PORT: Final = 3780
"""The UDP port on the sync link: conntrackd's own choice in its manual."""


def configuration(pair: Pair, folder: Path, own: Iterable[IPv4Address]) -> str:
    """Return conntrackd's configuration, with its other files in `folder`.

    Flows of this box's `own` addresses and of the peer's on the links stay on their box.
    """
    kept = {*own, pair.lan.own, pair.lan.peer, pair.sync.own, pair.sync.peer}
    kept |= {IPv4Address("127.0.0.1")}
    kept -= {address.ip for address in pair.shared.values()}
    ignored = "".join(f"        IPv4_address {address}\n" for address in sorted(kept))
    return f"""\
Sync {{
  Mode FTFW {{
    DisableExternalCache yes
    StartupResync yes
  }}
  UDP {{
    IPv4_address {pair.sync.own}
    IPv4_Destination_Address {pair.sync.peer}
    Interface {pair.sync.interface}
    Port {PORT}
    SndSocketBuffer 1249280
    RcvSocketBuffer 1249280
    Checksum on
  }}
}}
General {{
  HashSize 32768
  HashLimit 262144
  LogFile off
  Syslog off
  LockFile {folder / "conntrackd.lock"}
  UNIX {{
    Path {folder / "conntrackd.ctl"}
  }}
  NetlinkBufferSize 2097152
  NetlinkBufferSizeMaxGrowth 8388608
  Filter From Kernelspace {{
    Protocol Accept {{
      TCP
      UDP
      ICMP
    }}
    Address Ignore {{
{ignored}    }}
  }}
}}
"""


def command(folder: Path) -> list[str]:
    """Return the command that runs conntrackd in the foreground."""
    return ["/usr/sbin/conntrackd", "-C", str(folder / CONFIGURATION)]
