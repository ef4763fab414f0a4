"""The port that the engine's UDP answers are bound to, in the kernel."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from egressd.netd.engine.launch import Account
from egressd.netd.engine.pool import Pool
from egressd.planner.registry import ANSWER_PORT, MARK_ANSWER

UID = 64_123
FAR_END = ("203.0.113.10", 4443)

BIND = """
import json, os, socket, sys
from egressd.netd.engine import answers

uid, family, kind, address, port = json.loads(sys.argv[1])
if sys.argv[2] == "divert":
    held = answers.divert(64_123)
sock = socket.socket(family, kind)
sock.setsockopt(socket.SOL_IP, socket.IP_TRANSPARENT, 1)
os.setresuid(uid, uid, uid) if uid else None
try:
    sock.bind((address, port))
except OSError as error:
    print(json.dumps([error.errno, 0]))
else:
    print(json.dumps([sock.getsockname()[1], sock.getsockopt(socket.SOL_SOCKET, 36)]))
"""
UDP, TCP, IPV4, IPV6 = 2, 1, 2, 10


def bound(
    *, uid: int = UID, family: int = IPV4, kind: int = UDP, to: tuple[str, int] = FAR_END,
    divert: bool = True,
) -> tuple[int, int]:  # fmt: skip
    """Return the port and mark that such a socket gets in a network namespace of its own, or an
    errno.
    """
    asked = json.dumps([uid, family, kind, *to])
    told = subprocess.run(
        ["unshare", "-n", sys.executable, "-c", BIND, asked, "divert" if divert else "leave"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    port, mark = json.loads(told)
    return port, mark & 0xFFFF_FFFF


pytestmark = pytest.mark.lab


def test_an_answer_is_bound_to_our_port_and_marked_with_the_remote_port() -> None:
    assert bound() == (ANSWER_PORT, MARK_ANSWER | 4443)
    assert bound(to=("203.0.113.10", 65_535)) == (ANSWER_PORT, MARK_ANSWER | 65_535)


def test_without_the_programs_an_answer_takes_the_remote_port() -> None:
    assert bound(divert=False) == (4443, 0)


@pytest.mark.parametrize(
    ("uid", "kind", "to"),
    [
        (0, UDP, FAR_END),  # another user's
        (UID, TCP, FAR_END),
        (UID, UDP, ("127.0.0.1", 20_000)),  # a listener of clients
    ],
)
def test_other_sockets_are_not_changed(uid: int, kind: int, to: tuple[str, int]) -> None:
    assert bound(uid=uid, kind=kind, to=to) == (to[1], 0)


def test_a_socket_to_an_outside_address_gets_a_port_from_the_kernel() -> None:
    port, mark = bound(to=("0.0.0.0", 0))
    assert port != ANSWER_PORT
    assert mark == 0


def test_an_ipv6_answer_from_the_wildcard_address_is_refused() -> None:
    assert bound(family=IPV6, to=("::", 4443)) == (1, 0)  # EPERM
    assert bound(family=IPV6, to=("::", 0))[0] > 1


@pytest.fixture
def pool(tmp_path_factory: pytest.TempPathFactory) -> Pool:
    folder = tmp_path_factory.mktemp("engine")
    account = Account(UID, UID)
    return Pool(folder, account, size=0, on_lost=print, on_trouble=print, mapped=lambda: ())


async def test_a_refusal_by_the_kernel_is_reported_with_the_ports_in_use(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("egressd.netd.engine.answers.divert", _refused)
    monkeypatch.setattr("egressd.netd.kernel.udp_ports.listened_on", lambda but: [53, 443])

    await pool.open()
    (problem,) = pool.problems()
    await pool.close()
    assert "(53, 443)" in problem
    assert "Operation not permitted" in problem


def _refused(uid: int) -> tuple[int, int]:
    raise PermissionError(1, "Operation not permitted")
