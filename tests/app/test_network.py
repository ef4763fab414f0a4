"""The api's view of the machine's network."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address

import pytest

from egressd.app.network import listening_ports, own_addresses
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab


def _with_sockets() -> set[int]:
    listeners = [
        socket.create_server(("127.0.0.1", 8000)),
        socket.create_server(("", 8001)),
        socket.create_server(("::1", 8002), family=socket.AF_INET6),
    ]
    connected = [socket.create_connection(("127.0.0.1", 8000)) for _ in range(50)]
    accepted = [listeners[0].accept()[0] for _ in connected]
    try:
        return listening_ports()
    finally:
        for opened in (*listeners, *connected, *accepted):
            opened.close()


def test_ports_of_listeners_are_found_and_those_of_connections_are_not() -> None:
    with Namespace() as namespace:
        assert namespace.run(_with_sockets) == {8000, 8001, 8002}
        assert namespace.run(listening_ports) == set()


def test_thousands_of_addresses_are_all_found() -> None:
    wanted = [IPv4Address("127.0.0.1"), *(IPv4Address("10.9.0.1") + n for n in range(1200))]
    with Namespace() as namespace:
        for first in range(1, len(wanted), 100):
            added = (f"ip address add {ip}/32 dev lo" for ip in wanted[first : first + 100])
            namespace.shell("; ".join(("ip link set lo up", *added)))
        assert namespace.run(own_addresses) == wanted
