"""Ports that are refused to other users, in the kernel."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.lab

BIND = """
import json, os, socket
from egressd.netd.engine.reserved import ReservedPorts

ports = ReservedPorts(64_123)
ports.open()
ports.hold("service:1", 1080)
ports.hold("service:2", 1081)
ports.hold("service:2", 1082)
ports.hold("service:3", 1083)
ports.release("service:3")

def bound(uid, port, family=socket.AF_INET, kind=socket.SOCK_STREAM):
    child = os.fork()
    if child == 0:
        os.setresuid(uid, uid, uid)
        with socket.socket(family, kind) as sock:
            try:
                sock.bind(("", port))
            except PermissionError:
                os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

told = [bound(uid, 1080) for uid in (0, 64_123, 64_124)]
told += [bound(64_124, port) for port in (1081, 1082, 1083, 1084)]
told += [bound(64_124, 1080, socket.AF_INET6), bound(64_124, 1080, kind=socket.SOCK_DGRAM)]
print(json.dumps(told))
"""


def test_the_port_of_a_service_is_reserved_for_it_and_root() -> None:
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", BIND], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told[:3] == [True, True, False]
    assert told[3:7] == [True, False, True, True]
    assert told[7:] == [False, True]
