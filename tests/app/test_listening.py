"""The API's sockets: made once, and held while the api starts anew."""

from __future__ import annotations

import array
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from egressd.app import config, listening
from egressd.app.held_sockets import HeldSockets
from egressd.app.listen_address import ListenAddress
from egressd.app.supervise import HANDED
from egressd.model.errors import Failed
from tests.support.netns import Namespace


def free_endpoint() -> ListenAddress:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return ListenAddress(IPv4Address("127.0.0.1"), sock.getsockname()[1])


@pytest.fixture
def here() -> ListenAddress:
    return free_endpoint()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Yield the socket on which systemd receives the descriptors that it is to keep."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield listener


def is_free(endpoint: ListenAddress) -> bool:
    """True if another program could bind the port and listen on it."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", endpoint.port))
            sock.listen()
        except OSError:
            return False
    return True


def test_exactly_the_wanted_sockets_are_held(here: ListenAddress) -> None:
    held, other = HeldSockets(), free_endpoint()
    held.want(
        (
            str(here),
            str(other),
        )
    )
    before = held.descriptors
    assert not is_free(here)
    with socket.create_connection(("127.0.0.1", here.port), 5):
        pass  # it waits until a server accepts it
    held.want(
        (
            str(here),
            str(other),
        )
    )
    assert held.descriptors == before
    held.want((str(other),))
    assert is_free(here)
    assert held.descriptors == before[1:]
    held.want(())


def test_a_port_in_use_changes_nothing(here: ListenAddress) -> None:
    held = HeldSockets()
    held.want((str(here),))
    before = held.descriptors
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        second = ListenAddress(here.address, taken.getsockname()[1])
        with pytest.raises(OSError, match=f"listen at {second}"):
            held.want((str(second),))
    assert held.descriptors == before
    assert not is_free(here)
    held.want(())


@pytest.mark.parametrize("after", ["127.0.0.1", "[::]", "[::1]"])
def test_another_address_of_the_same_port_can_be_listened_on(after: str) -> None:
    # Seen: a listen address that was narrowed to 127.0.0.1 left the device without an API.
    port = free_endpoint().port
    held = HeldSockets()
    for address in ("0.0.0.0", after, "0.0.0.0"):
        wanted = config.read({"api": {"listen": f"{address}:{port}"}}).api.listen
        held.want((str(wanted),))
        assert [it.getsockname()[0] for it in opened(held)] == [str(wanted.address)]
    held.want(())


@pytest.mark.lab
@pytest.mark.parametrize(
    "address", ["[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0::1]", "[fe80::1%wan0]"]
)
def test_an_address_is_recognised_in_any_spelling(address: str) -> None:
    with Namespace() as network:
        network.shell("ip link add wan0 type veth peer name far; ip link set wan0 up")
        network.shell("ip address add fe80::1/64 dev wan0 nodad")
        assert network.run(hand_over, address) == "handed"


def hand_over(address: str) -> str:
    wanted = config.read({"api": {"listen": f"{address}:8787"}}).api.listen
    held = HeldSockets()
    held.want((str(wanted),))
    (copy,) = (os.dup(each) for each in held.descriptors)
    (taken,) = listening.taken((wanted,), {HANDED: str(copy)})
    return "handed" if taken.fileno() == copy else "another"


def opened(held: HeldSockets) -> Iterator[socket.socket]:
    for descriptor in held.descriptors:
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            yield sock


def test_sockets_from_the_supervisor_are_adopted(here: ListenAddress) -> None:
    unwanted = free_endpoint()
    held = HeldSockets()
    held.want(
        (
            str(unwanted),
            str(here),
        )
    )
    copies = [os.dup(each) for each in held.descriptors]
    held.want(())
    (taken,) = listening.taken((here,), {HANDED: ",".join(map(str, copies))})
    assert taken.fileno() == copies[1]
    assert not os.get_inheritable(taken.fileno())
    assert not is_free(here)
    assert is_free(unwanted), "what the configuration does not name any more is closed"
    taken.close()


def test_a_new_socket_is_stored_with_systemd(here: ListenAddress, systemd: socket.socket) -> None:
    (made,) = listening.taken((here,), {})
    assert systemd.recv(100) == b"FDSTOREREMOVE=1\nFDNAME=egressd-api"
    text, control, _, _ = systemd.recvmsg(100, 100)
    assert text == b"FDSTORE=1\nFDNAME=egressd-api"
    (kept,) = array.array("i", control[0][2])
    made.close()
    assert not is_free(here)
    os.close(kept)
    assert is_free(here)


def test_sockets_from_systemd_are_adopted(
    here: ListenAddress, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = listening.bound(here)
    monkeypatch.setattr(listening, "_FIRST", first.fileno())
    handed = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    (taken,) = listening.taken((here,), handed)
    assert taken.fileno() == first.detach()
    with pytest.raises(BlockingIOError):
        systemd.recv(100)  # systemd has it already
    taken.close()
    assert is_free(here)


def _close_when_asked(systemd: socket.socket, kept: socket.socket) -> None:
    """Do as systemd does: it hears the request some time after it was sent."""
    select.select([systemd], [], [])
    assert systemd.recv(100) == b"FDSTOREREMOVE=1\nFDNAME=egressd-api"
    time.sleep(0.2)
    kept.close()


def test_a_conflicting_socket_is_removed_from_systemd(
    here: ListenAddress, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    # systemd's copy of a socket at 0.0.0.0 kept the api from 127.0.0.1: for ever at first, then for
    # one start, which ``systemctl restart`` reported as failed.
    first = listening.bound(ListenAddress(IPv4Address(0), here.port))
    kept = first.dup()
    monkeypatch.setattr(listening, "_FIRST", first.fileno())
    handed = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    closing = threading.Thread(target=_close_when_asked, args=(systemd, kept))
    closing.start()
    (made,) = listening.taken((here,), handed)
    closing.join()
    first.detach()
    assert made.getsockname() == ("127.0.0.1", here.port)
    made.close()


def test_a_port_that_stays_taken_is_an_error(
    here: ListenAddress, systemd: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = listening.bound(ListenAddress(IPv4Address(0), here.port))
    monkeypatch.setattr(listening, "_FIRST", first.fileno())
    monkeypatch.setattr(listening, "_CLOSED_S", 0.1)
    handed = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
    with first.dup(), pytest.raises(Failed, match="Address already in use"):
        listening.taken((here,), handed)
    first.detach()


def test_sockets_for_another_process_are_ignored(here: ListenAddress) -> None:
    (made,) = listening.taken((here,), {"LISTEN_PID": str(os.getppid()), "LISTEN_FDS": "1"})
    assert made.getsockname() == ("127.0.0.1", here.port)
    made.close()
