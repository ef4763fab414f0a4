"""The option by which the engine's sockets forbid fragments, in the kernel."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.lab

UID = 64_123
FORBID = """
import os, socket, sys
from egressd.netd.engine import fragments

held = fragments.allow(64_123)
os.setresuid(*[int(sys.argv[1])] * 3)
for family, level, option in ((socket.AF_INET, 0, 10), (socket.AF_INET6, 41, 23)):
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(level, option, 2)
        print(sock.getsockopt(level, option))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 6)
        print(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY))
"""


def told(uid: int) -> list[str]:
    """Return the values that such sockets report of the option that was set, and of another one, in
    each family.
    """
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", FORBID, str(uid)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


def test_the_engines_sockets_may_fragment() -> None:
    assert told(UID) == ["0", "6", "0", "6"]


def test_sockets_of_other_users_are_not_changed() -> None:
    assert told(UID + 1) == ["2", "6", "2", "6"]
