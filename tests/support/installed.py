"""egressd in a machine: installed by apt, and with rules."""

from __future__ import annotations

from typing import Final

from egressd_lab.lab import Lab
from tests.support.box import Box
from tests.support.device import SERVER
from tests.support.packages import wanted

PROGRAM: Final = "bin/egressd-process"
"""A part of the command lines of all of egressd's processes."""
WEB: Final = f"http://{SERVER}/"


def install(box: Box, version: str) -> str:
    """Install one version by apt, wait until it is healthy, and return apt's output."""
    said = box.apt("install", wanted(box.suite, version))
    box.wait_healthy()
    return said


def in_force(box: Box) -> str:
    """Return the version in force."""
    return box.run("readlink", "/opt/egressd/current").partition("+")[0]


def rule(box: Box, lab: Lab, number: int, target: str) -> None:
    """Make a rule for a client of the lab."""
    box.api().post("/rules", {"ip": lab.client(number).address, "target_node": target})


def left(box: Box) -> set[str]:
    """Return all that could be egressd's: files, users, interfaces. dpkg removes an empty /opt."""
    find = "find / -xdev -iname '*egressd*' -not -path '/srv/*' -not -path '/proc/*'"
    states = ("/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log", "/etc/egressd-made")
    found = [
        *box.run(
            "sh", "-c", f"{find}; [ ! -d /opt ] || find /opt -xdev -mindepth 1; true"
        ).splitlines()
    ]
    users = box.run("cut", "-d:", "-f1", "/etc/passwd", "/etc/group").splitlines()
    links = box.run("ls", "/sys/class/net").splitlines()
    return {name for name in (*found, *users, *links) if not name.startswith(states)}
