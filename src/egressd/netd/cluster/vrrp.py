"""keepalived, which moves the shared addresses to the active box (VRRPv3, RFC 5798).

One instance holds the addresses of LAN and WANs: they move together or not at all. Adverts are sent
to the peer alone. A box whose LAN is down cannot be active; with another link down it is while the
peer has no more links up. Priorities are the same otherwise, so that a box that comes back does not
take over (RFC 5798, 6.4.2: from an equal priority none does). The addresses stay on the interfaces
themselves (``use_vmac`` would put them onto others, which no rule of the plan names), and clients
hear of the move by gratuitous ARP.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Final

from egressd.model.pair import Pair, PairRole

CONFIGURATION: Final = "keepalived.conf"
TRACK: Final = "lease.track"
"""The file by which netd lets the box become active. See `track`."""
CHECK: Final = "check"
"""The script by which keepalived notices that netd is gone or frozen. See `check`."""
ALIVE: Final = "alive"
"""The file that netd touches all the time. Its time of modification is the uptime then, in seconds:
the wall clock may jump.
"""
UPTIME: Final = Path("/proc/uptime")
"""The seconds since the machine's start, its sleep included (proc_uptime(5))."""
FIFO: Final = "roles"
"""The pipe that keepalived writes each change of role to."""

INSTANCE: Final = "egressd"

_PRIORITY: Final = 100
"""The same on both boxes."""
_LINK_DOWN: Final = -1
"""The part of the priority that each link costs that is down, and each on which the box has no
address of its own."""
_FORBIDDEN: Final = -254
"""The value of a track file that brings an instance into FAULT (keepalived.conf(5)). A lower
priority would not do: without the peer, the box would be active with it."""

_SILENT_S: Final = 6
"""Seconds of netd's silence after which the box cannot be active: a lease lasts for 4."""

_ADDRESS: Final = re.compile(r"    (?P<address>[0-9./]+) dev (?P<name>\S+)(?: no_track)?")
"""The pattern of a line with a shared address."""

_ROLES: Final[dict[str, PairRole]] = {"MASTER": "active", "BACKUP": "standby", "FAULT": "fault"}


def configuration(pair: Pair, folder: Path) -> str:
    """Return keepalived's configuration, with its other files in `folder`."""
    # Without `no_track` the loss of an address's link is a fault of the box, whatever the link's
    # weight is: then neither box is active while each has another link down.
    addresses = "".join(
        f"    {address.with_prefixlen} dev {name} no_track\n"
        for name, address in pair.shared.items()
    )
    links = "".join(
        f"    {name} weight {_LINK_DOWN}\n" for name in pair.shared if name != pair.lan.interface
    )
    return f"""\
global_defs {{
  router_id {INSTANCE}
  vrrp_version 3
  vrrp_check_unicast_src
  vrrp_garp_master_repeat 3
  vrrp_garp_master_delay 1
  vrrp_garp_master_refresh 10
  vrrp_notify_fifo "{folder / FIFO}"
  enable_script_security
  script_user root
}}
vrrp_script netd {{
  script "/bin/sh {folder / CHECK}"
  interval 1
  timeout 2
  fall 2
  rise 1
}}
vrrp_track_file lease {{
  file "{folder / TRACK}"
  weight 1
}}
vrrp_instance {INSTANCE} {{
  state BACKUP
  interface {pair.lan.interface}
  virtual_router_id {pair.router_id}
  priority {_PRIORITY}
  advert_int {pair.advert_ms / 1000:g}
  unicast_src_ip {pair.lan.own}
  unicast_peer {{
    {pair.lan.peer}
  }}
  track_interface {{
    {pair.lan.interface}
{links}  }}
  track_file {{
    lease weight 1
  }}
  track_script {{
    netd
  }}
  virtual_ipaddress {{
{addresses}  }}
}}
"""


def addresses_in(text: str) -> dict[str, IPv4Interface]:
    """Return interface -> shared address, of a configuration that `configuration` returned."""
    found = (_ADDRESS.fullmatch(line) for line in text.splitlines())
    return {each["name"]: IPv4Interface(each["address"]) for each in found if each is not None}


def track(*, may_be_active: bool, unaddressed: int = 0) -> str:
    """Return the text of the track file, always of the same length. `unaddressed` is the number of
    links without an address of this box's own.
    """
    return f"{unaddressed * _LINK_DOWN if may_be_active else _FORBIDDEN:4}\n"


def check(folder: Path) -> str:
    """Return the script that fails once netd has been silent for longer than a lease lasts: then
    the kernel lets no client through, and the track file still says that the box may be active.
    """
    return (
        f"read -r now _ < {UPTIME}\n"
        f'[ $((${{now%.*}} - $(/usr/bin/stat -c %Y "{folder / ALIVE}"))) -le {_SILENT_S} ]\n'
    )


def uptime_s() -> float:
    """Return the uptime as the script of `check` reads it; a container may have one of its own.
    Raises OSError.
    """
    return float(UPTIME.read_text("ascii").split()[0])


def command(folder: Path) -> list[str]:
    """Return the command that runs keepalived in the foreground."""
    return [
        "/usr/sbin/keepalived",
        "--dont-fork",
        "--log-console",
        "--vrrp",
        "--use-file",
        str(folder / CONFIGURATION),
        "--pid",
        str(folder / "keepalived.pid"),
        "--vrrp_pid",
        str(folder / "vrrp.pid"),
    ]


def role_of(line: str) -> PairRole | None:
    """Return the role that a line of the pipe reports; None for other lines.

    A line is ``INSTANCE "egressd" MASTER 100``. At its own end keepalived writes STOP, after which
    the box cannot become active.
    """
    match line.split():
        case ["INSTANCE", name, state, *_] if name.strip('"') == INSTANCE:
            return "fault" if state == "STOP" else _ROLES.get(state)
    return None
