"""The filter in the kernel on engine instances' sockets for news of links and routes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.netd.engine import netlink_filter
from tests.support.engine import end_workers, opened, target
from tests.support.netns import Namespace, eventually

pytestmark = pytest.mark.lab

NEW_LINK, NEW_ROUTE, DEL_ROUTE = 16, 24, 25
LINK, IPV4_ROUTE, IPV6_ROUTE = 1 << 0, 1 << 6, 1 << 10
"""Multicast groups, as bind(2) takes them (netlink(7))."""
SO_GET_FILTER = 26
PIDFD_GETFD = 438

SETTING = """
    ip link add br0 type bridge; ip link set br0 up
    ip link add wan0 type veth peer name far0; ip link set wan0 up; ip link set far0 up
    ip address add 192.0.2.2/24 dev wan0
    ip link add port0 type veth peer name end0; ip link set port0 master br0
    ip link set port0 up; ip link set end0 up
"""


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[Namespace]:
    with Namespace() as made:
        made.shell(SETTING)
        yield made
    end_workers(tmp_path / "run")


def subscribed() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    opened.bind((0, LINK | IPV4_ROUTE | IPV6_ROUTE))
    opened.setblocking(False)
    return opened


def heard(opened: socket.socket) -> list[int]:
    """Return the types of the messages that have arrived."""
    types = []
    while True:
        try:
            types.append(int(struct.unpack_from("=H", opened.recv(65_536), 4)[0]))
        except BlockingIOError:
            return types


def after(script: str) -> list[int]:
    """Run shell commands that an unfiltered socket gets messages of, and return a filtered one's
    types.
    """
    with subscribed() as narrowed:
        netlink_filter.attach_filters()
        with subscribed() as control:
            subprocess.run(["sh", "-ec", script], check=True)
            assert heard(control)
        return heard(narrowed)


@pytest.mark.parametrize(
    ("script", "types"),
    [
        ("ip route add default via 192.0.2.1", [NEW_ROUTE]),
        ("ip route add default via 192.0.2.1; ip route del default", [NEW_ROUTE, DEL_ROUTE]),
        ("ip route add 198.51.100.0/24 via 192.0.2.1", []),
        ("ip route add default via 192.0.2.1 table 1001", []),
        ("ip route add unreachable default table 1001 metric 4294967295", []),
        ("ip -6 route add default dev wan0", []),
        ("bridge link set dev port0 cost 7", []),
        ("ip link set wan0 txqueuelen 500", []),
    ],
)
def test_only_messages_about_the_default_interface_pass_the_filter(
    namespace: Namespace, script: str, types: list[int]
) -> None:
    assert namespace.run(after, script) == types


def test_a_link_that_goes_down_passes_the_filter(namespace: Namespace) -> None:
    assert NEW_LINK in namespace.run(after, "ip link set far0 down")
    assert NEW_LINK in namespace.run(after, "ip link set wan0 down")


def test_sockets_that_request_a_dump_get_all_of_it(namespace: Namespace) -> None:
    def names() -> set[str]:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
            netlink_filter.attach_filters()
            # The message is RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, and an ifinfomsg.
            asking.send(struct.pack("=IHHII16x", 32, 18, 0x301, 1, 0))
            asking.settimeout(5)
            listed = b""
            while b"wan0" not in listed or b"br0" not in listed:
                listed += asking.recv(65_536)
            return {name for name in ("lo", "wan0", "br0") if name.encode() + b"\0" in listed}

    assert namespace.run(names) == {"lo", "wan0", "br0"}


def test_no_descriptor_is_leaked(namespace: Namespace) -> None:
    def left() -> int:
        with subscribed(), open(os.devnull):
            before = len(list(Path("/proc/self/fd").iterdir()))
            for _ in range(3):
                netlink_filter.attach_filters()
            return len(list(Path("/proc/self/fd").iterdir())) - before

    assert namespace.run(left) == 0


def filters(pid: int) -> list[int]:
    """Return the length of the filter of each socket of a process that subscribes by netlink."""
    found = []
    pidfd = os.pidfd_open(pid)
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            is_socket = str(entry.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue  # the engine has closed it
        copy = (
            ctypes.CDLL(None).syscall(PIDFD_GETFD, pidfd, int(entry.name), 0) if is_socket else -1
        )
        if copy < 0:
            continue
        with socket.socket(fileno=copy) as opened:
            if opened.family == socket.AF_NETLINK and opened.getsockname()[1]:
                found.append(len(opened.getsockopt(socket.SOL_SOCKET, SO_GET_FILTER, 1024)))
    os.close(pidfd)
    return found


@pytest.mark.usefixtures("inside")
async def test_the_filter_is_attached_to_every_instance_of_a_worker(tmp_path: Path) -> None:
    async with opened(tmp_path / "run") as pool:
        await asyncio.gather(*(pool.start(target(f"node:{n}")) for n in range(20)))
        pid = pool.pids()[0]
        assert len(filters(pid)) >= 20
        await eventually(lambda: all(filters(pid)))
        await pool.start(target("node:late"))
        await eventually(lambda: len(filters(pid)) >= 21 and all(filters(pid)))


async def test_a_worker_answers_while_its_sockets_are_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 100,000 sockets the search takes seconds, and after two seconds netd takes a worker for
    dead. Past fault: netd killed a worker with more than 100,000 sockets when one more instance
    started.
    """
    looked, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def attach_filters() -> None:
        looked.release()
        assert go_on.acquire(timeout=10)

    monkeypatch.setattr(netlink_filter, "attach_filters", attach_filters)
    monkeypatch.setattr(netlink_filter, "_GATHER_S", 0.01)

    narrowing = netlink_filter.FilterAttacher()
    narrowing.soon()
    await eventually(lambda: looked.acquire(blocking=False))
    narrowing.soon()  # may be too late for this search
    go_on.release()
    await eventually(lambda: looked.acquire(blocking=False))
    go_on.release()
    await asyncio.sleep(0.05)
    assert not looked.acquire(blocking=False)
    narrowing.soon()
    go_on.release()
    await eventually(lambda: looked.acquire(blocking=False))
