"""No other process gets the API's ports at any moment of a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest

from egressd.model.errors import Failed
from egressd_lab.device import API_PORT
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LAN_ADDRESS
from tests.support.device import eventually

pytestmark = pytest.mark.lab

TAKER = """
import os, socket, sys
from contextlib import suppress
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
print("begun", flush=True)
while True:
    for port in map(int, sys.argv[1:]):
        for address in ("0.0.0.0", "127.0.0.1", "10.77.0.1", "::", "::1"):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            with socket.socket(family) as sock, suppress(OSError):
                for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
                    sock.setsockopt(socket.SOL_SOCKET, option, 1)
                if family == socket.AF_INET6:
                    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                sock.bind((address, port))
                sock.listen()
                print(address, port, flush=True)
"""
"""A program of a user without rights, which prints each port that it gets."""


IMPOSTOR = """
import os, socket, sys
os.setresuid(65534, 65534, 65534)
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    print("begun", flush=True)
    accepted, _ = listener.accept()
    print(accepted.recv(4096), flush=True)
"""
"""A program of a user without rights, which listens and prints the data it receives."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab() as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture
def taker(lab: Lab) -> Iterator[subprocess.Popen[str]]:
    ports = (str(API_PORT), str(API_PORT + 1))
    argv = exec_argv(lab.router.namespace, (sys.executable, "-c", TAKER, *ports))
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def kill_the_api(lab: Lab) -> None:
    for pid in lab.device.pids("egressd.app api"):
        os.kill(pid, signal.SIGKILL)


def restart_all(lab: Lab) -> None:
    os.kill(lab.device.program.pid, signal.SIGHUP)


def kill_netd(lab: Lab) -> None:
    for pid in lab.device.pids("egressd.app netd"):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("restart", [kill_the_api, restart_all, kill_netd])
def test_no_other_process_gets_the_ports_and_no_call_is_refused(
    lab: Lab, taker: subprocess.Popen[str], restart: Callable[[Lab], None]
) -> None:
    before = lab.device.pids("egressd.app api"), lab.device.pids("egressd.app netd")
    restart(lab)
    call = HTTPConnection(str(LAN_ADDRESS), API_PORT)
    call.sock = lab.router.socket(str(LAN_ADDRESS), API_PORT, 60)
    call.sock.settimeout(60)
    with closing(call):
        call.request("GET", "/ops/health")
        assert call.getresponse().status in (200, 503), "503: netd is not there yet"

    def is_new() -> bool:
        now = lab.device.pids("egressd.app api"), lab.device.pids("egressd.app netd")
        return now != before and lab.api.ask("GET", "/ops/health").status == 200

    eventually(is_new, 30)
    taker.kill()
    assert taker.stdout is not None
    assert taker.stdout.read() == ""


def test_roots_commands_send_the_token_to_no_foreign_listener(lab: Lab) -> None:
    """While egressd does not run, no command calls a process that listens there."""
    lab.device.stop()
    argv = exec_argv(lab.router.namespace, (sys.executable, "-c", IMPOSTOR, str(API_PORT)))
    impostor = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert impostor.stdout is not None
        assert impostor.stdout.readline() == "begun\n"
        with pytest.raises(Failed, match="call the api"):
            lab.device.run("nodes", "list")
    finally:
        impostor.kill()
        assert impostor.stdout is not None
        assert impostor.stdout.read() == ""
        impostor.stdout.close()
        impostor.wait()
