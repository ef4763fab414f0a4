"""VPN lines of two boxes to one server, on a kernel without PPP.

pppd is a stand-in (`programs.ppp_caller`), which each box sees in place of the real one, with a
device and a module that the kernel does not have. All else is the real thing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from egressd.planner.lines.pppd import PPPD
from egressd_lab.device import Device
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from tests.support.device import SERVER, eventually
from tests.support.paired_lab import PairedLab

LINE: Final = "pptp_1"
DRAFT: Final = {
    "type": "pptp",
    "name": LINE,
    "server": SERVER,
    "username": "u",
    "password": "p",
    "interface": "auto",
    "comment": "",
    "dns_profile": "auto",
    "dns_servers": [],
}
_PROGRAMS: Final = Path(__file__).parent / "programs"
_PORT: Final = "1723"
_DEVICES: Final = {"null": 3, "ppp": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9}
"""Device -> its minor number among the memory devices (mem(4)). ``ppp`` only has to open."""
_MOUNTS: Final = """
mount --bind "$1" /lib/modules
mount --bind "$2" {pppd}
mkdir -p "$3"
mount -t tmpfs -o mode=0755 devices "$3"
cd "$3"
{nodes}
ln -s /proc/self/fd fd
mkdir shm
mount --rbind /dev/shm shm
cd /
mount --move "$3" /dev
shift 3
exec "$@"
"""


class Heard(NamedTuple):
    """A line of the server's log."""

    what: str
    caller: str
    at: float
    """Seconds of CLOCK_MONOTONIC."""


class VpnServer:
    """The server of the lines, on the internet. It lets an account in once."""

    def __init__(self, lab: Lab) -> None:
        program = str(_PROGRAMS / "vpn_server.py")
        self._program = Program(
            lab.internet.namespace,
            [sys.executable, program, SERVER, _PORT],
            lab.folder / "vpn.log",
        )

    def start(self) -> None:
        self._program.log.unlink(missing_ok=True)
        self._program.start()

    def stop(self) -> None:
        self._program.kill()

    def heard(self) -> list[Heard]:
        """Return the log since the start."""
        lines = (line.split() for line in self._program.log.read_text().splitlines())
        return [Heard(what, caller, float(at)) for what, caller, at in lines]

    def sessions(self) -> list[Heard]:
        """Return the begin of each session, in order. Fails if two were there at a time."""
        kept = [each for each in self.heard() if each.what != "refused"]
        assert [each.what for each in kept] == (["begin", "end"] * len(kept))[: len(kept)]
        return [each for each in kept if each.what == "begin"]

    def callers(self) -> list[str]:
        """Return the caller of each session."""
        return [each.caller for each in self.sessions()]


def use_stand_in(device: Device, folder: Path) -> None:
    """Have a box that does not run yet see the stand-in as pppd."""
    modules, pppd, devices = (folder / name for name in ("modules", "pppd", "devices"))
    listed = modules / os.uname().release
    listed.mkdir(parents=True, exist_ok=True)
    (listed / "modules.dep").write_text("kernel/ppp_mppe.ko:\n")
    (listed / "modules.builtin").touch()
    pppd.write_text(f"#!{sys.executable} -I\n{(_PROGRAMS / 'ppp_caller.py').read_text()}")
    pppd.chmod(0o755)
    nodes = "\n".join(f"mknod -m 666 {name} c 1 {n}" for name, n in _DEVICES.items())
    script = _MOUNTS.format(pppd=PPPD, nodes=nodes)
    within = [
        "unshare",
        "--mount",
        "sh",
        "-ec",
        script,
        "sh",
        str(modules),
        str(pppd),
        str(devices),
    ]
    former = device.program
    device.program = Program(
        former.namespace, [*within, *former.argv], former.log, device.environment
    )


def state(pair: PairedLab, box: int) -> str:
    """Return the state of the line as a box shows it."""
    shown = pair.boxes[box].api.ask("GET", "/ops/overview").body["lines"]
    return str(shown[LINE]["state"]) if LINE in shown else ""


def settle(pair: PairedLab, active: int) -> None:
    """Wait until the line is online by the active box alone."""
    eventually(lambda: state(pair, active) == "online", 30)
    eventually(lambda: state(pair, 3 - active) == "standby", 30)
